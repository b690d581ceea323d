"""JSON Patch operations on the fields that are owned below a pod spec (RFC 6902, RFC 6901)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Sequence

AFFINITY: Final = "affinity"
NODE_NAME: Final = "nodeName"
NODE_SELECTOR: Final = "nodeSelector"
SCHEDULER_NAME: Final = "schedulerName"
TOLERATIONS: Final = "tolerations"


class Operation(Struct, frozen=True, gc=False):
    """One operation of a JSON Patch; ``add`` also replaces the member of an object."""

    op: str
    path: str
    value: Any


def add(path: str, value: Any) -> Operation:  # noqa: ANN401
    """Set an object's member, or append where the path ends in ``/-``."""
    return Operation("add", path, value)


def escape(token: str) -> str:
    """Escape one reference token of a JSON pointer: ``a/b~c`` becomes ``a~1b~0c``."""
    if "~" in token or "/" in token:
        return token.replace("~", "~0").replace("/", "~1")
    return token


def apply(document: Any, operations: Sequence[Operation]) -> None:  # noqa: ANN401
    """Apply our own operations to a decoded object, in place; for showing a result offline.

    Only what ``add`` makes: parents are there, and a list is only appended to.
    """
    for operation in operations:
        *parents, last = map(_unescape, operation.path.split("/")[1:])
        target = document
        for token in parents:
            target = target[token]
        if last == "-":
            target.append(operation.value)
        else:
            target[last] = operation.value


def _unescape(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")
