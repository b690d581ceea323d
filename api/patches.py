"""The kinds of patch that every resource takes, named: nothing is guessed from a body's shape."""

from __future__ import annotations

from typing import Any, ClassVar, TypeAlias

import msgspec
from msgspec import Struct


class JsonPatch(Struct, frozen=True):
    """RFC 6902: operations in order, or their JSON. A ``test`` that fails is an InvalidError."""

    operations: list[dict[str, Any]] | bytes

    content_type: ClassVar[str] = "application/json-patch+json"

    @property
    def query(self) -> dict[str, str]:
        """What the request says besides."""
        return {}

    def encoded(self) -> bytes:
        """The body of the request."""
        return _encoded(self.operations)


class MergePatch(Struct, frozen=True):
    """RFC 7386: null deletes, a list is replaced whole. ``value`` may be JSON already."""

    value: Any

    content_type: ClassVar[str] = "application/merge-patch+json"

    @property
    def query(self) -> dict[str, str]:
        """What the request says besides."""
        return {}

    def encoded(self) -> bytes:
        """The body of the request."""
        return _encoded(self.value)


class ApplyPatch(Struct, frozen=True):
    """Server-side apply: all that ``field_manager`` owns, with apiVersion and kind.

    The object is made where there is none. A field of another manager's is a ConflictError,
    unless ``force`` takes it over. ``value`` may be JSON already.
    """

    value: Any
    field_manager: str
    force: bool = False

    # JSON is YAML, and not every supported version knows a name for JSON here.
    content_type: ClassVar[str] = "application/apply-patch+yaml"

    @property
    def query(self) -> dict[str, str]:
        """What the request says besides."""
        query = {"fieldManager": self.field_manager}
        return {**query, "force": "true"} if self.force else query

    def encoded(self) -> bytes:
        """The body of the request."""
        return _encoded(self.value)


Patch: TypeAlias = JsonPatch | MergePatch | ApplyPatch


def _encoded(value: object) -> bytes:
    return value if isinstance(value, bytes) else msgspec.json.encode(value)
