"""Reading a request's JSON body within limits of type, size and time.

What the headers show to be wrong is refused before the body is read. Every refusal here closes the
connection, except the 429 of the limits.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from aiohttp import hdrs, web

from harbourmaster.api.durations import parse_duration
from harbourmaster.serving.http_connection import check_client, share_of
from harbourmaster.serving.responses import Refusal

if TYPE_CHECKING:
    from aiohttp import StreamReader

    from harbourmaster.serving.limits import Admission, Limits
    from harbourmaster.serving.settings import ServerSettings

_JSON: Final = "application/json"
_CHARSET: Final = frozenset(("charset=utf-8", 'charset="utf-8"'))
CAP: Final = 30.0
"""Seconds that any request has at most: the longest time-out a webhook can be registered with."""
RESERVE: Final = 0.5
"""Seconds kept back for the answer's way to the API server."""
SMALLEST_SHARE: Final = 0.1
"""Part of the time-out that always remains, for time-outs near or under the reserve."""


def admit(request: web.BaseRequest, settings: ServerSettings, limits: Limits) -> Admission:
    """Take a place for one request; raises Refusal: 403 for another client than the settings'."""
    if settings.client_cn is not None:
        check_client(request, settings.client_cn)
    return limits.admit(share_of(request))


async def read_in_time(
    request: web.BaseRequest, settings: ServerSettings, admission: Admission, *, limit: int
) -> tuple[bytes, float]:
    """Return the body, and the time of the event loop until when it must be answered.

    Raises Refusal, as ``read_body`` does.
    """
    now = asyncio.get_running_loop().time()
    deadline = now + time_budget(request.rel_url.raw_query_string)
    last = min(deadline, now + settings.body_timeout_seconds)
    body = await read_body(request, limit=limit, deadline=last, admission=admission)
    return body, deadline


async def read_body(
    request: web.BaseRequest, *, limit: int, deadline: float, admission: Admission
) -> bytes:
    """Read the whole body: ``limit`` bytes at most, until ``deadline`` on the loop's clock.

    Raises Refusal: 415 for another type or an encoding, 413 over the limit, 429 without a share of
    the bytes in flight, 408 when it is late, 400 when its framing is broken.
    """
    headers = request.headers
    content_type = headers.get(hdrs.CONTENT_TYPE)
    if content_type != _JSON:
        _check_type(content_type)
    if hdrs.CONTENT_ENCODING in headers:
        _check_encoding(headers[hdrs.CONTENT_ENCODING], hdrs.CONTENT_ENCODING, "identity")
    content = request.content
    length = request.content_length
    if length is None:
        if hdrs.TRANSFER_ENCODING in headers:
            _check_encoding(headers[hdrs.TRANSFER_ENCODING], hdrs.TRANSFER_ENCODING, "chunked")
    elif length > limit:
        raise _too_large(limit)
    elif content.is_eof():
        admission.check_bytes()
        return content.read_nowait()
    if hdrs.EXPECT in headers:
        # Only now: a body that is refused is not asked for.
        await _ask_for_body(request)
    return await _read(content, limit, deadline, admission)


async def _read(content: StreamReader, limit: int, deadline: float, admission: Admission) -> bytes:
    """Collect what arrives; only that counts as in flight, whatever was announced."""
    chunks = []
    size = 0
    timer = asyncio.get_running_loop().call_at(deadline, _expire, content)
    try:
        while chunk := await content.readany():
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            admission.check_bytes()
            chunks.append(chunk)
    except web.RequestPayloadError:
        raise Refusal(400, "400: the body's framing is broken; the connection is closed") from None
    except TimeoutError:
        raise Refusal(
            408, "408: the body did not arrive in time; send it faster or raise the timeout"
        ) from None
    finally:
        timer.cancel()
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def _ask_for_body(request: web.BaseRequest) -> None:
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    # The answer proper has not begun.
    request.writer.output_size = 0


def _expire(content: StreamReader) -> None:
    # Wakes the reader without cancelling its task; aiohttp takes this type for "stop lingering".
    content.set_exception(TimeoutError())


def _check_type(value: str | None) -> None:
    media_type, *parameters = (part.strip() for part in (value or "").lower().split(";"))
    if media_type != _JSON or any(parameter not in _CHARSET for parameter in parameters):
        raise Refusal(415, "415: the Content-Type must be application/json, in UTF-8")


def _check_encoding(value: str, header: str, expected: str) -> None:
    if value.strip().lower() != expected:
        raise Refusal(415, f"415: {header} must be {expected} or absent; send the body as it is")


def _too_large(limit: int) -> Refusal:
    return Refusal(413, f"413: the body may have {limit} bytes at most; send a smaller object")


@lru_cache(maxsize=64)
def time_budget(query: str) -> float:
    """Seconds that may pass before the answer to a request with this query string goes out.

    Its ``timeout``, ``CAP`` at most, less the reserve; a tenth of it at least. A time-out that
    can't be read, or is not positive, counts as ``CAP``.
    """
    try:
        values = parse_qs(query, max_num_fields=10).get("timeout")
        timeout = parse_duration(values[0]) if values else CAP
    except ValueError:
        timeout = CAP
    allowed = min(timeout, CAP) if timeout > 0 else CAP
    return max(allowed - RESERVE, allowed * SMALLEST_SHARE)
