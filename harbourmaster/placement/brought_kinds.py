"""Finds the kinds that a manifest brings to a cluster, which serves them later (krake-spec 7.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

AWAIT_KIND: Final = "placement.harbourmaster.dev/await-kind"
"""The annotation ``true`` of a manifest whose kind something else brings."""
_ARGO_OPTIONS: Final = "argocd.argoproj.io/sync-options"
_ARGO_AWAITS: Final = "SkipDryRunOnMissingResource=true"
_INSTALLERS: Final = (
    *("fluxcd.controlplane.io", "helm.cattle.io", "helm.toolkit.fluxcd.io"),
    *("kustomize.toolkit.fluxcd.io", "olm.operatorframework.io", "operators.coreos.com"),
    *("operator.cluster.x-k8s.io", "pkg.crossplane.io", "platform.kratix.io"),
)
"""Groups whose objects install operators and definitions that only their source knows."""
_EXTENSIONS: Final = "apiextensions.k8s.io"
_DEFINERS: Final = frozenset((_EXTENSIONS, "apiextensions.crossplane.io"))


def brought_kinds(manifest: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the kinds as KIND.GROUP, ``*.GROUP`` for those of a group, or ``*`` for any."""
    group = str(manifest.get("apiVersion") or "").rpartition("/")[0]
    kind, metadata = f"{manifest.get('kind')}.{group}", manifest.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    if isinstance(annotations, dict):
        options = str(annotations.get(_ARGO_OPTIONS)).replace(" ", "").split(",")
        if annotations.get(AWAIT_KIND) == "true" or _ARGO_AWAITS in options:
            return (kind,)
    if group in _DEFINERS:
        spec = manifest.get("spec")
        return (f"*.{spec.get('group')}",) if isinstance(spec, dict) and spec.get("group") else ()
    if kind == "ConstraintTemplate.templates.gatekeeper.sh":
        return ("*.constraints.gatekeeper.sh",)
    if group in _INSTALLERS:
        return ("*",)
    return _of_operator(manifest) if group == "rbac.authorization.k8s.io" else ()


def is_brought(group: str, kind: str, brought: Collection[str]) -> bool:
    """Whether a kind is among those that manifests bring; what brings any kind brings others."""
    names = (f"{kind}.{group}", f"*.{group}", *(() if group in _INSTALLERS else ("*",)))
    return any(name in brought for name in names)


def _of_operator(role: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the groups that a role names if it allows its operator to create definitions."""
    rules = role.get("rules")
    rules = [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []
    wanted = {"apiGroups": _EXTENSIONS, "resources": "customresourcedefinitions", "verbs": "create"}
    if not any(all(_names(rule, at) & {wanted[at], "*"} for at in wanted) for rule in rules):
        return ()
    groups = set[str]().union(*(_names(rule, "apiGroups") for rule in rules))
    custom = sorted(name for name in groups if "." in name and not name.endswith(".k8s.io"))
    return ("*",) if "*" in groups or not custom else tuple(f"*.{name}" for name in custom)


def _names(rule: Mapping[str, Any], field: str) -> set[str]:
    values = rule.get(field)
    return set(map(str, values)) if isinstance(values, list) else set()
