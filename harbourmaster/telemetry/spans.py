"""Spans by OpenTelemetry, created when the work has ended. Needs the extra ``tracing``.

No global provider, propagator or exit handler is installed. OpenTelemetry's batch span processor
queues and sends. Added here: counts of outcomes, one log line per ``LOG_INTERVAL`` while a
collector fails, and a bounded shutdown.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from http import HTTPStatus
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import (
    OTLPSpanExporter as HttpSpanExporter,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    format_trace_id,
    set_span_in_context,
)

from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.span_model import (
    CAPACITY,
    EXPORTED,
    FAILED,
    QUEUE_FULL,
    SAMPLED,
    SHUTDOWN,
    Caller,
    parse_traceparent,
)
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from harbourmaster.telemetry.span_model import PhaseSpan

BATCH: Final = 512
DELAY: Final = 1.0
"""Seconds between two batches that are not full."""
FLUSH_TIMEOUT: Final = 2.0
"""Seconds at shutdown to send the remaining spans."""
LOG_INTERVAL: Final = 60.0
"""Seconds between two log lines about a collector that fails."""
SEND_TIMEOUT: Final = 5.0
"""Seconds for one batch, including retries."""


class Tracer:
    """Creates spans for one process: sampled as by the caller, else with the rate ``ratio``."""

    def __init__(
        self,
        sender: Sender,
        resource: Mapping[str, str],
        ratio: float,
        on_outcome: Callable[[str, int], None],
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        silence_libraries()
        self._batches = SpanBatches(sender, on_outcome)
        # Unsampled work never gets here: a span that is not recorded has a cost too.
        self._ids = _PresetIds()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(dict(resource)),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        provider.add_span_processor(self._batches)
        self._provider = provider
        self._tracer = provider.get_tracer("harbourmaster", resource.get("service.version"))
        self._ratio = ratio
        self._chance = chance

    def sample(
        self, traceparent: str | None = None, tracestate: str | None = None
    ) -> Context | None:
        """Return the parent context for ``record``; None if the work is not sampled.

        A malformed traceparent is ignored.
        """
        caller = parse_traceparent(traceparent, tracestate)
        if caller is None:
            return Context() if self._chance() < self._ratio else None
        return _child_of(caller) if caller.is_sampled else None

    def record(
        self,
        context: Context,
        name: str,
        period: tuple[float, float],
        attributes: Mapping[str, str | int | Sequence[str]],
        *,
        is_server: bool = False,
        error: str = "",
    ) -> str:
        """Create a span from begin to end of ``period``, Unix times in seconds.

        ``error`` is the status message of a failure. Returns the trace ID, 32 hexadecimal digits.
        """
        kind = SpanKind.SERVER if is_server else SpanKind.INTERNAL
        begin, end = map(_nanoseconds, period)
        span = self._tracer.start_span(name, context, kind, attributes, start_time=begin)
        if error:
            span.set_status(StatusCode.ERROR, error)
        span.end(end)
        return format_trace_id(span.get_span_context().trace_id)

    def record_phase(self, phase: PhaseSpan) -> None:
        """Create a span with the given IDs."""
        context = Context()
        if phase.parent:
            context = _child_of(Caller(phase.trace, phase.parent, SAMPLED, ""))
        self._ids.next = (phase.trace, phase.span)
        span = self._provider.get_tracer(phase.scope).start_span(
            phase.name,
            context,
            SpanKind.CONSUMER,
            phase.attributes,
            links=[link for parent in phase.links if (link := _link(parent)) is not None],
            start_time=_nanoseconds(phase.begin),
        )
        for name, at in phase.events:
            span.add_event(name, timestamp=_nanoseconds(at))
        if phase.error:
            span.set_status(StatusCode.ERROR, phase.error)
        else:
            span.set_status(StatusCode.OK)
        span.end(_nanoseconds(phase.end))

    async def close(self) -> None:
        """Send the remaining spans, within a time limit."""
        await self._batches.close()


class _PresetIds(RandomIdGenerator):
    """Generates the IDs in ``next`` once, and random ones otherwise."""

    def __init__(self) -> None:
        self.next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.next is None else self.next[0]

    def generate_span_id(self) -> int:
        ids, self.next = self.next, None
        return super().generate_span_id() if ids is None else ids[1]


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


def _child_of(caller: Caller) -> Context:
    parent = SpanContext(
        caller.trace_id,
        caller.span_id,
        is_remote=True,
        trace_flags=TraceFlags(caller.flags),
        trace_state=TraceState.from_header([caller.state]) if caller.state else None,
    )
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _link(traceparent: str) -> Link | None:
    caller = parse_traceparent(traceparent.strip())
    if caller is None:
        return None
    context = SpanContext(caller.trace_id, caller.span_id, True, TraceFlags(caller.flags))
    return Link(context, {"opentracing.ref_type": "follows-from"})


class Sender(Protocol):
    """Sends one batch at a time; called in the exporter's thread, which it may block."""

    def send(self, batch: Sequence[ReadableSpan], /) -> str | None:
        """Send a batch; returns None on success, else the error in a few words."""

    def close(self) -> None:
        """Release the connection."""


