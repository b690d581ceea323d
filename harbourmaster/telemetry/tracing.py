"""Tracers by the settings of a process, and by a collector that may change at run time.

The packages of tracing are an optional extra, which is imported only if tracing is enabled.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.span_model import CAPACITY, QUEUE_FULL, SHUTDOWN
from harbourmaster.telemetry.text import endpoint_url, reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harbourmaster.telemetry.span_model import PhaseSpan
    from harbourmaster.telemetry.spans import Tracer

SERVICE: Final = "lifecycle-operator"
"""Keptn's name in traces, for its dashboards."""

_SETTING: Final = "--tracing-endpoint"
_COLLECTOR: Final = "OTelCollectorUrl"
_TRACES: Final = "/v1/traces"
_HOST_AND_PORT: Final = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}|\[[0-9A-Fa-f:.]+\]:[0-9]{1,5}")


class TracingError(Exception):
    """Tracing is not possible; the text is one line for the user."""


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
        tracer: Tracer | None = None
        try:
            tracer = await asyncio.to_thread(create)
        except Exception as error:  # noqa: BLE001 - phases continue without spans
            self._log.warning("phase tracing disabled", error=reason(error))
        if url != self._url:
            # The collector has changed meanwhile.
            if tracer is not None:
                self._close(tracer)
            return
        self._current, self._connecting = tracer, None
        while self._waiting:
            span = self._waiting.popleft()
            if (recorder := tracer or self._tracer) is not None:
                recorder.record_phase(span)
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


def create_tracer(
    endpoint: str,
    ratio: float,
    resource: Mapping[str, str],
    on_outcome: Callable[[str, int], None],
) -> Tracer:
    """Create a tracer that sends to ``endpoint`` by OTLP over HTTP. Raises TracingError.

    ``resource`` has the attributes of this process. ``on_outcome`` gets an outcome of
    ``SPAN_OUTCOMES`` and a number of spans; it is called in a thread.
    """
    _check(endpoint, _SETTING)
    return _create(endpoint, ratio, resource, on_outcome)


def check_collector(url: str) -> None:
    """Raise TracingError unless ``url`` is a valid OTelCollectorUrl of a KeptnConfig."""
    if not _HOST_AND_PORT.fullmatch(url):
        _check(url, _COLLECTOR)


def create_collector_tracer(
    url: str, resource: Mapping[str, str], on_outcome: Callable[[str, int], None]
) -> Tracer:
    """Create a tracer for the collector of a KeptnConfig (keptn-spec 5.4). Raises TracingError.

    HOST:PORT means OTLP over gRPC without TLS, as in Keptn; a URL means OTLP over HTTP, at the
    standard path if it has none. Call this in a thread: the imports are slow.
    """
    check_collector(url)
    if not (_HOST_AND_PORT.fullmatch(url) or urlsplit(url).path.strip("/")):
        url = url.rstrip("/") + _TRACES
    return _create(url, 1.0, resource, on_outcome)


def _create(
    endpoint: str,
    ratio: float,
    resource: Mapping[str, str],
    on_outcome: Callable[[str, int], None],
) -> Tracer:
    try:
        from harbourmaster.telemetry.spans import (  # noqa: PLC0415 - 12 MB, 0.2 s
            GrpcSender,
            HttpSender,
            Tracer,
        )

        is_grpc = _HOST_AND_PORT.fullmatch(endpoint) is not None
        sender = GrpcSender(endpoint) if is_grpc else HttpSender(endpoint)
    except ImportError as error:
        raise TracingError(
            f"tracing needs packages that are not installed ({error.name}): "
            "pip install 'harbourmaster[tracing]'"
        ) from None
    return Tracer(sender, resource, ratio, on_outcome)


def _check(endpoint: str, name: str) -> None:
    url = endpoint_url(endpoint)
    if url is None:
        raise TracingError(
            f"{name}: invalid URL, expected one like http://collector:4318/v1/traces"
        )
    if "@" in url.netloc or url.query or url.fragment:
        # The process list would show them.
        raise TracingError(
            f"{name}: the URL must not have credentials, a query or a fragment: "
            "set headers in $OTEL_EXPORTER_OTLP_HEADERS, as NAME=VALUE"
        )
