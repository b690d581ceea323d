"""Spans with given IDs, for a collector that may change at run time."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason
from harbourmaster.telemetry.tracing import (
    CAPACITY,
    QUEUE_FULL,
    SHUTDOWN,
    TracingError,
    check_collector,
    create_collector_tracer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.telemetry.spans import Tracer

SERVICE: Final = "lifecycle-operator"
"""Keptn's name in traces, for its dashboards."""


class PhaseSpan(Struct, frozen=True, gc=False):
    """A span that has ended. Times are Unix seconds; ``parent`` is 0 for a root span."""

    scope: str
    name: str
    trace: int
    span: int
    parent: int
    begin: float
    end: float
    attributes: dict[str, str]
    links: tuple[str, ...] = ()
    """Traceparents; a malformed one is skipped."""
    events: tuple[tuple[str, float], ...] = ()
    error: str = ""
    """The error message; empty on success."""


class PhaseTracer:
    """Sends to the collector whose URL ``collector`` returns, else by the process's ``tracer``.

    ``on_outcome`` gets an outcome and a number of spans, in any thread. For one event loop.
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
        self._tracer = tracer
        self._url = ""
        self._current: Tracer | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._waiting: deque[PhaseSpan] = deque()
        self._closing: set[asyncio.Task[None]] = set()
        self._log = get_logger("tracing")

    @property
    def is_on(self) -> bool:
        """Whether spans are sent; connects if the collector has changed."""
        if (url := self._collector()) != self._url:
            self._switch(url)
        return (self._current or self._connecting or self._tracer) is not None

    def record(self, span: PhaseSpan) -> None:
        """Queue a span. Never blocks; does nothing without a collector."""
        if not self.is_on:
            return
        if self._connecting is None:
            (self._current or self._tracer).record_phase(span)  # type: ignore[union-attr]
        elif len(self._waiting) < CAPACITY:
            self._waiting.append(span)
        else:
            self._on_outcome(QUEUE_FULL, 1)

    async def close(self) -> None:
        """Send the remaining spans, within a time limit. The process's own tracer stays open."""
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        self._disconnect()
        if self._closing:
            await asyncio.wait(self._closing)
        self._tracer = None
        self._url = self._collector()

    def _switch(self, url: str) -> None:
        self._url = url
        self._disconnect()
        if not url:
            return
        try:
            check_collector(url)
        except TracingError as error:
            self._log.warning("phase tracing disabled", error=str(error))
            return
        self._connecting = asyncio.get_running_loop().create_task(self._connect(url))

    async def _connect(self, url: str) -> None:
        create = partial(create_collector_tracer, url, self._resource, self._on_outcome)
        found: Tracer | None = None
        try:
            found = await asyncio.to_thread(create)
        except Exception as error:  # noqa: BLE001 - phases continue without spans
            self._log.warning("phase tracing disabled", error=reason(error))
        if url != self._url:
            # The collector has changed meanwhile.
            if found is not None:
                self._close(found)
            return
        self._current, self._connecting = found, None
        while self._waiting:
            span = self._waiting.popleft()
            if (tracer := found or self._tracer) is not None:
                tracer.record_phase(span)
            else:
                self._on_outcome(SHUTDOWN, 1)

    def _disconnect(self) -> None:
        if self._current is not None:
            self._close(self._current)
        self._current = self._connecting = None

    def _close(self, tracer: Tracer) -> None:
        task = asyncio.get_running_loop().create_task(tracer.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
