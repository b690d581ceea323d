"""Plain requests are answered while they arrive, without a task, stream or request object for each.

A request is plain if nothing in its head needs a rule of HTTP beyond its length: a POST of JSON
over HTTP/1.1 with known headers, each once. Whatever else comes, and every refusal, is left to
aiohttp, which reads the same bytes; so this may be strict, and is never lenient.
"""

from __future__ import annotations

import re
from asyncio import TimerHandle
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp.helpers import rfc822_formatted_time
from msgspec import Struct

from harbourmaster.serving.limits import Admission, Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.serving.http_connection import HttpConnection


_GATHERING: Final = 0.05
"""Seconds that the parts of a plain request may take; then aiohttp reads on, by its own rules."""
MAX_BODY: Final = 64 * 1024
"""Bytes of a body that is collected here; aiohttp reads larger ones."""

_MAX_HEAD: Final = 8190
_END: Final = b"\r\n\r\n"
_HEAD: Final = re.compile(
    rb"POST (/[A-Za-z0-9/-]*)(?:\?[A-Za-z0-9=&._-]*)? HTTP/1\.1\r\n"
    rb"((?:[A-Za-z-]+: [!-~](?:[ -~]*[!-~])?\r\n)+)\r\n"
)
_JSON: Final = b"application/json"
_KNOWN: Final = frozenset(
    (
        b"accept",
        b"accept-encoding",
        b"baggage",
        b"content-length",
        b"content-type",
        b"host",
        b"traceparent",
        b"tracestate",
        b"user-agent",
    )
)
_LENGTH: Final = re.compile(rb"[0-9]{1,5}")
_ANSWER: Final = (
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\nDate: %s\r\n\r\n"
)


class PlainHead(Struct, frozen=True, gc=False):
    """The head of a plain request."""

    path: bytes
    start: int
    """Offset of the body in the request, in bytes."""
    end: int
    """Offset of the end of the body."""
    fields: Mapping[bytes, bytes]
    """Headers, by their names in lower case."""


DirectAnswer: TypeAlias = "Callable[[HttpConnection, PlainHead, bytes], bytes | None]"
"""Answers a body with JSON; None leaves the request to the path's ordinary handler."""


class Direct(Struct, frozen=True):
    """The direct answers of a site by path, and the limits within which they are given."""

    answers: Mapping[bytes, DirectAnswer]
    limits: Limits


def parse_plain_head(data: bytes) -> PlainHead | None:
    """Parse the head at the start of ``data``; returns None if it is incomplete or not plain."""
    end = data.find(_END, 0, _MAX_HEAD)
    return None if end < 0 else _parse_head(data[: end + len(_END)])


# A client repeats its head for each body of the same length.
@lru_cache(maxsize=64)
def _parse_head(head: bytes) -> PlainHead | None:
    match = _HEAD.fullmatch(head)
    if match is None:
        return None
    path, headers = match.groups()
    lines = headers.splitlines()
    fields = {}
    for line in lines:
        name, _, value = line.partition(b": ")
        fields[name.lower()] = value
    length = fields.get(b"content-length", b"")
    if (
        len(fields) != len(lines)
        or not fields.keys() <= _KNOWN
        or b"host" not in fields
        or fields.get(b"content-type") != _JSON
        or _LENGTH.fullmatch(length) is None
        or int(length) > MAX_BODY
    ):
        return None
    return PlainHead(path, len(head), len(head) + int(length), fields)


def format_answer(body: bytes) -> bytes:
    """Format the answer 200 with a JSON body, on a connection that stays open."""
    return (_ANSWER % (len(body), rfc822_formatted_time())).encode("ascii") + body


class _Gathering(Struct):
    """The parts of a plain request that have arrived, and its share of the limits."""

    head: PlainHead
    admission: Admission
    timer: TimerHandle
    data: bytes = b""


class DirectReader:
    """Answers the plain requests of a connection, and hands any other to aiohttp.

    The connection is handed over for good, unless aiohttp got exactly one whole request and
    answered it.
    """

    __slots__ = ("_connection", "_direct", "_gathering", "_idle_timer", "_is_active", "_is_lent")

    def __init__(self, connection: HttpConnection, direct: Direct) -> None:
        self._connection = connection
        self._direct = direct
        self._is_active = True
        self._is_lent = False
        """Whether aiohttp has one whole request, after whose answer it has nothing left."""
        self._gathering: _Gathering | None = None
        self._idle_timer: TimerHandle | None = None

    def read(self, data: bytes) -> bytes | None:
        """Answer a request; returns the bytes that aiohttp has to read, or None if there are none.

        After the first of them, all that follows is for aiohttp.
        """
        if not self._is_active:
            if data:
                # It may belong to a second request.
                self._is_lent = False
            return data
        part = data
        gathering = self._gathering
        if gathering is None:
            head = parse_plain_head(data)
        else:
            data = gathering.data + part
            head = gathering.head
        connection, direct = self._connection, self._direct
        transport = connection.transport
        if (
            head is not None
            and transport is not None
            and not connection.writing_paused
            and not connection.is_draining
            and head.path in direct.answers
            and len(data) <= head.end
            and direct.limits.has_room()
            and (len(data) == head.end or connection.share.hold_request(len(part)))
        ):
            self._restart_keepalive()
            if len(data) < head.end:
                self._gather(head, data)
                return None
            answer = direct.answers[head.path](connection, head, data[head.start :])
            if answer is not None:
                self._end_gathering()
                transport.write(format_answer(answer))
                return None
        self._end_gathering()
        self._is_lent = head is not None and len(data) == head.end
        self._is_active = not data
        return data or None

    def take_back(self) -> None:
        """Read again after an answer of aiohttp, if it has nothing left to read."""
        self._is_active = self._is_lent

    def close(self) -> None:
        """Stop the timers, and release the share of a request that is incomplete."""
        self._end_gathering()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def _gather(self, head: PlainHead, data: bytes) -> None:
        gathering = self._gathering
        if gathering is None:
            connection = self._connection
            timer = connection.loop.call_later(_GATHERING, self._hand_over)
            admission = self._direct.limits.admit(connection.share)
            gathering = _Gathering(head, admission, timer)
            admission.__enter__()
            self._gathering = gathering
        gathering.data = data

    def _end_gathering(self) -> None:
        if self._gathering is not None:
            self._gathering.timer.cancel()
            self._gathering.admission.__exit__(None, None, None)
            self._gathering = None
            self._connection.share.release_request()

    def _hand_over(self) -> None:
        if self._gathering is not None:
            data = self._gathering.data
            self._end_gathering()
            self._is_active = False
            self._connection.parse(data)

    def _restart_keepalive(self) -> None:
        connection = self._connection
        connection.stop_timers()
        connection.share.since = connection.loop.time()
        if self._idle_timer is None:
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        connection = self._connection
        end = connection.share.since + connection.timeouts.keepalive
        self._idle_timer = None
        if self._is_active and connection.loop.time() >= end:
            connection.force_close()
        elif self._is_active:
            self._idle_timer = connection.loop.call_at(end, self._close_if_idle)
