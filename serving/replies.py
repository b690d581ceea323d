"""The answer that is given ten thousand times a second: 200 with a JSON body, in one block.

aiohttp builds a response's head from a case-insensitive multi-dict, field by field; here it is the
same bytes each time but for two numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from aiohttp import HttpVersion11, web
from aiohttp.helpers import rfc822_formatted_time

from harbourmaster.serving.refusals import NamelessResponse

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.web_request import BaseRequest

_HEAD: Final = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_CLOSE: Final = "Connection: close\r\n"


class JsonReply(web.StreamResponse):
    """200 with a JSON body for an HTTP/1.1 request."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self._block = body
        self._writer: AbstractStreamWriter | None = None

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        """Settle whether the connection stays, and put the head before the body."""
        if self._keep_alive is None:
            self._keep_alive = request.keep_alive
        self._writer = request.writer
        close = "" if self._keep_alive else _CLOSE
        head = (
            f"{_HEAD}Content-Length: {len(self._block)}\r\n"
            f"Date: {rfc822_formatted_time()}\r\n{close}\r\n"
        )
        self._block = head.encode("ascii") + self._block
        return self._writer

    async def write_eof(self, data: bytes = b"") -> None:
        """Write all of it at once."""
        if self._writer is not None and not self._eof_sent:
            self._eof_sent = True
            await self._writer.write_eof(self._block + data)


def json_reply(request: BaseRequest, body: bytes) -> web.StreamResponse:
    """200 with ``body``, in the form that the request's HTTP version allows."""
    if request.version == HttpVersion11:
        return JsonReply(body)
    return NamelessResponse(body=body, content_type="application/json")
