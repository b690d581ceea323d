"""Notifies open pages that they are outdated, at most once a second each.

An event only says that something changed that its reader may see. The browser then fetches the page
again, which repeats all checks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web

from harbourmaster.dashboard.visibility import namespaces_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.visibility import Visibility

MOST: Final = 64
"""Streams of one replica at the same time."""
MOST_OF_USER: Final = 8
"""Streams of one user at the same time."""
PAUSE: Final = 1.0
"""Seconds between two events."""
SHARE: Final = 0.1
"""Seconds that each reader adds to the pause, because the leader may render the pages."""
HEARTBEAT: Final = 15.0
RECHECK: Final = 30.0
"""Seconds between two checks of the reader's permissions."""
_CHANGED: Final = b"event: changed\ndata: 1\n\n"
_BEAT: Final = b": \n\n"
_END: Final = b"event: end\ndata: 1\n\n"


class TooManyStreamsError(Exception):
    """There are too many streams."""


class StreamReader:
    """An open page, with the kinds that it shows and what its reader may see."""

    def __init__(self, kinds: tuple[Resource, ...], visible: Visibility) -> None:
        self.kinds = kinds
        self.visible = visible
        self.woken = asyncio.Event()
        self.is_outdated = False
        self.is_ended = False

    def end(self) -> None:
        """Make the stream end."""
        self.is_ended = True
        self.woken.set()

    def note(self, kind: Resource, namespaces: frozenset[str]) -> None:
        """Mark the page as outdated if it shows objects of this kind in these namespaces."""
        if kind in self.kinds:
            scope = self.visible.of(kind)
            if scope.everywhere or not scope.namespaces.isdisjoint(namespaces):
                self.is_outdated = True
                self.woken.set()


class Hub:
    """The readers of all streams."""

    def __init__(self) -> None:
        self._readers: dict[StreamReader, str] = {}
        self._is_closing = False

    def notify(self, kind: Resource, keys: frozenset[str]) -> None:
        """Notify the readers of a kind that the objects with these keys have changed."""
        if not self._readers:
            return
        namespaces = namespaces_of(keys)
        for reader in self._readers:
            reader.note(kind, namespaces)

    def check(self, user: str) -> None:
        """Raise TooManyStreamsError if the user cannot have another stream.

        If there are too many, the user with most streams loses one to a user with fewer.
        """
        counts = Counter(self._readers.values())
        is_full = len(self._readers) >= MOST and counts[user] >= max(counts.values())
        if is_full or counts[user] >= MOST_OF_USER:
            raise TooManyStreamsError

    def _make_room(self) -> None:
        ((most, _),) = Counter(self._readers.values()).most_common(1)
        oldest = next(reader for reader, user in self._readers.items() if user == most)
        del self._readers[oldest]
        oldest.end()

    def close(self) -> None:
        """End all streams."""
        self._is_closing = True
        for reader in self._readers:
            reader.end()

    async def serve(
        self,
        request: web.Request,
        user: str,
        reader: StreamReader,
        recheck: Callable[[], Awaitable[Visibility | None]],
    ) -> web.StreamResponse:
        """Serve one stream to its end. Raises TooManyStreamsError.

        ``recheck`` returns what the user may see now, or None if the stream must end.
        """
        self.check(user)
        if len(self._readers) >= MOST:
            self._make_room()
        self._readers[reader] = user
        try:
            response = web.StreamResponse(
                headers={hdrs.CONTENT_TYPE: "text/event-stream", "X-Accel-Buffering": "no"}
            )
            await response.prepare(request)
            await response.write(b"retry: 3000\n\n")
            with contextlib.suppress(ConnectionError):
                await self._send_events(response, reader, recheck)
            return response
        finally:
            self._readers.pop(reader, None)

    async def _send_events(
        self,
        response: web.StreamResponse,
        reader: StreamReader,
        recheck: Callable[[], Awaitable[Visibility | None]],
    ) -> None:
        clock = asyncio.get_running_loop().time
        due = clock() + RECHECK
        while not (self._is_closing or reader.is_ended):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await reader.woken.wait()
            reader.woken.clear()
            if clock() >= due:
                visible = await recheck()
                if visible is None:
                    break
                reader.visible = visible
                due = clock() + RECHECK
            if not reader.is_outdated:
                await response.write(_BEAT)
                continue
            reader.is_outdated = False
            await response.write(_CHANGED)
            # Changes during the pause become one event.
            await asyncio.sleep(PAUSE + SHARE * len(self._readers))
        await response.write(_END)
