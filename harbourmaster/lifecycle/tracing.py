"""Derives ids of spans from uids, so that the next leader continues the same trace.

A carrier holds W3C's headers, ``{"traceparent": …}``; objects keep those of their phases.
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

TRACEPARENT: Final = "traceparent"
_SAMPLED: Final = "01"
_HEADER: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")


class SpanIds(Struct, frozen=True, gc=False):
    """The ids of a span; ``parent`` is 0 for the first of its trace."""

    trace: int
    span: int
    parent: int = 0

    @property
    def carrier(self) -> dict[str, str]:
        """The carrier for its children."""
        return {TRACEPARENT: f"00-{self.trace:032x}-{self.span:016x}-{_SAMPLED}"}


def ids_from(carrier: Mapping[str, str] | None) -> SpanIds | None:
    """Return the span that a carrier names, or None if it names none or is malformed."""
    match = _HEADER.fullmatch((carrier or {}).get(TRACEPARENT, ""))
    if match is None:
        return None
    trace, span = int(match[1], 16), int(match[2], 16)
    return SpanIds(trace, span) if trace and span else None


def root_ids(parent: Mapping[str, str] | None, uid: str) -> SpanIds:
    """Return the span of a whole object, below that of its ``parent``, or of a new trace."""
    above = ids_from(parent)
    if above is None:
        return SpanIds(_number(f"trace/{uid}", 16), _number(f"span/{uid}", 8))
    return SpanIds(above.trace, _number(f"span/{uid}", 8), above.span)


def phase_ids(parent: Mapping[str, str] | None, uid: str, phase: str) -> SpanIds:
    """Return the ids of a phase's span, below the span of the object with that ``parent``."""
    root = root_ids(parent, uid)
    return SpanIds(root.trace, _number(f"span/{uid}/{phase}", 8), root.span)


def phase_carrier(parent: Mapping[str, str] | None, uid: str, phase: str) -> dict[str, str]:
    """Return the carrier of a phase, which its children are given."""
    return phase_ids(parent, uid, phase).carrier


def _number(seed: str, size: int) -> int:
    """Return ``size`` bytes as a number that is not 0."""
    return int.from_bytes(sha256(seed.encode()).digest()[:size], "big") or 1
