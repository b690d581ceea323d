"""Log lines that come by the thousand: one encoding each, and one write for all of a moment.

A line of the usual logger costs as much as a whole admission decision. Here an event is a Struct
with what every line has, encoded as it is; JSON escapes whatever could start a line of its own or
reach the terminal. On a terminal the usual logger writes it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    import asyncio
    from typing import BinaryIO

MAX_BUFFERED: Final = 64 * 1024
"""Bytes that wait for the end of the moment; more are written at once."""


class Event(msgspec.Struct, gc=False, kw_only=True):
    """What every line has; a subclass adds its own fields."""

    event: str
    component: str
    level: str = "info"
    timestamp: datetime = msgspec.field(default_factory=lambda: datetime.now(UTC))


class EventWriter:
    """Writes events as JSON lines; all that come in one turn of the loop in one write."""

    def __init__(self, stream: BinaryIO, loop: asyncio.AbstractEventLoop) -> None:
        self._stream = stream
        self._loop = loop
        self._lines: list[bytes] = []
        self._size = 0
        self._encode = msgspec.json.Encoder().encode

    def write(self, event: Event) -> None:
        """Write soon: before the loop waits again."""
        line = self._encode(event)
        if not self._lines:
            self._loop.call_soon(self.flush)
        self._lines.append(line)
        self._size += len(line)
        if self._size > MAX_BUFFERED:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        lines, self._lines = self._lines, []
        self._size = 0
        if lines:
            lines.append(b"")
            self._stream.write(b"\n".join(lines))
            self._stream.flush()
