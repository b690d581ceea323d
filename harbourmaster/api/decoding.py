"""Decoding of JSON into our projections, and of lines of it, with errors that name the field."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from typing import TypeVar

    Decoded = TypeVar("Decoded")


_JSON_NAMES: Final = {"str": "string", "int": "integer", "bool": "boolean", "float": "number"}
_UNKNOWN_FIELD: Final = re.compile(r"Object contains unknown field `(.*)`")
_QUOTED: Final = re.compile(r"`([^`]*)`")
# Brackets that can be nested without any risk.
_SHALLOW: Final = 256
# The encoding of an answer and the calls before it are nested less deeply.
_MARGIN: Final = 64


LONG: Final = 64 * 1024
"""Bytes of a value up to which it may have any number of entries."""


class MalformedError(ValueError):
    """Input that is not JSON, or whose fields have the wrong types; the text is one line."""


def decode(decoder: msgspec.json.Decoder[Decoded], data: bytes | msgspec.Raw, at: str) -> Decoded:
    """Decode ``data``, which stands at the field path ``at`` (empty for the whole document).

    Raises MalformedError, its text being ``field.path: what is wrong``.
    """
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise MalformedError(describe(error, at)) from None
    except RecursionError:
        raise MalformedError(_with_path(at, "nested too deeply")) from None
    except ValueError as error:
        raise MalformedError(_with_path(at, f"not valid JSON: {error}")) from None


def decode_texts(data: bytes | msgspec.Raw, at: str) -> dict[str, str]:
    """Decode a map of texts. Raises MalformedError also where short ones would fill memory."""
    if memoryview(data).nbytes > LONG:
        text = bytes(data)
        # Four quotes an entry; an entry takes about 200 bytes of memory.
        if text.count(b'"') - text.count(b'\\"') > len(text) // 7:
            raise MalformedError(_with_path(at, "too many entries"))
    return decode(_texts, data, at)


def decode_short(
    decoder: msgspec.json.Decoder[Decoded], data: bytes | msgspec.Raw, at: str
) -> Decoded:
    """Decode a value that is never longer than LONG bytes in practice. Raises MalformedError."""
    if memoryview(data).nbytes > LONG:
        raise MalformedError(_with_path(at, f"more than {LONG // 1024} KiB"))
    return decode(decoder, data, at)


def decode_anything(data: bytes | msgspec.Raw, at: str) -> Any:  # noqa: ANN401
    """Decode ``data`` and keep its unknown fields, so that it can be encoded again.

    Raises MalformedError, as ``decode`` does.
    """
    text = bytes(data)
    # Values with few bytes take many times their size.
    if len(text) > LONG and (
        text.count(b"{") > len(text) // 16 or text.count(b"[") > len(text) // 8
    ):
        raise MalformedError(_with_path(at, "too many values"))
    value = decode(_anything, data, at)
    if len(text) > _SHALLOW and text.count(b"[") + text.count(b"{") > _SHALLOW:
        decode(_anything, b"[" * _MARGIN + text + b"]" * _MARGIN, at)
    return value


def describe(error: msgspec.MsgspecError, at: str = "") -> str:
    """Turn msgspec's message into ``field.path: what is wrong``."""
    message, _, location = str(error).partition(" - at ")
    # Beyond "[...]", which is a key of a map, the path is not known.
    known, _, _ = location.strip("`").partition("[...]")
    path = known.removeprefix("$").removeprefix("key in $")
    if unknown := _UNKNOWN_FIELD.fullmatch(message):
        return _with_path(f"{at}{path}.{unknown[1]}", "unknown field")
    text = _QUOTED.sub(lambda match: _in_json_terms(match[1]), message)
    if isinstance(error, msgspec.ValidationError):
        return _with_path(f"{at}{path}", text[:1].lower() + text[1:])
    return _with_path(at, text)


def _in_json_terms(type_name: str) -> str:
    names = [name for name in type_name.split(" | ") if name != "null"] or ["null"]
    return " or ".join(_JSON_NAMES.get(name, name) for name in names)


def _with_path(at: str, text: str) -> str:
    field = at.lstrip(".")
    return f"{field}: {text}" if field else text


_anything: Final = msgspec.json.Decoder()
_texts: Final = msgspec.json.Decoder(dict[str, str])


class LineFailure(Struct, frozen=True, omit_defaults=True):
    """The reason why a line is not a case."""

    id: Any
    error: str
    line: int = 0
    """Number of the line from 1; 0 if it is not in a file."""


class _Identified(Struct, frozen=True):
    id: Any = None


_identified: Final = msgspec.json.Decoder(_Identified)


def line_failure(line: bytes, error: MalformedError) -> LineFailure:
    """Return the failure of a line, with the ID of its case if that can be read."""
    return LineFailure(_id_of(line), str(error))


def _id_of(line: bytes) -> Any:  # noqa: ANN401
    try:
        return decode(_identified, line, "").id
    except MalformedError:
        return None
