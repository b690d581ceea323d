"""Spans by OpenTelemetry, made by hand when the work is over. Needs the extra ``tracing``.

Nothing is installed globally: no provider, no propagator, no handler at the exit.
"""

from __future__ import annotations

import logging
import random
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import requests
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExportResult
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

from harbourmaster.telemetry.span_queue import SpanQueue
from harbourmaster.telemetry.text import reason
from harbourmaster.telemetry.trace_context import SAMPLED, Caller, caller_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from opentelemetry.sdk.trace import ReadableSpan

    from harbourmaster.telemetry.phase_spans import PhaseSpan
    from harbourmaster.telemetry.span_queue import Sender

SEND_TIMEOUT: Final = 5.0
"""Seconds for one batch, its repetitions included."""
_NANOSECONDS: Final = 1_000_000_000


class Tracer:
    """Makes spans for one process: as the caller samples, else for ``ratio`` of the work."""

    def __init__(
        self,
        sender: Sender[ReadableSpan],
        resource: Mapping[str, str],
        ratio: float,
        on_outcome: Callable[[str, int], None],
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        _mute()
        self._queue = SpanQueue(sender, on_outcome)
        # What isn't sampled never gets so far, for a span that isn't recorded costs as well.
        self._ids = _GivenIds()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=Resource.create(dict(resource)),
            shutdown_on_exit=False,
            id_generator=self._ids,
        )
        provider.add_span_processor(_Enqueue(self._queue))
        self._provider = provider
        self._tracer = provider.get_tracer("harbourmaster", resource.get("service.version"))
        self._ratio = ratio
        self._chance = chance

    def sampled(
        self, traceparent: str | None = None, tracestate: str | None = None
    ) -> Context | None:
        """Where the span of some work belongs, for ``record``; None where there is to be none.

        A malformed traceparent counts as none.
        """
        caller = caller_from(traceparent, tracestate)
        if caller is None:
            return Context() if self._chance() < self._ratio else None
        return _below(caller) if caller.is_sampled else None

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
        """Make a span of what took place in ``period``, Unix times in seconds.

        ``error`` says why it failed. Returns the trace's id as 32 hexadecimal digits.
        """
        kind = SpanKind.SERVER if is_server else SpanKind.INTERNAL
        begin, end = (int(at * _NANOSECONDS) for at in period)
        span = self._tracer.start_span(name, context, kind, attributes, start_time=begin)
        if error:
            span.set_status(StatusCode.ERROR, error)
        span.end(end)
        return format_trace_id(span.get_span_context().trace_id)

    def record_phase(self, phase: PhaseSpan) -> None:
        """Make a span with the ids that it brings."""
        context = Context()
        if phase.parent:
            context = _below(Caller(phase.trace, phase.parent, SAMPLED, ""))
        self._ids.next = (phase.trace, phase.span)
        span = self._provider.get_tracer(phase.scope).start_span(
            phase.name,
            context,
            SpanKind.CONSUMER,
            phase.attributes,
            links=[link for each in phase.links if (link := _link(each)) is not None],
            start_time=int(phase.begin * _NANOSECONDS),
        )
        for name, at in phase.events:
            span.add_event(name, timestamp=int(at * _NANOSECONDS))
        if phase.error:
            span.set_status(StatusCode.ERROR, phase.error)
        else:
            span.set_status(StatusCode.OK)
        span.end(int(phase.end * _NANOSECONDS))

    async def close(self) -> None:
        """Send what waits, for a bounded time."""
        await self._queue.close()


class CollectorSender:
    """Sends spans by OTLP over HTTP; headers and CA come from the usual OTEL_EXPORTER_OTLP_*."""

    def __init__(self, endpoint: str, timeout: float = SEND_TIMEOUT) -> None:
        self._session = _Session()
        self._exporter = OTLPSpanExporter(endpoint, timeout=timeout, session=self._session)

    def send(self, batch: Sequence[ReadableSpan], /) -> str | None:
        """None where the collector took them, else why it did not."""
        self._session.fault = "not sent"
        result = self._exporter.export(batch)
        # The exporter takes a redirect, which it doesn't follow, for a success.
        return self._session.fault or (None if result is SpanExportResult.SUCCESS else "failed")

    def close(self) -> None:
        """End the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class _Session(requests.Session):
    """Keeps in a few words what became of the last request, for the exporter only logs it."""

    def __init__(self) -> None:
        super().__init__()
        self.fault = ""
        # No proxies, and no credentials from ~/.netrc.
        self.trust_env = False

    def request(self, *arguments: Any, **options: Any) -> requests.Response:  # noqa: ANN401
        try:
            response = super().request(*arguments, **options)
        except Exception as error:
            self.fault = _innermost(error)
            raise
        is_good = HTTPStatus.OK <= response.status_code < HTTPStatus.MULTIPLE_CHOICES
        self.fault = "" if is_good else f"{response.status_code} {response.reason}"
        return response


class _GivenIds(RandomIdGenerator):
    """Gives the ids in ``next`` to one span, and random ones to all others."""

    def __init__(self) -> None:
        self.next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.next is None else self.next[0]

    def generate_span_id(self) -> int:
        given, self.next = self.next, None
        return super().generate_span_id() if given is None else given[1]


class _Enqueue(SpanProcessor):
    def __init__(self, queue: SpanQueue[ReadableSpan]) -> None:
        self._queue = queue

    def on_end(self, span: ReadableSpan) -> None:
        self._queue.put(span)


def _below(caller: Caller) -> Context:
    parent = SpanContext(
        caller.trace_id,
        caller.span_id,
        is_remote=True,
        trace_flags=TraceFlags(caller.flags),
        trace_state=TraceState.from_header([caller.state]) if caller.state else None,
    )
    return set_span_in_context(NonRecordingSpan(parent), Context())


def _link(traceparent: str) -> Link | None:
    found = caller_from(traceparent.strip())
    if found is None:
        return None
    context = SpanContext(found.trace_id, found.span_id, True, TraceFlags(found.flags))
    return Link(context, {"opentracing.ref_type": "follows-from"})


def _innermost(error: BaseException) -> str:
    """The reason at the bottom of a chain of exceptions; the outer ones repeat the whole URL."""
    inner = error
    while (below := inner.__cause__ or inner.__context__) is not None:
        inner = below
    return reason(inner)


def _mute() -> None:
    # It logs each batch that fails, and hostile headers; what matters of it we say ourselves.
    logger = logging.getLogger("opentelemetry")
    logger.propagate = False
    logger.setLevel(logging.CRITICAL + 1)
    logging.getLogger("urllib3").setLevel(logging.WARNING)
