"""Patches: JSON Patch operations and pointers (RFC 6902, RFC 6901), and what requests carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import msgspec
from msgspec import UNSET, Struct

if TYPE_CHECKING:
    from collections.abc import Sequence


class Operation(Struct, frozen=True, gc=False):
    """One operation of a JSON Patch; ``add`` also replaces a member, ``remove`` has no value."""

    op: str
    path: str
    value: Any = UNSET


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

    Only what admission makes: parents are there, a list is only appended to, and what is removed
    is the member of an object.
    """
    for operation in operations:
        *parents, last = map(_unescape, operation.path.split("/")[1:])
        target = document
        for token in parents:
            target = target[token]
        if operation.op == "remove":
            del target[last]
        elif last == "-":
            target.append(operation.value)
        else:
            target[last] = operation.value


def _unescape(token: str) -> str:
    return token.replace("~1", "/").replace("~0", "~")


class JsonPatch(Struct, frozen=True):
    """RFC 6902: operations in order, or their JSON. A ``test`` that fails is an InvalidError."""

    operations: list[dict[str, Any]] | bytes

    content_type: ClassVar[str] = "application/json-patch+json"
    query: ClassVar[dict[str, str]] = {}

    def encode(self) -> bytes:
        """Encode the body of the request."""
        return _encode(self.operations)


class MergePatch(Struct, frozen=True):
    """RFC 7386: null deletes, a list is replaced whole. ``value`` may be JSON already."""

    value: Any

    content_type: ClassVar[str] = "application/merge-patch+json"
    query: ClassVar[dict[str, str]] = {}

    def encode(self) -> bytes:
        """Encode the body of the request."""
        return _encode(self.value)


class ApplyPatch(Struct, frozen=True):
    """Server-side apply: all that ``field_manager`` owns, with apiVersion and kind.

    The object is created if it is missing. A field of another manager is a ConflictError, unless
    ``force`` takes it over. ``value`` may be JSON already.
    """

    value: Any
    field_manager: str
    force: bool = False

    # JSON is YAML, and not every supported version knows a name for JSON here.
    content_type: ClassVar[str] = "application/apply-patch+yaml"

    @property
    def query(self) -> dict[str, str]:
        """The query parameters of the request."""
        query = {"fieldManager": self.field_manager}
        return {**query, "force": "true"} if self.force else query

    def encode(self) -> bytes:
        """Encode the body of the request."""
        return _encode(self.value)


Patch: TypeAlias = JsonPatch | MergePatch | ApplyPatch


def _encode(value: object) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)
