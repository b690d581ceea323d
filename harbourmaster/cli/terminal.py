"""Output at a terminal: colours where they are wanted, columns, and lines that fit.

Text of strangers goes through ``clean`` before any of our own controls are put around it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec

from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable
    from typing import TextIO

Tone: TypeAlias = Literal["", "good", "bad", "waiting", "dim", "strong"]
"""The tone of a line; colour is never the only sign."""
_CODES: Final[dict[str, str]] = {
    "good": "32",
    "bad": "31",
    "waiting": "33",
    "dim": "2",
    "strong": "1",
}
NARROWEST: Final = 60
WIDEST: Final = 120


def json_text(value: object) -> bytes:
    """Indented JSON for programs, without characters that control a terminal."""
    return printable(msgspec.json.format(msgspec.json.encode(value), indent=2)) + b"\n"


def yaml_text(value: object) -> bytes:
    """Return YAML for programs, which escapes characters that control a terminal."""
    # Only those who ask for it wait for its import.
    from harbourmaster.serving.kubectl_yaml import dump  # noqa: PLC0415

    return dump(msgspec.to_builtins(value)).encode()


FORMATS: Final = {"json": json_text, "yaml": yaml_text}
"""Encoders of reports for programs, by format."""


def printable(data: bytes) -> bytes:
    """Escape characters in JSON that control a terminal.

    JSON itself escapes only what is below a blank; U+009B, say, begins a control sequence as well.
    """
    text = data.decode()
    if not text.replace("\n", "").isprintable():
        text = "".join(
            char if char == "\n" or char.isprintable() else json.dumps(char)[1:-1] for char in text
        )
    return text.encode()


class Terminal:
    """Formats lines for one stream."""

    def __init__(self, *, has_colours: bool = False, width: int = 0) -> None:
        """``width`` 0 is for output that is not a terminal: nothing is folded."""
        self._has_colours = has_colours
        self.width = width

    @staticmethod
    def of(stream: TextIO) -> Terminal:
        """Return the terminal of a stream: NO_COLOR and TERM=dumb switch colours off."""
        if not stream.isatty():
            return Terminal()
        plain = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
        columns = shutil.get_terminal_size().columns
        return Terminal(has_colours=not plain, width=min(max(columns, NARROWEST), WIDEST))

    def line(self, text: str, tone: Tone = "", *, indent: int = 0, hanging: int = 0) -> str:
        """The line, cleaned, folded where it is too long; what is folded hangs further in."""
        shown = clean(text)
        first = " " * indent
        if self.width and len(first) + len(shown) > self.width:
            rest = " " * (indent + hanging)
            folded = textwrap.wrap(
                shown,
                self.width,
                initial_indent=first,
                subsequent_indent=rest,
                break_long_words=False,
                break_on_hyphens=False,
                drop_whitespace=True,
            )
            return "\n".join(self._with_tone(part, tone) for part in folded)
        return self._with_tone(first + shown, tone)

    def _with_tone(self, text: str, tone: Tone) -> str:
        if not (self._has_colours and tone):
            return text
        bare = text.lstrip(" ")
        return f"{' ' * (len(text) - len(bare))}\x1b[{_CODES[tone]}m{bare}\x1b[0m"


def print_out(
    arguments: Arguments, report: object, lines: Iterable[str | tuple[str, Tone]]
) -> None:
    """Print a report as ``--output`` says: as JSON, as YAML, or as these lines, in their tones."""
    if arguments.output in FORMATS:
        sys.stdout.buffer.write(FORMATS[arguments.output](report))
        sys.stdout.buffer.flush()
        return
    terminal = Terminal.of(sys.stdout)
    # Columns stay columns on a narrow terminal.
    terminal.width = 0
    for line in lines:
        print(terminal.line(line) if isinstance(line, str) else terminal.line(*line), flush=True)
