"""The time to answer: the API server sends its time-out as ``?timeout=``."""

from __future__ import annotations

from functools import lru_cache
from typing import Final
from urllib.parse import parse_qs

from harbourmaster.api.durations import parse_duration

CAP: Final = 30.0
"""Seconds that any request has at most: the longest time-out a webhook can be registered with."""
RESERVE: Final = 0.5
"""Seconds kept back for the answer's way to the API server."""
SMALLEST_SHARE: Final = 0.1
"""Part of the time-out that always remains, for time-outs near or under the reserve."""


@lru_cache(maxsize=64)
def time_budget(query: str) -> float:
    """Seconds that may pass before the answer to a request with this query string goes out.

    Its ``timeout``, ``CAP`` at most, less the reserve; a tenth of it at least. A time-out that
    can't be read, or is not positive, counts as ``CAP``.
    """
    try:
        values = parse_qs(query, max_num_fields=10).get("timeout")
        timeout = parse_duration(values[0]) if values else CAP
    except ValueError:
        timeout = CAP
    allowed = min(timeout, CAP) if timeout > 0 else CAP
    return max(allowed - RESERVE, allowed * SMALLEST_SHARE)
