"""Plain requests, answered while they arrive: no task, no stream, no request object for each.

A request is plain if nothing in its head needs a rule of HTTP beyond its length: a POST of JSON
over HTTP/1.1 with known headers, each once. Whatever else comes, and every refusal, is left to
aiohttp, which reads the same bytes; so this may be strict, and is never lenient.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp.helpers import rfc822_formatted_time
from msgspec import Struct

from harbourmaster.serving.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.serving.http_connection import HttpConnection


MAX_BODY: Final = 64 * 1024
"""Bytes of a body that is collected here; aiohttp reads larger ones."""

_MAX_HEAD: Final = 8190
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
    """Where the body begins, in bytes from the start of the request."""
    end: int
    """Where the body ends."""
    fields: dict[bytes, bytes]
    """Headers, by their names in lower case."""


DirectAnswer: TypeAlias = "Callable[[HttpConnection, PlainHead, bytes], bytes | None]"
"""Answers a body with JSON; None leaves the request to the path's ordinary handler."""


class Direct(Struct, frozen=True):
    """What a site answers directly, by path, and within which limits."""

    answers: Mapping[bytes, DirectAnswer]
    limits: Limits


def plain_head(data: bytes) -> PlainHead | None:
    """Read the head that ``data`` begins with; None if it is not whole, or not plain."""
    match = _HEAD.match(data, 0, _MAX_HEAD)
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
    start = match.end()
    return PlainHead(path, start, start + int(length), fields)


def json_answer(body: bytes) -> bytes:
    """200 with a JSON body, on a connection that stays open."""
    return (_ANSWER % (len(body), rfc822_formatted_time())).encode("ascii") + body
