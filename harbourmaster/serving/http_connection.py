"""aiohttp's HTTP/1.1 protocol with what it lacks towards hostile clients.

Time-outs for request heads and for clients that don't read, no traceback and no banner in any
answer, ``Connection: close`` on every answer while draining, and direct answers to plain requests.
Timers are set only where bytes are missing.

aiohttp has no public way to learn what its parser has found. ``test_direct`` names what is read
here of its private state, and setup.cfg pins its minor version.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web
from aiohttp.web_protocol import RequestHandler, _ErrInfo
from msgspec import Struct

from harbourmaster.serving.direct import PlainHead, json_answer, plain_head
from harbourmaster.serving.limits import Admission
from harbourmaster.serving.responses import NamelessResponse, Refusal
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from aiohttp.web_request import BaseRequest

    from harbourmaster.serving.connections import Connections
    from harbourmaster.serving.direct import Direct
    from harbourmaster.serving.limits import Limits

_GATHERING: Final = 0.05
"""Seconds that the parts of a plain request may take; then aiohttp reads on, by its own rules."""
_READ_BUFFER: Final = 64 * 1024
"""Bytes of a body that wait unread before the connection is paused; the protocol holds twice it."""
_MAX_HEADERS: Final = 64
_MAX_HEADER: Final = 8190
"""Bytes of one header, and of the request line."""


class Timeouts(Struct, frozen=True, kw_only=True):
    """How long a client may take; all in seconds."""

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


class _Gathering(Struct):
    """The parts of a plain request that are here, and its share of the limits."""

    head: PlainHead
    admission: Admission
    timer: asyncio.TimerHandle
    data: bytes = b""


class HttpConnection(RequestHandler):
    """One connection.

    A plain request is answered directly (see ``direct``). Any other is handed to aiohttp, and the
    connection with it: for good, unless aiohttp got exactly one whole request and answered it.
    """

    __slots__ = (
        "_active_at",
        "_client_name",
        "_connections",
        "_direct",
        "_gathering",
        "_head_timer",
        "_idle_timer",
        "_in_head",
        "_is_counted",
        "_is_direct",
        "_is_lent",
        "_received",
        "_socket",
        "_timeouts",
        "_unread",
        "_unread_timer",
        "address",
        "has_too_much",
        "held",
        "since",
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
        self._connections = connections
        self._timeouts = timeouts
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._is_counted = False
        self._client_name: str | None = None
        self._direct = direct
        self._is_direct = direct is not None
        self._is_lent = False
        """Whether aiohttp has one whole request, after whose answer it has nothing left."""
        self._gathering: _Gathering | None = None
        self.since = 0.0
        """When it became idle or began a request, on the loop's clock."""
        self._socket: asyncio.Transport | None = None
        self.address = ""
        self.held = 0
        """Bytes that count as buffered, by whatever reason."""
        self._received = 0
        self._unread = 0
        self.has_too_much = False
        """Whether there was no room for all of a request."""
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def client_name(self) -> str:
        """Common name of the client's certificate; empty without one. Read once a connection."""
        if self._client_name is None:
            self._client_name = _common_name(self.transport)
        return self._client_name

    @property
    def is_idle(self) -> bool:
        """Whether nothing of a request or an answer is here."""
        return not self.held and self._current_request is None and not self._messages

    @property
    def is_answering(self) -> bool:
        """Whether a request is whole and the client takes its answer."""
        if self._current_request is not None:
            return self._current_request.content.is_eof() and not self._unread
        return bool(self._messages) and self._messages[0][1].is_eof()

    def accepted(self, transport: asyncio.Transport) -> None:
        """Note the connection's socket, before any TLS."""
        self._socket = transport
        peer = transport.get_extra_info("peername")
        self.address = peer[0] if peer else ""
        self.since = self._loop.time()
        self._connections.accept(self)

    def ended(self) -> None:
        """The socket is closed."""
        self._connections.remove(self)
        self._socket = None

    def evict(self) -> None:
        """End it for the sake of others: in order if it is idle."""
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
            self.accepted(transport)  # type: ignore[arg-type] # a stream's
        # aiohttp counts the time between two requests from the connection on.
        self.keep_alive(True)
        self._connections.opened()
        self._is_counted = True
        self._head_timer = self._loop.call_later(self._timeouts.first_request, self.force_close)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop all timers."""
        self._stop_head_timer()
        self._stop_unread_timer()
        self._end_gathering()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._is_counted:
            self._is_counted = False
            self._connections.closed()
        self.ended()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Answer a plain request directly; aiohttp parses whatever else comes."""
        if self._is_direct:
            data = self._answered_directly(data)
            if not data:
                return
            self._is_direct = False
        elif data:
            # It may belong to a second request.
            self._is_lent = False
        self._parse(data)

    def _answered_directly(self, data: bytes) -> bytes:
        """Answer a request; returns what is for aiohttp."""
        part = data
        gathering = self._gathering
        if gathering is None:
            head = plain_head(data)
        else:
            data = gathering.data + part
            head = gathering.head
        direct, transport = self._direct, self.transport
        if (
            head is not None
            and direct is not None
            and transport is not None
            and not self.writing_paused
            and not self._connections.draining
            and head.path in direct.answers
            and len(data) <= head.end
            and direct.limits.has_room()
            and (len(data) == head.end or self._hold(len(part)))
        ):
            self._keep_alive_from_now()
            if len(data) < head.end:
                self._gather(head, data, direct.limits)
                return b""
            answer = direct.answers[head.path](self, head, data[head.start :])
            if answer is not None:
                self._end_gathering()
                transport.write(json_answer(answer))
                return b""
        self._end_gathering()
        self._is_lent = head is not None and len(data) == head.end
        return data

    def _gather(self, head: PlainHead, data: bytes, limits: Limits) -> None:
        """Wait for the rest of a body."""
        gathering = self._gathering
        if gathering is None:
            timer = self._loop.call_later(_GATHERING, self._stop_gathering)
            gathering = _Gathering(head, limits.admit(self), timer)
            gathering.admission.__enter__()
            self._gathering = gathering
        gathering.data = data

    def _end_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.timer.cancel()
            self._gathering.admission.__exit__(None, None, None)
            self._gathering = None
            self._let_go()

    def _stop_gathering(self) -> None:
        if self._gathering is not None:
            data = self._gathering.data
            self._end_gathering()
            self._is_direct = False
            self._parse(data)

    def _keep_alive_from_now(self) -> None:
        self._stop_head_timer()
        # aiohttp's own timer knows of its own answers only.
        self.keep_alive(True)
        self.since = self._loop.time()
        if self._idle_timer is None:
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        end = self.since + self._timeouts.keepalive
        self._idle_timer = None
        if self._is_direct and self._loop.time() >= end:
            self.force_close()
        elif self._is_direct:
            self._idle_timer = self._loop.call_at(end, self._close_if_idle)

    def _parse(self, data: bytes) -> None:
        """Let aiohttp parse; an incomplete head gets its time."""
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
            self._head_timer = self._loop.call_later(self._timeouts.head, self.force_close)
        # What is left of a refused body is dropped, so it does not count.
        is_kept = self._in_head or self._messages or self._current_request is not None
        if is_kept and not self.has_too_much and not self._hold(len(data)):
            # At once, else all others of this turn were refused as well.
            self._let_go()
            self.has_too_much = True
            if self._in_head:
                self.force_close()

    def _hold(self, size: int) -> bool:
        """Count bytes of a request; False if there is no room for them."""
        if not self._received:
            self.since = self._loop.time()
        if not self._connections.hold(self, size):
            return False
        self._received += size
        return True

    def _let_go(self) -> None:
        self._connections.release(self, self._received)
        self._received = 0
        self.has_too_much = False

    def _count_unread(self) -> None:
        if self._unread_timer is not None and self.transport is not None:
            self._unread = self.transport.get_write_buffer_size()
            if not self._connections.hold(self, self._unread):
                self._unread = 0
                self._abort()

    def pause_writing(self) -> None:
        """Start the time for the client to read what it was sent."""
        super().pause_writing()
        self._unread_timer = self._loop.call_later(self._timeouts.unread, self._abort)
        # Not before all of the answer is written.
        self._loop.call_soon(self._count_unread)

    def resume_writing(self) -> None:
        """The client reads on."""
        self._stop_unread_timer()
        self._connections.release(self, self._unread)
        self._unread = 0
        super().resume_writing()

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Every answer of aiohttp's passes here, so draining takes connections down here."""
        if self._connections.draining and isinstance(resp, web.StreamResponse):
            resp.force_close()
        result = await super().finish_response(request, resp, start_time)
        self._is_direct = self._is_lent and bool(result[0].keep_alive)
        self._let_go()
        self.since = self._loop.time()
        return result

    def handle_error(
        self,
        request: BaseRequest,
        status: int = HTTPStatus.INTERNAL_SERVER_ERROR,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - may quote the request
    ) -> web.StreamResponse:
        """Answer what a handler or the parser raised; details go to the log only."""
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
    protocol = connection_of(request)
    if protocol is None or protocol.client_name != common_name:
        raise Refusal(403, "403: the common name of the client certificate is not allowed")


def connection_of(request: BaseRequest) -> HttpConnection | None:
    """The connection of a request; None for one that is not ours."""
    protocol = request.protocol
    return protocol if isinstance(protocol, HttpConnection) else None


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
