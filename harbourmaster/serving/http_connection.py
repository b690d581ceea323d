"""aiohttp's HTTP/1.1 protocol with what it lacks towards hostile clients.

Time-outs for request heads and for clients that don't read, no traceback and no banner in any
answer, and ``Connection: close`` on every answer while draining. Timers are set only where bytes
are missing.

aiohttp has no public way to learn what its parser has read. ``test_direct`` names the private state
that is used here, and setup.cfg pins its minor version.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from msgspec import Struct

from harbourmaster.serving.connections import ConnectionShare
from harbourmaster.serving.direct import DirectReader
from harbourmaster.serving.responses import NamelessResponse, Refusal
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    import asyncio

    from aiohttp.web_request import BaseRequest

    from harbourmaster.serving.connections import Connections
    from harbourmaster.serving.direct import Direct

_READ_BUFFER: Final = 64 * 1024
"""Bytes of a body that wait unread before the connection is paused; the protocol holds twice it."""
_MAX_HEADERS: Final = 64
_MAX_HEADER: Final = 8190
"""Bytes of one header, and of the request line."""


class Timeouts(Struct, frozen=True, kw_only=True):
    """Time limits of a client, in seconds."""

    handshake: float = 5.0
    """TLS handshake."""
    first_request: float = 60.0
    """From the connection to the first byte of its first request."""
    head: float = 5.0
    """From the first byte of a request to the end of its headers."""
    keepalive: float = 3630.0
    """Between two requests. Longer than any client's own, else a request could meet the close."""
    unread: float = 10.0
    """For a client that does not read its answer."""
    linger: float = 2.0
    """For what is left of a refused body to arrive, so that the client gets to read why."""
    end_of_tls: float = 2.0
    """For a client to answer the end of TLS."""
    shutdown: float = 10.0
    """For requests still running when the server stops; above the longest admission time-out."""


class BrokenBodyError(web.RequestPayloadError, TimeoutError):
    """The framing of a body can't be understood.

    A TimeoutError is what ends aiohttp's wait for the rest of a body without a line in the log.
    """


