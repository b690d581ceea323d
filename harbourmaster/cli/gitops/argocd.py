"""Ignore rules of Argo CD: jq expressions whose values are deleted on both sides of a comparison.

As narrow as can be: what Git sets itself at the same place is still compared. Where lists and maps
are left empty, Argo CD takes them away by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api import resources

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.gitops.rules import Scope
    from harbourmaster.policies.injected import Injected, Path
    from harbourmaster.policies.pods import Kind

_CA_BUNDLE: Final = ".webhooks[]?.clientConfig.caBundle"
INSTALLATION: Final = {
    resources.MUTATING_WEBHOOKS: _CA_BUNDLE,
    resources.VALIDATING_WEBHOOKS: _CA_BUNDLE,
    resources.DEFINITIONS: ".spec.conversion.webhook.clientConfig.caBundle",
    resources.API_SERVICES: ".spec.caBundle",
}
"""What is written into objects of the installation itself, as an expression by kind."""


def _ignored(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> Iterator[tuple[str, str, str | None, list[str]]]:
    """Group, kind, namespace where it is about one, and expressions."""
    for scope in scopes:
        for kind in kinds:
            paths = list(expressions(kind.pointer, scope.injected))
            yield kind.group, kind.name, scope.namespace, paths
    for each, path in INSTALLATION.items() if installation else ():
        yield each.group, each.kind, None, [path]


def application(
    scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool
) -> dict[str, Any]:
    """The part of an Application's ``spec``."""
    return {
        "ignoreDifferences": [
            {
                "group": group,
                "kind": kind,
                **({"namespace": namespace} if namespace is not None else {}),
                "jqPathExpressions": paths,
            }
            for group, kind, namespace, paths in _ignored(scopes, kinds, installation=installation)
        ]
    }


def system(scopes: Sequence[Scope], kinds: Sequence[Kind], *, installation: bool) -> dict[str, Any]:
    """A ConfigMap that has Argo CD do so for all Applications."""
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
            for group, kind, _, paths in _ignored(scopes, kinds, installation=installation)
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
