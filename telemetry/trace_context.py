"""What a caller says of its trace: the headers ``traceparent`` and ``tracestate`` of W3C."""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct

SAMPLED: Final = 1
MAX_STATE: Final = 1024
"""Characters of a tracestate that are kept; a longer one is left out whole."""
_VERSION_ZERO: Final = "00"
_HEADER: Final = re.compile(
    r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL
)


class Caller(Struct, frozen=True, gc=False):
    """The span of the caller, which becomes the parent of ours."""

    trace_id: int
    span_id: int
    flags: int
    state: str
    """The tracestate as it came, for the spans to carry on."""

    @property
    def is_sampled(self) -> bool:
        """Whether the caller records its span."""
        return bool(self.flags & SAMPLED)


def caller_from(traceparent: str | None, tracestate: str | None = None) -> Caller | None:
    """Read the headers; None for a traceparent that is absent or malformed."""
    found = _HEADER.fullmatch(traceparent or "")
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    # Later versions may have more fields, the first one may not; ff is none at all.
    if version == "ff" or (version == _VERSION_ZERO and more is not None):
        return None
    trace_id, span_id = int(trace, 16), int(span, 16)
    if not (trace_id and span_id):
        return None
    state = tracestate or ""
    return Caller(trace_id, span_id, int(flags, 16), state if len(state) <= MAX_STATE else "")