class HttpConnection(RequestHandler):
    """A connection, whose plain requests its ``DirectReader`` answers, and aiohttp all others."""

    __slots__ = (
        "_client_name",
        "_connections",
        "_head_timer",
        "_in_head",
        "_is_counted",
        "_reader",
        "_socket",
        "_unread_timer",
        "loop",
        "share",
        "timeouts",
    )

    def __init__(
        self,
        server: web.Server,
        connections: Connections,
        timeouts: Timeouts,
        loop: asyncio.AbstractEventLoop,
        direct: Direct | None = None,
    ) -> None:
        super().__init__(
            server,
            loop=loop,
            keepalive_timeout=timeouts.keepalive,
            lingering_time=timeouts.linger,
            access_log=None,  # type: ignore[arg-type] # None is aiohttp's own way to have no log
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
            max_headers=_MAX_HEADERS,
            read_bufsize=_READ_BUFFER,
            auto_decompress=False,
        )
        self.loop = loop
        self.timeouts = timeouts
        self.share: ConnectionShare
        """The bytes that the connection buffers; set once it is accepted."""
        self._connections = connections
        self._reader = None if direct is None else DirectReader(self, direct)
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._is_counted = False
        self._client_name: str | None = None
        self._socket: asyncio.Transport | None = None

    @property
    def client_name(self) -> str:
        """Common name of the client's certificate; empty without a certificate."""
        if self._client_name is None:
            self._client_name = _common_name(self.transport)
        return self._client_name

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request or an answer is here."""
        return not self.share.held and self._current_request is None and not self._messages

    @property
    def has_more(self) -> bool:
        """Whether further requests are here besides the one that is being answered."""
        return bool(self._messages)

    @property
    def is_answering(self) -> bool:
        """Whether a request is whole and the client takes its answer."""
        if self._current_request is not None:
            return self._current_request.content.is_eof() and not self.share.has_unread
        return bool(self._messages) and self._messages[0][1].is_eof()

    @property
    def is_draining(self) -> bool:
        """Whether every answer is the last of its connection."""
        return self._connections.is_draining

    def accept(self, transport: asyncio.Transport) -> None:
        """Count the connection of a socket, before any TLS."""
        self._socket = transport
        peer = transport.get_extra_info("peername")
        self.share = ConnectionShare(self._connections, self, peer[0] if peer else "")
        self._connections.accept(self.share)

    def end(self) -> None:
        """Stop counting the connection, whose socket is closed."""
        self._connections.remove(self.share)
        self._socket = None

    def evict(self) -> None:
        """End the connection for others: in order if it is idle."""
        if self._socket is None:
            return
        is_unread = self._socket.get_write_buffer_size()
        if self.transport is not None and self.is_idle and not is_unread:
            self.transport.close()
            # Without the client's time to answer the end of TLS.
            self._socket.close()
        else:
            self._socket.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the time for a first request."""
        super().connection_made(transport)
        if self._socket is None:
            self.accept(transport)  # type: ignore[arg-type] # a stream's
        # aiohttp counts the time between two requests from the connection on.
        self.keep_alive(True)
        self._connections.count_opened()
        self._is_counted = True
        self._head_timer = self.loop.call_later(self.timeouts.first_request, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop all timers."""
        self._stop_head_timer()
        self._stop_unread_timer()
        if self._reader is not None:
            self._reader.close()
        if self._is_counted:
            self._is_counted = False
            self._connections.count_closed()
        self.end()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Answer a plain request directly; aiohttp parses all others."""
        if self._reader is None:
            self.parse(data)
        elif (rest := self._reader.read(data)) is not None:
            self.parse(rest)

    def stop_timers(self) -> None:
        """Stop the timers that aiohttp stops for its own answers only."""
        self._stop_head_timer()
        self.keep_alive(True)

    def parse(self, data: bytes) -> None:
        """Let aiohttp parse, and start the time for an incomplete head."""
        complete = self._request_count
        super().data_received(data)
        if self._request_count != complete:
            if self._head_timer is not None:
                self._stop_head_timer()
            if self._current_request is not None:
                self._end_broken_body(self._current_request)
        elif data and not self._in_head and self._awaits_head():
            self._stop_head_timer()
            self._in_head = True
            self._head_timer = self.loop.call_later(self.timeouts.head, self.force_close)
        # What is left of a refused body is dropped, so it does not count.
        is_kept = self._in_head or self._messages or self._current_request is not None
        share = self.share
        if is_kept and not share.has_too_much and not share.hold_request(len(data)):
            # At once, else all others of this turn were refused as well.
            share.release_request()
            share.has_too_much = True
            if self._in_head:
                self.force_close()

    def _count_unread(self) -> None:
        if self._unread_timer is not None and self.transport is not None:
            size = self.transport.get_write_buffer_size()
            if not self.share.hold_answer(size):
                self._abort()

    def pause_writing(self) -> None:
        """Start the time for the client to read what it was sent."""
        super().pause_writing()
        self._unread_timer = self.loop.call_later(self.timeouts.unread, self._abort)
        # Not before all of the answer is written.
        self.loop.call_soon(self._count_unread)

    def resume_writing(self) -> None:
        """Stop the time, because the client reads on."""
        self._stop_unread_timer()
        self.share.release_answer()
        super().resume_writing()

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer of aiohttp, which is the last one while draining."""
        if self.is_draining and isinstance(resp, web.StreamResponse):
            resp.force_close()
        result = await super().finish_response(request, resp, start_time)
        if self._reader is not None and result[0].keep_alive:
            self._reader.take_back()
        self.share.release_request()
        self.share.since = self.loop.time()
        return result

    def handle_error(
        self,
        request: BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - may quote the request
    ) -> web.StreamResponse:
        """Answer an exception of a handler or the parser; details go to the log only."""
        if isinstance(exc, Refusal):
            return exc.response()
        if status == HTTPStatus.BAD_REQUEST:
            # Anyone can send garbage, so it is not logged at the usual level.
            get_logger("serving").debug(
                "request not parsed", client=request.remote, error=type(exc).__name__
            )
            text = "400: this is not a valid HTTP/1.1 request; the connection is closed\n"
        else:
            get_logger("serving").error("request failed", path=request.path, exc_info=exc)
            text = f"{int(status)}: internal error; see the log of the server\n"
        if request.writer.output_size > 0:
            raise ConnectionError("the answer had begun when its handler failed")
        response = NamelessResponse(status=status, text=text)
        response.force_close()
        # aiohttp answers what it can't parse as HTTP/1.0, where it leaves this to be understood.
        response.headers[hdrs.CONNECTION] = "close"
        return response

    def _awaits_head(self) -> bool:
        # Before the first request the task that waits has perhaps not started yet.
        return self._request_count == 0 or (self._waiter is not None and not self._waiter.done())

    def _end_broken_body(self, request: BaseRequest) -> None:
        # aiohttp queues a parser's error as the next message, while this body would never end.
        is_broken = bool(self._messages) and isinstance(self._messages[-1][0], _ErrInfo)
        if is_broken and not request.content.is_eof():
            request.content.set_exception(BrokenBodyError())

    def _stop_head_timer(self) -> None:
        self._in_head = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def _abort(self) -> None:
        # An orderly close would wait for the same client to read.
        if self.transport is not None:
            self.transport.abort()


def check_client(request: BaseRequest, common_name: str) -> None:
    """Let only the holder of this name pass; call it before the body is read.

    Raises Refusal (403). The certificate is looked at once for each connection.
    """
    connection = request.protocol
    if not isinstance(connection, HttpConnection) or connection.client_name != common_name:
        raise Refusal(403, "403: the common name of the client certificate is not allowed")


def share_of(request: BaseRequest) -> ConnectionShare | None:
    """Return the share of the connection of a request; None if another server accepted it."""
    connection = request.protocol
    return connection.share if isinstance(connection, HttpConnection) else None


async def remove_server_header(_request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler ``on_response_prepare``: answers do not name our software."""
    response.headers.pop(hdrs.SERVER, None)


def _common_name(transport: asyncio.BaseTransport | None) -> str:
    certificate = None if transport is None else transport.get_extra_info("peercert")
    if not certificate:
        return ""
    names = [
        value
        for relative_name in certificate["subject"]
        for key, value in relative_name
        if key == "commonName"
    ]
    # With several it would be anyone's choice which one counts.
    return names[0] if len(names) == 1 else ""
