"""Field errors as the Kubernetes API writes them (kupid-spec 5.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.names import dns_subdomain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Kind: TypeAlias = Literal[
    "Required value", "Invalid value", "Forbidden", "Unsupported value", "Too long", "Too many"
]

_LAST_ONE_BYTE: Final = 0x7F
_LAST_TWO_BYTE: Final = 0xFFFF
_ESCAPES: Final = {
    '"': r"\"",
    "\\": r"\\",
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
}


_REASONS: Final = {
    "Required value": "FieldValueRequired",
    "Invalid value": "FieldValueInvalid",
    "Forbidden": "FieldValueForbidden",
    "Unsupported value": "FieldValueNotSupported",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}


class FieldError(Struct, frozen=True, gc=False):
    """A fault of a field; its text is ``<path>: <kind>[: <bad value>][: <detail>]``."""

    path: str
    kind: Kind
    value: str | None = None
    """The bad value as it is shown: strings quoted, numbers bare."""
    detail: str = ""
    is_warning: bool = False
    """Whether admission only warns of it, because Keptn accepts it."""
    pointer: str = ""
    """Two lines for an invalid constraint: its text, and a caret at the position."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"

    @property
    def message(self) -> str:
        """The text without the path, as in a cause of a refusal."""
        return ": ".join(filter(None, (self.kind, self.value, self.detail)))

    @property
    def reason(self) -> str:
        """The reason of a cause, as the API server has it."""
        return _REASONS[self.kind]

    def as_warning(self) -> FieldError:
        """Return the same fault as a warning."""
        return replace(self, is_warning=True)


def required(path: str, detail: str = "") -> FieldError:
    """Say that a value is missing."""
    return FieldError(path, "Required value", None, detail)


def invalid(path: str, value: object, detail: str) -> FieldError:
    """Say that a value breaks a rule."""
    return FieldError(path, "Invalid value", render_value(value), detail)


def forbidden(path: str, detail: str) -> FieldError:
    """Say that no value may be here."""
    return FieldError(path, "Forbidden", None, detail)


def unsupported(path: str, value: str, supported: Iterable[str]) -> FieldError:
    """Say that a value is not one of the supported values."""
    listed = ", ".join(map(quote, supported))
    return FieldError(path, "Unsupported value", quote(value), f"supported values: {listed}")


def check_name(path: str, name: str, *, same_namespace: bool = True) -> Iterator[FieldError]:
    """Check the name of an object; an empty one is valid.

    ``same_namespace`` adds to the text that no namespace may stand before the name.
    """
    if name and dns_subdomain(name):
        where, rest = (" in the same namespace", ", and no namespace before it")
        if not same_namespace:
            where = rest = ""
        text = f"must be the name of an object{where}: lower case letters, digits, '-' and '.'"
        yield invalid(path, name, text + rest)


def warn_of_name(path: str, name: str, *, same_namespace: bool = True) -> Iterator[FieldError]:
    """Check a name, with a warning; a path is an error, because it might lead elsewhere."""
    faults = check_name(path, name, same_namespace=same_namespace)
    return faults if "/" in name else (fault.as_warning() for fault in faults)


def refusal(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> str:
    """Write all errors of an object on one line, as the API server does for its own kinds."""
    return f"{kind}.{group} {quote(name)} is invalid: {reason(errors)}"


def reason(errors: Sequence[FieldError]) -> str:
    """Write all errors as one line: ``[e1, e2]``, one alone bare, identical texts once."""
    texts = list(dict.fromkeys(map(str, errors)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def render_value(value: object) -> str:
    """Write a value on one line: strings quoted, numbers bare, absent fields left out."""
    match value:
        case str():
            return quote(value)
        case bool() | None:
            return msgspec.json.encode(value).decode()
        case Struct():
            return render_value(msgspec.to_builtins(value))
        case dict():
            fields = (f"{name}: {render_value(v)}" for name, v in value.items() if v is not None)
            return f"{{{', '.join(fields)}}}"
        case list():
            return f"[{', '.join(map(render_value, value))}]"
        case _:
            return str(value)


def quote(text: str) -> str:
    """Quote a string as Go does, with everything escaped that does not print."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code <= _LAST_ONE_BYTE:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _LAST_TWO_BYTE else f"\\U{code:08x}"
