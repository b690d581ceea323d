"""Tells open pages that they are outdated, at most once a second each.

An event says nothing but that something changed that its reader may see; the page is then fetched
as by anybody, with all that is asked before.
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
"""Streams at the same time, of one replica."""
MOST_OF_ONE: Final = 8
"""Of one user."""
PAUSE: Final = 1.0
"""Seconds between two events."""
SHARE: Final = 0.1
"""Seconds that are added for each reader: a page takes time of the leader, too."""
HEARTBEAT: Final = 15.0
RECHECK: Final = 30.0
"""Seconds until it is asked again whether the reader may still read."""
_CHANGED: Final = b"event: changed\ndata: 1\n\n"
_BEAT: Final = b": \n\n"
_END: Final = b"event: end\ndata: 1\n\n"


class TooManyStreamsError(Exception):
    """No more streams are served now."""


class StreamReader:
    """One open page: of which kinds it shows what."""

    def __init__(self, kinds: tuple[Resource, ...], visible: Visibility) -> None:
        self.kinds = kinds
        self.visible = visible
        self.woken = asyncio.Event()
        self.is_outdated = False
        self.is_ended = False

    def end(self) -> None:
        """Let the stream end soon."""
        self.is_ended = True
        self.woken.set()

    def note(self, kind: Resource, namespaces: frozenset[str]) -> None:
        """Something of a kind has changed in these namespaces."""
        if kind in self.kinds:
            scope = self.visible.of(kind)
            if scope.everywhere or not scope.namespaces.isdisjoint(namespaces):
                self.is_outdated = True
                self.woken.set()


class Hub:
    """All readers."""

    def __init__(self) -> None:
        self._readers: dict[StreamReader, str] = {}
        self._is_closing = False

    def changed(self, kind: Resource, keys: frozenset[str]) -> None:
        """Tell whom it concerns."""
        if not self._readers:
            return
        namespaces = namespaces_of(keys)
        for reader in self._readers:
            reader.note(kind, namespaces)

    def check(self, user: str) -> None:
        """Raises TooManyStreamsError where the user can have no more.

        If there are too many, the user with most of them loses one to a user with fewer.
        """
        counts = Counter(self._readers.values())
        is_full = len(self._readers) >= MOST and counts[user] >= max(counts.values())
        if is_full or counts[user] >= MOST_OF_ONE:
            raise TooManyStreamsError

    def _make_room(self) -> None:
        ((most, _),) = Counter(self._readers.values()).most_common(1)
        oldest = next(reader for reader, user in self._readers.items() if user == most)
        del self._readers[oldest]
        oldest.end()

    def close(self) -> None:
        """End all streams, so that nobody waits for them."""
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

        ``recheck`` gives what may be seen now; None for nothing any more.
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
                await self._tell(response, reader, recheck)
            return response
        finally:
            self._readers.pop(reader, None)

    async def _tell(
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
            # What comes meanwhile is one event.
            await asyncio.sleep(PAUSE + SHARE * len(self._readers))
        await response.write(_END)
