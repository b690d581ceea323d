"""Ignore rules of Argo CD: jq expressions whose values are deleted on both sides of a comparison.

As narrow as can be: what Git sets itself at the same place is still compared. Where lists and maps
are left empty, Argo CD takes them away by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.gitops.rules import Scope
    from harbourmaster.policies.injected import Injected, Path
    from harbourmaster.policies.pods import Kind

_CA_BUNDLE: Final = ".webhooks[]?.clientConfig.caBundle"
INSTALLATION: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration", (_CA_BUNDLE,)),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration", (_CA_BUNDLE,)),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        (".spec.conversion.webhook.clientConfig.caBundle",),
    ),
    ("apiregistration.k8s.io", "APIService", (".spec.caBundle",)),
)
"""What is written into objects of the installation itself: group, kind, expressions."""


def application(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> dict[str, Any]:
    """The part of an Application's ``spec``."""
    found: list[dict[str, Any]] = [
        {
            "group": kind.group,
            "kind": kind.name,
            **({"namespace": scope.namespace} if scope.namespace is not None else {}),
            "jqPathExpressions": list(expressions(kind.pointer, scope.injected)),
        }
        for scope in scopes
        for kind in kinds
    ]
    if installation:
        found += [
            {"group": group, "kind": kind, "jqPathExpressions": list(paths)}
            for group, kind, paths in INSTALLATION
        ]
    return {"ignoreDifferences": found}


def system(scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool) -> dict[str, Any]:
    """A ConfigMap that has Argo CD do so for all Applications."""
    found = {
        (kind.group, kind.name): list(expressions(kind.pointer, scope.injected))
        for scope in scopes
        for kind in kinds
    }
    if installation:
        found |= {(group, kind): list(paths) for group, kind, paths in INSTALLATION}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "argocd-cm",
            "namespace": "argocd",
            "labels": {
                "app.kubernetes.io/name": "argocd-cm",
                "app.kubernetes.io/part-of": "argocd",
            },
        },
        "data": {
            f"resource.customizations.ignoreDifferences.{'_'.join(filter(None, kind))}": "".join(
                # JSON is YAML, however long its line.
                ["jqPathExpressions:\n", *(f"- {_json(path)}\n" for path in paths)]
            )
            for kind, paths in found.items()
        },
    }


def expressions(pointer: str, found: Injected) -> Iterator[str]:
    """One expression for each thing that may be set in the pod spec at ``pointer``."""
    root = pointer.replace("/", ".")
    for path in found.fields:
        yield _at(root, path)
    for path, item in found.items:
        yield f"{_at(root, path)}[]? | select(. == {_json(item)})"
    for path, key, value in found.entries:
        member = f".[{_json(key)}]"
        yield f"{_at(root, path)} | select({member}? == {_json(value)}) | {member}"
    for path, value in found.scalars:
        yield f"{_at(root, path)} | select(. == {_json(value)})"


def _at(root: str, path: Path) -> str:
    return ".".join((root, *path))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
