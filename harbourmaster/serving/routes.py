"""Exact paths to handlers, for POST only: all that an admission server routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from aiohttp import hdrs

from harbourmaster.serving.responses import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

    from harbourmaster.serving.direct import Direct

Handler: TypeAlias = "Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]"


class Routes:
    """A handler that dispatches POST requests by path, and what is answered directly of them."""

    def __init__(self, routes: Mapping[str, Handler], direct: Direct | None = None) -> None:
        self._routes = routes
        self.direct = direct

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer. Raises Refusal: 404 for another path, 405 for a method."""
        handler = self._routes.get(request.path)
        if handler is None:
            raise Refusal(404, f"404: not found; POST to {' or '.join(self._routes)}")
        if request.method != hdrs.METH_POST:
            raise Refusal(405, "405: only POST is allowed", allow=hdrs.METH_POST)
        return await handler(request)
