"""Raw answers: the lines of a watch, and JSON that is nested too deeply to be decoded."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec import Struct

MAX_LINE: Final = 16 * 1024 * 1024
"""Bytes of one event; objects in etcd are at most a tenth of it."""


class LineTooLongError(Exception):
    """A line exceeds the limit; the stream cannot be read on."""


class WatchEvent(Struct, frozen=True, gc=False):
    """One event. ``object`` shares the memory of its own line only."""

    type: str
    object: msgspec.Raw


class LineSplitter:
    """Splits bytes into lines, without line ends and without empty lines."""

    def __init__(self, limit: int = MAX_LINE) -> None:
        """``limit`` is in bytes, the end not counted."""
        self._limit = limit
        self._rest = bytearray()

    @property
    def pending(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)

    @property
    def size(self) -> int:
        """The bytes of that line."""
        return len(self._rest)

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that end in ``chunk``. Raises LineTooLongError."""
        *ends, rest = chunk.split(b"\n")
        lines = []
        for end in ends:
            self._check(end)
            line = bytes(self._rest) + end if self._rest else end
            self._rest.clear()
            if line := line.removesuffix(b"\r"):
                lines.append(line)
        self._check(rest)
        self._rest += rest
        return lines

    def _check(self, piece: bytes) -> None:
        if len(self._rest) + len(piece) > self._limit:
            self._rest.clear()
            raise LineTooLongError(f"a line is longer than {self._limit} bytes")


DEEPEST: Final = 200
"""Levels of nesting that can be decoded."""
STUB: Final = b'"nested too deeply to be read"'
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_OPENING: Final = frozenset((b"[", b"{"))
_CLOSING: Final = frozenset((b"]", b"}"))


def shallow(body: bytes, level: int) -> bytes:
    """Return the JSON with a text in place of each value on ``level`` that is nested too deeply."""
    pieces: list[bytes] = []
    depth = deepest = begun = kept = 0
    for token in _TOKENS.finditer(body):
        text = token[0]
        if text in _OPENING:
            depth += 1
            if depth == level:
                begun, deepest = token.start(), depth
            deepest = max(deepest, depth)
        elif text in _CLOSING:
            if depth == level and deepest > DEEPEST:
                pieces += (body[kept:begun], STUB)
                kept = token.end()
            depth -= 1
    return b"".join((*pieces, body[kept:]))