class SpanBatches(BatchSpanProcessor):
    """Takes ended spans from one event loop without blocking it.

    ``on_outcome`` gets an outcome of ``SPAN_OUTCOMES`` and a number of spans, in any thread. The
    processor's threads are daemons, so a sender that hangs does not keep the process alive.
    """

    def __init__(
        self, sender: Sender, on_outcome: Callable[[str, int], None], *, delay: float = DELAY
    ) -> None:
        self._exporter = _CountingExporter(sender, on_outcome)
        # Explicit, so that no variable of the environment changes them.
        super().__init__(
            self._exporter,
            max_queue_size=CAPACITY,
            schedule_delay_millis=delay * 1000,
            max_export_batch_size=BATCH,
            export_timeout_millis=SEND_TIMEOUT * 1000,
        )

    def on_end(self, span: ReadableSpan) -> None:
        """Queue a span, or count it as lost. Never blocks."""
        # The SDK would drop the oldest span, and report that in a log only.
        if self._exporter.reserve():
            super().on_end(span)

    async def close(self) -> None:
        """Send the remaining spans, for ``FLUSH_TIMEOUT`` seconds at most."""
        # shutdown() waits up to 30 s for a sender that hangs.
        worker = threading.Thread(target=self.shutdown, name="span-shutdown", daemon=True)
        worker.start()
        await asyncio.to_thread(worker.join, FLUSH_TIMEOUT)
        self._exporter.abandon()


class _CountingExporter(SpanExporter):
    """Sends batches, counts the outcome of each span and logs failures."""

    def __init__(self, sender: Sender, on_outcome: Callable[[str, int], None]) -> None:
        self._sender = sender
        self._on_outcome = on_outcome
        self._lock = threading.Lock()
        self._pending = 0
        self._abandoned = threading.Event()
        self._lost = 0
        self._logged_at = -LOG_INTERVAL
        self._logged_failure = False
        self._log = get_logger("tracing")

    def reserve(self) -> bool:
        """Take a place for a span; without one, returns False and counts the span as lost."""
        with self._lock:
            if not self._abandoned.is_set() and self._pending < CAPACITY:
                self._pending += 1
                return True
        self._on_outcome(SHUTDOWN if self._abandoned.is_set() else QUEUE_FULL, 1)
        return False

    def abandon(self) -> None:
        """Stop sending, and count what was not sent as lost."""
        with self._lock:
            self._abandoned.set()
            lost, self._pending = self._pending, 0
        if lost:
            self._on_outcome(SHUTDOWN, lost)
            self._log.warning("spans lost at shutdown", spans=lost)

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._abandoned.is_set():
            return SpanExportResult.FAILURE
        try:
            error = self._sender.send(spans)
        except Exception as raised:  # noqa: BLE001 - an error of the exporter must not stop the thread
            error = f"{type(raised).__name__}: {raised}"
        with self._lock:
            if self._abandoned.is_set():
                return SpanExportResult.FAILURE
            self._pending -= len(spans)
        self._record(error, len(spans))
        return SpanExportResult.SUCCESS if error is None else SpanExportResult.FAILURE

    def shutdown(self) -> None:
        self._sender.close()

    def _record(self, error: str | None, spans: int) -> None:
        self._on_outcome(EXPORTED if error is None else FAILED, spans)
        if error is None:
            if self._logged_failure:
                self._log.info("span export recovered", lost=self._lost)
                self._logged_failure, self._lost = False, 0
            return
        self._lost += spans
        now = monotonic()
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at, self._logged_failure = now, True
            self._log.warning("span export failed", error=error, spans=self._lost)


class HttpSender:
    """Sends OTLP over HTTP; headers and CA come from the usual OTEL_EXPORTER_OTLP_* variables."""

    def __init__(self, endpoint: str, timeout: float = SEND_TIMEOUT) -> None:
        self._session = _Session()
        self._exporter = HttpSpanExporter(endpoint, timeout=timeout, session=self._session)

    def send(self, batch: Sequence[ReadableSpan], /) -> str | None:
        """Send a batch; returns None on success, else the error."""
        self._session.error = "not sent"
        result = self._exporter.export(batch)
        # The exporter does not follow redirects, but reports them as success.
        return self._session.error or (None if result is SpanExportResult.SUCCESS else "failed")

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class GrpcSender:
    """Sends OTLP over gRPC without TLS to ``address``, HOST:PORT, as Keptn does (keptn-spec 5.4).

    Headers come from OTEL_EXPORTER_OTLP_*.
    """

    def __init__(self, address: str, timeout: float = SEND_TIMEOUT) -> None:
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import (  # noqa: PLC0415 - 20 MB
            OTLPSpanExporter as GrpcSpanExporter,
        )

        self._exporter = GrpcSpanExporter(
            address,
            insecure=True,
            timeout=timeout,
            # No proxies from the environment.
            channel_options=(("grpc.enable_http_proxy", "0"),),
        )

    def send(self, batch: Sequence[ReadableSpan], /) -> str | None:
        """Send a batch; returns None on success, else a fixed text."""
        succeeded = self._exporter.export(batch) is SpanExportResult.SUCCESS
        return None if succeeded else "the collector did not accept the spans"

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()


class _Session(requests.Session):
    """Keeps the error of the last request, which the exporter only logs."""

    def __init__(self) -> None:
        super().__init__()
        self.error = ""
        # No proxies, and no credentials from ~/.netrc.
        self.trust_env = False

    def request(self, *arguments: Any, **options: Any) -> requests.Response:  # noqa: ANN401
        try:
            response = super().request(*arguments, **options)
        except Exception as error:
            self.error = _describe_cause(error)
            raise
        is_success = HTTPStatus.OK <= response.status_code < HTTPStatus.MULTIPLE_CHOICES
        self.error = "" if is_success else f"{response.status_code} {response.reason}"
        return response


def silence_libraries() -> None:
    """Stop the log lines of OpenTelemetry and urllib3.

    They log each failed batch and invalid headers; what users need is logged above.
    """
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
    logging.getLogger("urllib3").setLevel(logging.WARNING)


def _describe_cause(error: BaseException) -> str:
    # The outer exceptions repeat the URL.
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    return reason(error)
