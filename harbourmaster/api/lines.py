"""Lines of JSON that hold one case each, and why a line is none."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError, decode


class LineFailure(Struct, frozen=True, omit_defaults=True):
    """Why a line is not a case."""

    id: Any
    error: str
    line: int = 0
    """Counted from 1; 0 where it does not stand in a file."""


class _Identified(Struct, frozen=True):
    id: Any = None


_identified: Final = msgspec.json.Decoder(_Identified)


def line_failure(line: bytes, error: MalformedError) -> LineFailure:
    """The failure of a line, with the ID of its case if that can be read."""
    return LineFailure(_id_of(line), str(error))


def _id_of(line: bytes) -> Any:  # noqa: ANN401
    try:
        return decode(_identified, line, "").id
    except MalformedError:
        return None
