"""Spans by OpenTelemetry, created when the work has ended. Needs the extra ``tracing``.

No global provider, propagator or exit handler is installed.
"""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
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

from harbourmaster.telemetry.span_export import SpanBatches, silence_libraries

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harbourmaster.telemetry.phase_spans import PhaseSpan
    from harbourmaster.telemetry.span_export import Sender

SAMPLED: Final = 1
MAX_STATE: Final = 1024
"""Characters of a tracestate; a longer one is dropped."""
_NANOSECONDS: Final = 1_000_000_000
_VERSION_ZERO: Final = "00"
_TRACEPARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)


class Caller(Struct, frozen=True, gc=False):
    """The caller's span, which becomes the parent of ours."""

    trace_id: int
    span_id: int
    flags: int
    state: str
    """The caller's tracestate, passed on unchanged."""

    @property
    def is_sampled(self) -> bool:
        """Whether the caller records its span."""
        return bool(self.flags & SAMPLED)


def caller_from(traceparent: str | None, tracestate: str | None = None) -> Caller | None:
    """Parse the headers of W3C Trace Context; None for an absent or malformed traceparent."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    # Only later versions may have more fields; ff is invalid.
    if version == "ff" or (version == _VERSION_ZERO and more is not None):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not (trace_id and span_id):
        return None
    state = tracestate or ""
    return Caller(trace_id, span_id, int(flags, 16), state if len(state) <= MAX_STATE else "")


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
        self._ids = _GivenIds()
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

    def sampled(
        self, traceparent: str | None = None, tracestate: str | None = None
    ) -> Context | None:
        """The parent context for ``record``; None if the work is not sampled.

        A malformed traceparent is ignored.
        """
        caller = caller_from(traceparent, tracestate)
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
        begin, end = (int(at * _NANOSECONDS) for at in period)
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
        """Send the remaining spans, within a time limit."""
        await self._batches.close()


class _GivenIds(RandomIdGenerator):
    """Uses the IDs in ``next`` for one span, and random ones for all others."""

    def __init__(self) -> None:
        self.next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.next is None else self.next[0]

    def generate_span_id(self) -> int:
        given, self.next = self.next, None
        return super().generate_span_id() if given is None else given[1]


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
    caller = caller_from(traceparent.strip())
    if caller is None:
        return None
    context = SpanContext(caller.trace_id, caller.span_id, True, TraceFlags(caller.flags))
    return Link(context, {"opentracing.ref_type": "follows-from"})
