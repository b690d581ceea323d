"""Rules for GitOps tools to ignore the fields that policies set.

The rules of Argo CD are jq expressions whose values are deleted on both sides of a comparison. They
are narrow: what Git sets itself at the same path is still compared. Where lists and maps are left
empty, Argo CD removes them. The rules of Flux are JSON pointers, which can name a field or a key,
but no item of a list; what Git sets itself there is not corrected any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.api.patches import escape
from harbourmaster.policies.owned_fields import InjectableFields, injectable_fields
from harbourmaster.policies.pods import KINDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from harbourmaster.policies.compiled import CompiledPolicy
    from harbourmaster.policies.owned_fields import Path
    from harbourmaster.policies.pods import Kind

HANDLED: Final[tuple[Kind, ...]] = tuple(
    {(kind.group, kind.name): kind for kind in reversed(KINDS.values())}.values()
)[::-1]
"""Every kind once, regardless of its versions."""


class Scope(Struct, frozen=True):
    """The fields that policies set in the objects of one namespace, or of all."""

    namespace: str | None
    """None for every namespace."""
    injected: InjectableFields


def scopes_of(
    policies: Iterable[CompiledPolicy], namespace: str | None = None, *, apart: bool = True
) -> list[Scope]:
    """Return what cluster policies set, and what the policies of each namespace set besides.

    With a namespace, only the policies of that one count. If nothing is set, there is no scope. For
    tools that cannot tell namespaces ``apart``, there is one scope for all.
    """
    groups: dict[str | None, list[CompiledPolicy]] = {}
    for policy in policies:
        if namespace is None or policy.namespace in {None, namespace}:
            groups.setdefault(policy.namespace if apart else None, []).append(policy)
    # Cluster policies come first.
    scopes = [
        Scope(name, injectable_fields(groups[name]))
        for name in sorted(groups, key=lambda name: name or "")
    ]
    return [scope for scope in scopes if scope.injected.paths]


def kinds_of(resources: Collection[tuple[str, str]]) -> tuple[Kind, ...]:
    """Return the kinds among API resources, given by group and plural."""
    return tuple(kind for kind in HANDLED if (kind.group, plural(kind)) in resources)


def plural(kind: Kind) -> str:
    """Return the name of a handled kind in URLs: all have a regular plural."""
    return f"{kind.name.lower()}s"


_CA_BUNDLE: Final = ".webhooks[]?.clientConfig.caBundle"
INSTALLATION: Final = {
    resources.MUTATING_WEBHOOKS: _CA_BUNDLE,
    resources.VALIDATING_WEBHOOKS: _CA_BUNDLE,
    resources.DEFINITIONS: ".spec.conversion.webhook.clientConfig.caBundle",
    resources.API_SERVICES: ".spec.caBundle",
}
"""Fields that are written into objects of the installation itself, as an expression by kind."""


def _ignore_rules(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> Iterator[tuple[str, str, str | None, list[str]]]:
    """Yield group, kind, namespace (None for all) and expressions of each rule."""
    for scope in scopes:
        for kind in kinds:
            paths = list(jq_expressions(kind.pointer, scope.injected))
            yield kind.group, kind.name, scope.namespace, paths
    for resource, path in INSTALLATION.items() if installation else ():
        yield resource.group, resource.kind, None, [path]


def argocd_application(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> dict[str, Any]:
    """Return the rules as a part of the ``spec`` of an Application."""
    return {
        "ignoreDifferences": [
            {
                "group": group,
                "kind": kind,
                **({"namespace": namespace} if namespace is not None else {}),
                "jqPathExpressions": paths,
            }
            for group, kind, namespace, paths in _ignore_rules(
                scopes, kinds, installation=installation
            )
        ]
    }


def argocd_config_map(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> dict[str, Any]:
    """Return a ConfigMap with the rules for all Applications."""
    labels = {"app.kubernetes.io/name": "argocd-cm", "app.kubernetes.io/part-of": "argocd"}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "argocd-cm", "namespace": "argocd", "labels": labels},
        "data": {
            f"resource.customizations.ignoreDifferences.{f'{group}_{kind}'.lstrip('_')}": "".join(
                # JSON is YAML, however long its line.
                ["jqPathExpressions:\n", *(f"- {_json(path)}\n" for path in paths)]
            )
            for group, kind, _, paths in _ignore_rules(scopes, kinds, installation=installation)
        },
    }


def jq_expressions(pointer: str, values: InjectableFields) -> Iterator[str]:
    """Yield an expression for each value that is set in the pod spec at ``pointer``."""
    root = pointer.replace("/", ".")
    for path in values.fields:
        yield _at(root, path)
    for path, item in values.items:
        yield f"{_at(root, path)}[]? | select(. == {_json(item)})"
    for path, key, value in values.entries:
        member = f".[{_json(key)}]"
        yield f"{_at(root, path)} | select({member}? == {_json(value)}) | {member}"
    for path, value in values.scalars:
        yield f"{_at(root, path)} | select(. == {_json(value)})"


def _at(root: str, path: Path) -> str:
    return ".".join((root, *path))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def flux_rules(scopes: Sequence[Scope], kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    """Return a rule for each kind in each scope."""
    return [
        {
            "paths": json_pointers(kind.pointer, scope.injected),
            "target": {
                **({"group": kind.group} if kind.group else {}),
                "kind": kind.name,
                **({"namespace": scope.namespace} if scope.namespace is not None else {}),
            },
        }
        for scope in scopes
        for kind in kinds
    ]


def json_pointers(pointer: str, values: InjectableFields) -> list[str]:
    """Return the pointers to everything that is set in the pod spec at ``pointer``."""
    return ["/".join((pointer, *map(escape, path))) for path in values.paths]
