"""Spans and their parents, without OpenTelemetry, which is an optional package."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

EXPORTED: Final = "exported"
FAILED: Final = "failed"
QUEUE_FULL: Final = "queue_full"
SHUTDOWN: Final = "shutdown"
SPAN_OUTCOMES: Final = (EXPORTED, FAILED, QUEUE_FULL, SHUTDOWN)
"""Outcomes of a span; all except the first are losses."""
CAPACITY: Final = 2048
"""Maximum number of spans that wait or are being sent."""
SAMPLED: Final = 1
"""The flag of a traceparent."""
MAX_STATE: Final = 1024
"""Characters of a tracestate; a longer one is dropped."""
_VERSION_ZERO: Final = "00"
_TRACEPARENT: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)


class Caller(Struct, frozen=True, gc=False):
    """The span of a caller, which becomes the parent of our span."""

    trace_id: int
    span_id: int
    flags: int
    state: str
    """The tracestate of the caller, passed on unchanged."""

    @property
    def is_sampled(self) -> bool:
        """Whether the caller records its span."""
        return bool(self.flags & SAMPLED)


def parse_traceparent(traceparent: str | None, tracestate: str | None = None) -> Caller | None:
    """Parse headers of W3C Trace Context; returns None for an absent or malformed traceparent."""
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
