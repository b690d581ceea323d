"""Lines of JSON with one case each, and the reasons for lines that are not a case."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError, decode


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
