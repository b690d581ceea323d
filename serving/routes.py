"""Exact paths to handlers, for POST only: all that an admission server routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from aiohttp import hdrs

from harbourmaster.serving.refusals import Refusal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from aiohttp import web

Handler: TypeAlias = "Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]"


def post_routes(routes: Mapping[str, Handler]) -> Handler:
    """A handler that dispatches by path. Raises Refusal: 404 for another path, 405 for a method."""

    async def dispatch(request: web.BaseRequest) -> web.StreamResponse:
        handler = routes.get(request.path)
        if handler is None:
            raise Refusal(404, f"404: nothing is here; POST to {' or '.join(routes)}")
        if request.method != hdrs.METH_POST:
            raise Refusal(405, "405: only POST is answered here", allow=hdrs.METH_POST)
        return await handler(request)

    return dispatch
