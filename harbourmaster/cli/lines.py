"""Commands that read JSON Lines: one case a line, one answer a line, in order."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from harbourmaster.api.decoding import LineFailure, MalformedError, line_failure
from harbourmaster.cli.terminal import printable
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path
    from typing import BinaryIO

    from msgspec import Struct

Answer = TypeVar("Answer")
_encode: Final = msgspec.json.Encoder().encode


def answer_file(path: Path, answer: Callable[[bytes], Struct]) -> int:
    """Answer each line of a file; returns the exit code, 1 where a line was not a case."""
    with open_input(path) as stream:
        return 1 if print_lines(answer_lines(stream, answer), LineFailure) else 0


def answer_lines(lines: Iterable[bytes], answer: Callable[[bytes], Answer]) -> Iterator[Answer]:
    """Answer each line that is not blank; a LineFailure where ``answer`` raises MalformedError.

    An answer that has a field for it gets the number of its line.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                result: Any = answer(line)
            except MalformedError as error:
                result = line_failure(line, error)
            yield replace(result, line=number) if hasattr(result, "line") else result


def print_lines(
    answers: Iterable[Struct | dict[str, Any]],
    *bad: type[Struct],
    describe: Callable[[Any], Iterable[str]] | None = None,
) -> int:
    """Print each answer at once, as a line of JSON or as ``describe`` returns it.

    Returns how many are of the ``bad`` types.
    """
    count = 0
    for answer in answers:
        count += isinstance(answer, bad)
        text = "\n".join(map(clean, describe(answer))).encode() if describe else _encode(answer)
        sys.stdout.buffer.write((text if describe else printable(text)) + b"\n")
        sys.stdout.buffer.flush()
    return count


def open_input(path: Path) -> BinaryIO:
    """The file, or standard input for ``-``."""
    return sys.stdin.buffer if str(path) == "-" else path.open("rb")
