"""Spans with ids that are known beforehand, to a collector that may change while we run."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.span_queue import CAPACITY, QUEUE_FULL, SHUTDOWN
from harbourmaster.telemetry.text import reason
from harbourmaster.telemetry.tracing import TracingError, check_collector, create_collector_tracer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.telemetry.spans import Tracer

SERVICE: Final = "lifecycle-operator"
"""Keptn's name in traces, for its dashboards."""


class PhaseSpan(Struct, frozen=True, gc=False):
    """A span that has ended. Times are Unix seconds; ``parent`` is 0 for the first of a trace."""

    scope: str
    name: str
    trace: int
    span: int
    parent: int
    begin: float
    end: float
    attributes: dict[str, str]
    links: tuple[str, ...] = ()
    """As traceparents; a malformed one is left out."""
    events: tuple[tuple[str, float], ...] = ()
    error: str = ""
    """Why it failed; empty for a success."""


class PhaseTracer:
    """Sends to what ``collector`` gives at that moment, else by the process's own ``tracer``.

    ``on_outcome`` gets what became of how many spans, in any thread. For one event loop.
    """

    def __init__(
        self,
        collector: Callable[[], str],
        resource: Mapping[str, str],
        on_outcome: Callable[[str, int], None],
        tracer: Tracer | None = None,
    ) -> None:
        self._collector = collector
        self._resource = {**resource, "service.name": SERVICE}
        self._on_outcome = on_outcome
        self._own = tracer
        self._url = ""
        self._dialled: Tracer | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._waiting: deque[PhaseSpan] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._log = get_logger("tracing")

    @property
    def is_on(self) -> bool:
        """Whether spans are sent anywhere; follows the collector."""
        if (url := self._collector()) != self._url:
            self._point(url)
        return (self._dialled or self._dialling or self._own) is not None

    def record(self, span: PhaseSpan) -> None:
        """Have a span sent. Never waits; nothing where there is no collector."""
        if not self.is_on:
            return
        if self._dialling is None:
            (self._dialled or self._own).record_phase(span)  # type: ignore[union-attr]
        elif len(self._waiting) < CAPACITY:
            self._waiting.append(span)
        else:
            self._on_outcome(QUEUE_FULL, 1)

    async def close(self) -> None:
        """Send what waits, for a bounded time. The process's own tracer stays open."""
        if self._dialling is not None:
            await asyncio.wait([self._dialling])
        self._hang_up()
        if self._closing:
            await asyncio.wait(self._closing)
        self._own = None
        self._url = self._collector()

    def _point(self, url: str) -> None:
        self._url = url
        self._hang_up()
        if not url:
            return
        try:
            check_collector(url)
        except TracingError as error:
            self._log.warning("phases are not traced", error=str(error))
            return
        self._dialling = asyncio.get_running_loop().create_task(self._dial(url))

    async def _dial(self, url: str) -> None:
        create = partial(create_collector_tracer, url, self._resource, self._on_outcome)
        found: Tracer | None = None
        try:
            found = await asyncio.to_thread(create)
        except Exception as error:  # noqa: BLE001 - phases go on without spans
            self._log.warning("phases are not traced", error=reason(error))
        if url != self._url:
            # Another one was named meanwhile.
            if found is not None:
                self._close(found)
            return
        self._dialled, self._dialling = found, None
        while self._waiting:
            span = self._waiting.popleft()
            if (tracer := found or self._own) is not None:
                tracer.record_phase(span)
            else:
                self._on_outcome(SHUTDOWN, 1)

    def _hang_up(self) -> None:
        if self._dialled is not None:
            self._close(self._dialled)
        self._dialled = self._dialling = None

    def _close(self, tracer: Tracer) -> None:
        task = asyncio.get_running_loop().create_task(tracer.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
