"""The plain HTTP port: alive, ready, metrics. It has no limits, so it answers under overload."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import hdrs, web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from harbourmaster.serving.readiness import Readiness


def health_app(readiness: Readiness, registry: CollectorRegistry) -> web.Application:
    """``/healthz`` (also ``/healthz/webhook``, as kupid has it), ``/readyz`` and ``/metrics``."""

    async def alive(_request: web.Request) -> web.Response:
        # That this runs at all is the answer.
        return web.Response(text="ok\n")

    async def ready(_request: web.Request) -> web.Response:
        failing = await readiness.failing()
        if not failing:
            return web.Response(text="ok\n")
        lines = "".join(f"{name}: {reason}\n" for name, reason in sorted(failing.items()))
        return web.Response(status=503, text=lines)

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(registry), headers={hdrs.CONTENT_TYPE: CONTENT_TYPE_LATEST}
        )

    app = web.Application()
    app.router.add_get("/healthz", alive, allow_head=False)
    app.router.add_get("/healthz/webhook", alive, allow_head=False)
    app.router.add_get("/readyz", ready, allow_head=False)
    app.router.add_get("/metrics", metrics, allow_head=False)
    return app
