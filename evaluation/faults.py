"""What is wrong with an object, field by field, as the API server words it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Reason = Literal[
    "FieldValueForbidden", "FieldValueInvalid", "FieldValueNotSupported", "FieldValueRequired"
]
_LONGEST_NAME: Final = 253
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


class Fault(Struct, frozen=True, gc=False):
    """One cause of a refusal."""

    field: str
    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def invalid(field: str, value: str | float, text: str) -> Fault:
    """A value that breaks a rule."""
    shown = quoted(value) if isinstance(value, str) else str(value)
    return Fault(field, "FieldValueInvalid", f"Invalid value: {shown}: {text}")


def required(field: str, text: str) -> Fault:
    """A value that is missing."""
    return Fault(field, "FieldValueRequired", f"Required value: {text}")


def forbidden(field: str, text: str) -> Fault:
    """A value where none may be."""
    return Fault(field, "FieldValueForbidden", f"Forbidden: {text}")


def unsupported(field: str, value: str, supported: Iterable[str]) -> Fault:
    """A value that is none of those that there are."""
    listed = ", ".join(map(quoted, supported))
    text = f"Unsupported value: {quoted(value)}: supported values: {listed}"
    return Fault(field, "FieldValueNotSupported", text)


def bad_name(field: str, name: str, *, is_neighbour: bool = True) -> Iterator[Fault]:
    """A fault where no object, of the same namespace or of any, can be named so.

    No name is no fault.
    """
    if name and (len(name) > _LONGEST_NAME or not _NAME.fullmatch(name)):
        where, rest = (" in the same namespace", ", and no namespace before it")
        if not is_neighbour:
            where = rest = ""
        text = f"must be the name of an object{where}: lower case letters, digits, '-' and '.'"
        yield invalid(field, name, text + rest)


def message(group: str, kind: str, name: str, faults: Sequence[Fault]) -> str:
    """All faults in one line, as the API server says it of kinds of its own."""
    texts = list(dict.fromkeys(map(str, faults)))
    told = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return f"{kind}.{group} {quoted(name)} is invalid: {told}"


def quoted(text: str) -> str:
    """The text in quotes, with everything escaped that JSON escapes."""
    return msgspec.json.encode(text).decode()
