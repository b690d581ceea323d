"""The HTTP connections to peers that are not trusted: little to parse in each turn of the loop.

aiohttp parses all that a read returns at once, and uvloop reads up to 32 times in a turn. A peer
that goes on sending interim responses, headers or tiny chunks keeps the loop from everything else,
and answers to no request fill the memory of an idle connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import aiohttp
from aiohttp.client_proto import ResponseHandler

if TYPE_CHECKING:
    from collections.abc import Callable

PIECE: Final = 16 * 1024
"""Bytes of a connection that are parsed at once."""
PIECES: Final = 4
"""Pieces of all connections that are parsed in a turn of the loop."""
MAX_FRAMING: Final = 64 * 1024
"""Bytes of a response besides its body: heads, interim responses, sizes of chunks, trailers.

A body may add as many bytes as it has itself.
"""
_UPGRADED: Final = HTTPStatus.SWITCHING_PROTOCOLS
MAX_UNPARSED: Final = 32 * 1024 * 1024
"""Bytes of all connections that wait to be parsed, from which on a connection may add no more."""


class PeerLimitError(aiohttp.ClientError):
    """A peer exceeds a limit of its connection; the text says which."""


class _Turns:
    """Has connections parsed in turn, a piece of each."""

    def __init__(self) -> None:
        self._waiting: deque[PeerProtocol] = deque()
        self._is_due = False
        self.unparsed = 0

    def add(self, protocol: PeerProtocol) -> None:
        self._waiting.append(protocol)
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._run)

    def _run(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(min(PIECES, len(self._waiting))):
            loop.call_soon(self._waiting.popleft().parse_piece)
        self._is_due = bool(self._waiting)
        if self._is_due:
            loop.call_soon(self._run)


_turns: Final[WeakKeyDictionary[asyncio.AbstractEventLoop, _Turns]] = WeakKeyDictionary()


class PeerProtocol(ResponseHandler):
    """A connection that parses what it receives in turns, and ends at the first excess."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._turns = _turns.setdefault(loop, _Turns())
        self._unparsed = bytearray()
        self._is_waiting = self._is_answered = self._is_lost = False
        self._size = 0

    @property
    def should_close(self) -> bool:
        """Whether the connection cannot be reused, also because of bytes after the response."""
        return bool(self._unparsed) or super().should_close

    def set_response_params(self, **params: Any) -> None:  # noqa: ANN401 - of aiohttp
        """Begin a request."""
        self._size, self._is_answered = 0, False
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Keep what was received for the connection's turn; parse on if there is nothing new."""
        if not data:
            super().data_received(data)
            return
        self._pause_transport_reading()
        self._unparsed += data
        self._turns.unparsed += len(data)
        if self._turns.unparsed > MAX_UNPARSED:
            self._refuse(f"all peers together sent more than {MAX_UNPARSED} bytes at once")
        self._wait_for_turn()

    def parse_piece(self) -> None:
        """Parse the next bytes, and wait for the next turn or for more."""
        self._is_waiting = False
        piece = bytes(self._unparsed[:PIECE])
        if not piece:
            return
        self._discard(len(piece))
        self._size += len(piece)
        super().data_received(piece)
        body = 0 if self._payload is None else self._payload.total_bytes
        if self._size - 2 * body > MAX_FRAMING:
            self._refuse(f"more than {MAX_FRAMING} bytes of headers, interim responses or chunks")
        if not self._reading_paused and not self._buffer_paused:
            self._resume_transport_reading()

    def feed_data(self, data: Any, size: int = 0) -> None:  # noqa: ANN401 - of aiohttp
        """Take the head of a response; interim responses are dropped."""
        status = data[0].code
        if HTTPStatus.CONTINUE <= status < HTTPStatus.OK and status != _UPGRADED:
            return
        if self._is_answered:
            self._refuse("more than one response to a request")
            return
        self._is_answered = True
        super().feed_data(data, size)

    def pause_reading(self) -> None:
        """Stop parsing until the body is read, unless all that is to come is here."""
        if not self._is_lost:
            super().pause_reading()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Parse what was received before the end."""
        self._is_lost = True
        while self._unparsed:
            self.parse_piece()
        # What the parser kept while it was paused, without which a chunked body has no end.
        super().data_received(b"")
        super().connection_lost(exc)

    def _resume_transport_reading(self) -> None:
        if self._unparsed:
            self._wait_for_turn()
        else:
            super()._resume_transport_reading()

    def _wait_for_turn(self) -> None:
        if self._unparsed and not self._is_waiting:
            self._is_waiting = True
            self._turns.add(self)

    def _discard(self, count: int) -> None:
        del self._unparsed[:count]
        self._turns.unparsed -= count

    def _refuse(self, text: str) -> None:
        """End the connection with an error."""
        self._discard(len(self._unparsed))
        error = PeerLimitError(text)
        payload, self._payload = self._payload, None
        if payload is not None:
            payload.set_exception(error)
        self.set_exception(error)
        if self.transport is not None:
            self.transport.abort()


def limit_peers(connector: aiohttp.BaseConnector, loop: asyncio.AbstractEventLoop) -> None:
    """Limit what the servers of a connector can send."""
    make: Callable[..., ResponseHandler] = PeerProtocol
    connector._factory = partial(make, loop=loop)  # noqa: SLF001 - there is no other switch
