"""A refused request: one status, one line of text, given before any work is done for it."""

from __future__ import annotations

from aiohttp import hdrs, web


class Refusal(Exception):  # noqa: N818 - it is an answer, and named after it
    """Raised by a handler, answered by the protocol of our sites; no middleware is needed.

    ``text`` is one line: what is wrong, where, what to do. ``close`` ends the connection after the
    answer; it stays open only where the rest of the request may well be read and thrown away.
    """

    def __init__(
        self,
        status: int,
        text: str,
        *,
        retry_after: int | None = None,
        allow: str | None = None,
        close: bool = True,
    ) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.retry_after = retry_after
        self.allow = allow
        self.close = close

    def response(self) -> web.Response:
        """The answer, as plain text."""
        response = NamelessResponse(status=self.status, text=f"{self.text}\n")
        if self.retry_after is not None:
            response.headers[hdrs.RETRY_AFTER] = str(self.retry_after)
        if self.allow is not None:
            response.headers[hdrs.ALLOW] = self.allow
        if self.close:
            response.force_close()
        return response


def json_response(body: bytes) -> web.Response:
    """Create a response 200 with a JSON body."""
    return NamelessResponse(body=body, content_type="application/json")


class NamelessResponse(web.Response):
    """For requests that never reached an application, whose signals would take the banner off."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.pop(hdrs.SERVER, None)
