"""Tests a condition or a field of an object: for pods that wait, and for readiness. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Collection


def field_of(value: Any, path: str) -> str | None:  # noqa: ANN401 - JSON
    """Return a field of an object, as JSON unless it is a string; None if it is missing.

    ``path`` has dots; numbers are indexes.
    """
    for part in path.split("."):
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return None
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def describe_condition(name: str, wanted: Collection[str], status: str, reason: str) -> str:
    """Return why a condition has no wanted status, in any case of letters; empty if it has one."""
    if status.lower() in {value.lower() for value in wanted}:
        return ""
    return f"condition {name} is {status}" + (f" ({reason})" if reason else "")


def describe_field(path: str, wanted: Collection[str], value: str | None) -> str:
    """Return why a field has no wanted value, without its value; empty if it has one.

    Users who read events are perhaps not allowed to read the object.
    """
    return "" if value in wanted else f"{path} is not {' or '.join(wanted)}"
