"""The plain HTTP port for probes and metrics. It has no limits, so it answers under overload."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

from aiohttp import hdrs, web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

    from prometheus_client import CollectorRegistry

    from harbourmaster.serving.readiness import Readiness


STARTUP_WAIT: Final = 10.0
"""Seconds that a startup probe waits; if a start takes longer, the readiness probe says why."""
_MAX_WAITING: Final = 16
"""Startup probes that wait; the kubelet sends one at a time."""
_REST: Final = 4
"""The pause after a rendering, in multiples of its duration."""


class SharedPage:
    """A page that is rendered once for all callers, in at most a fifth of the loop's time."""

    def __init__(self, render: Callable[[], bytes]) -> None:
        self._render = render
        self._next = 0.0
        self._rendering: asyncio.Task[bytes] | None = None

    async def get(self) -> bytes:
        """Return the page, rendered after this call."""
        if self._rendering is None:
            self._rendering = asyncio.create_task(self._render_later())
        return await asyncio.shield(self._rendering)

    async def _render_later(self) -> bytes:
        clock = asyncio.get_running_loop().time
        await asyncio.sleep(self._next - clock())
        # From here on, callers need a page that is younger.
        self._rendering = None
        began = clock()
        try:
            return self._render()
        finally:
            self._next = clock() + (clock() - began) * _REST


def health_app(readiness: Readiness, registry: CollectorRegistry) -> web.Application:
    """``/healthz`` (also ``/healthz/webhook``, as kupid has it), ``/readyz`` and ``/metrics``.

    ``/startupz`` answers when the process has been ready once, or after STARTUP_WAIT seconds.
    """
    waiting = asyncio.Semaphore(_MAX_WAITING)

    async def alive(_request: web.Request) -> web.Response:
        # A process that hangs does not answer.
        return web.Response(text="ok\n")

    async def started(_request: web.Request) -> web.Response:
        if not waiting.locked():
            with contextlib.suppress(TimeoutError):
                async with waiting, asyncio.timeout(STARTUP_WAIT):
                    await readiness.until_ready()
        return web.Response(text="ok\n")

    async def ready(_request: web.Request) -> web.Response:
        failing = await readiness.failing()
        if not failing:
            return web.Response(text="ok\n")
        lines = "".join(f"{name}: {reason}\n" for name, reason in sorted(failing.items()))
        return web.Response(status=503, text=lines)

    page = SharedPage(lambda: generate_latest(registry))

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=await page.get(), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST})

    app = web.Application()
    app.router.add_get("/healthz", alive, allow_head=False)
    app.router.add_get("/healthz/webhook", alive, allow_head=False)
    app.router.add_get("/startupz", started, allow_head=False)
    app.router.add_get("/readyz", ready, allow_head=False)
    app.router.add_get("/metrics", metrics, allow_head=False)
    return app
