"""Whether the process can serve requests: named conditions, each with the reason why it fails."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from aiohttp import hdrs, web
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from harbourmaster.serving.http_connection import HttpConnection
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from harbourmaster.serving.site import Site


Probe: TypeAlias = Callable[[], Awaitable[str | None]]
"""Returns why the probe fails, in one line, or None."""

PROBE_TIMEOUT: Final = 2.0
CACHED: Final = 1.0
"""Seconds for which the results of probes are reused, so that many requests run few probes."""
_PAUSE: Final = 0.1


class Readiness:
    """Ready while no condition and no probe fails."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._probes: dict[str, Probe] = {}
        self._probed: dict[str, str] = {}
        self._probed_at = -CACHED
        self._probing = asyncio.Lock()
        self._starting = asyncio.Lock()
        self._was_ready = False

    def set(self, name: str, reason: str | None) -> None:
        """Set the reason why the condition ``name`` fails; None if it does not."""
        if reason is None:
            self._reasons.pop(name, None)
        else:
            self._reasons[name] = reason

    def add_probe(self, name: str, probe: Probe) -> None:
        """Add a condition that is checked on request."""
        self._probes[name] = probe
        self._probed_at = -CACHED

    async def until_ready(self) -> None:
        """Wait until nothing has failed for the first time; one caller checks for all."""
        async with self._starting:
            while not self._was_ready and await self.failing():
                # Probes report no changes, so check again, without the cached result.
                await asyncio.sleep(_PAUSE)
                self._probed_at = -CACHED
            self._was_ready = True

    async def failing(self) -> dict[str, str]:
        """Return the reason of each condition that fails, by name; empty when ready."""
        async with self._probing:
            now = asyncio.get_running_loop().time()
            if now - self._probed_at >= CACHED:
                results = {name: await probe() for name, probe in self._probes.items()}
                self._probed = {name: reason for name, reason in results.items() if reason}
                self._probed_at = now
        return self._probed | self._reasons


def tls_probe(
    site: Site, serving_der: Callable[[], bytes], *, timeout: float = PROBE_TIMEOUT
) -> Probe:
    """Create a probe that compares the certificate of a TLS handshake with the current one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Byte for byte the same certificate is a stronger check than any name or chain.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    # In TLS 1.3, the handshake completes although the probe has no client certificate.
    context.minimum_version = ssl.TLSVersion.TLSv1_3

    async def probe() -> str | None:
        try:
            async with asyncio.timeout(timeout):
                _, writer = await asyncio.open_connection(site.loopback, site.port, ssl=context)
        except TimeoutError:
            return f"{site.url} did not complete a handshake within {timeout:g} s"
        except OSError as error:
            return f"{site.url} does not serve TLS: {reason(error)}"
        presented = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        # No request was sent, so there is no response to wait for.
        writer.transport.abort()
        if presented != serving_der():
            return f"{site.url} does not present the current certificate"
        return None

    return probe


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

    async def close(request: web.Request, response: web.StreamResponse) -> None:
        # Of a client that sends thousands of requests at once, the first is answered.
        if isinstance(request.protocol, HttpConnection) and request.protocol.has_more:
            response.force_close()

    app = web.Application()
    app.on_response_prepare.append(close)
    app.router.add_get("/healthz", alive, allow_head=False)
    app.router.add_get("/healthz/webhook", alive, allow_head=False)
    app.router.add_get("/startupz", started, allow_head=False)
    app.router.add_get("/readyz", ready, allow_head=False)
    app.router.add_get("/metrics", metrics, allow_head=False)
    return app
