"""Ignore rules of Flux: JSON pointers, which can name a field or a key, but no item of a list.

What Git sets itself there is not corrected any more either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.api.patches import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.cli.gitops.rules import Scope
    from harbourmaster.policies.injected import Injected
    from harbourmaster.policies.pods import Kind


def rules(scopes: Sequence[Scope], kinds: Sequence[Kind]) -> list[dict[str, Any]]:
    """One rule for each kind in each scope."""
    return [
        {
            "paths": pointers(kind.pointer, scope.injected),
            "target": {
                **({"group": kind.group} if kind.group else {}),
                "kind": kind.name,
                **({"namespace": scope.namespace} if scope.namespace is not None else {}),
            },
        }
        for scope in scopes
        for kind in kinds
    ]


def pointers(pointer: str, found: Injected) -> list[str]:
    """The pointers of everything that may be set in the pod spec at ``pointer``."""
    return ["/".join((pointer, *map(escape, path))) for path in found.paths]
