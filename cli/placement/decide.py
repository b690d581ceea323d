"""``harbourmaster placement parse`` and ``decide``: placement without a cluster, line by line."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import MalformedError, decode
from harbourmaster.cli.placement.cases import decided
from harbourmaster.placement.errors import ConstraintError
from harbourmaster.placement.languages import PARSERS, Language

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO


class Expression(Struct, frozen=True):
    """One line of ``parse``."""

    kind: Language
    expression: str
    id: Any = None


class Parsed(Struct, frozen=True):
    """Whether it is a constraint: how it is best written, or what is wrong, with a caret."""

    id: Any
    valid: bool
    canonical: str | None = None
    error: str | None = None


class Failure(Struct, frozen=True):
    """A line that is not a case."""

    id: Any
    error: str


class _Identified(Struct, frozen=True):
    id: Any = None


_expressions: Final = msgspec.json.Decoder(Expression)
_identified: Final = msgspec.json.Decoder(_Identified)
_encode: Final = msgspec.json.Encoder().encode


def parse(arguments: Arguments) -> int:
    """Read a constraint from each line; 1 where a line was not a case."""
    return _answer(arguments.file, parsed)


def decide(arguments: Arguments) -> int:
    """Decide each line's case; 1 where a line was none."""
    return _answer(arguments.file, decided)


def parsed(line: bytes) -> Parsed:
    """The answer to one line. Raises MalformedError."""
    given = decode(_expressions, line, "")
    try:
        constraint = PARSERS[given.kind](given.expression)
    except ConstraintError as error:
        return Parsed(given.id, valid=False, error=error.pointed)
    return Parsed(given.id, valid=True, canonical=constraint.canonical)


def answered(lines: Iterable[bytes], answer: Callable[[bytes], Struct]) -> Iterator[Struct]:
    """Answer each line that is not blank, in order; a Failure where it is not a case."""
    for line in lines:
        if line.strip():
            try:
                yield answer(line)
            except MalformedError as error:
                yield Failure(_id_of(line), str(error))


def _id_of(line: bytes) -> Any:  # noqa: ANN401
    try:
        return decode(_identified, line, "").id
    except MalformedError:
        return None


def _answer(path: Path, answer: Callable[[bytes], Struct]) -> int:
    failed = False
    with _opened(path) as stream:
        for found in answered(stream, answer):
            failed = failed or isinstance(found, Failure)
            sys.stdout.buffer.write(_encode(found) + b"\n")
            sys.stdout.buffer.flush()
    return 1 if failed else 0


def _opened(path: Path) -> BinaryIO:
    return sys.stdin.buffer if str(path) == "-" else path.open("rb")
