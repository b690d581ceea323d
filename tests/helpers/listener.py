"""A receiver of CloudEvents, good or bad, that reads them by the SDK."""

from __future__ import annotations

from aiohttp import web
from cloudevents.core.bindings.http import HTTPMessage, from_binary_event

from helpers.patience import Changes


class Listener:
    """``answer`` is what each request gets: a status, a Response, or a coroutine function."""

    def __init__(self, answer=202, *, tls=None):
        self.answer = answer
        self.requests = []
        self._tls = tls
        self._changes = Changes()
        self._runner = None

    async def __aenter__(self):
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._take)
        self._runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        scheme = "http" if self._tls is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._runner.addresses[0][1]}/events"
        return self

    async def __aexit__(self, *_):
        await self._runner.cleanup()

    async def _take(self, request):
        self.requests.append((request, await request.read()))
        self._changes.tell()
        answer = self.answer
        if callable(answer):
            answer = await answer(request)
        return web.Response(status=answer) if isinstance(answer, int) else answer

    async def until(self, count):
        """Wait for so many requests; return all events."""
        await self._changes.until(lambda: len(self.requests) >= count, patience=None)
        return self.events

    @property
    def events(self):
        """All events that came, as the SDK understands them."""
        return [
            from_binary_event(
                HTTPMessage({name.lower(): value for name, value in request.headers.items()}, body)
            )
            for request, body in self.requests
        ]
