"""The time to answer: the API server sends its time-out as ``?timeout=``."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

if TYPE_CHECKING:
    from aiohttp import web

CAP: Final = 30.0
"""Seconds that any request has at most: the longest time-out a webhook can be registered with."""
RESERVE: Final = 0.5
"""Seconds kept back for the answer's way to the API server."""
SMALLEST_SHARE: Final = 0.1
"""Part of the time-out that always remains, for time-outs near or under the reserve."""

_UNITS: Final = {
    "ns": 1e-9,
    "us": 1e-6,
    "\N{MICRO SIGN}s": 1e-6,
    "\N{GREEK SMALL LETTER MU}s": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
_NUMBER: Final = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_PART: Final = re.compile(rf"({_NUMBER})(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_DURATION: Final = re.compile(rf"\+?(?:{_PART.pattern})+")
_MAX_LENGTH: Final = 40


def parse_duration(text: str) -> float | None:
    """Read a positive duration as Go writes it (``10s``, ``1m30s``, ``1.5s``), in seconds.

    None where it is none, zero or negative.
    """
    if len(text) > _MAX_LENGTH or _DURATION.fullmatch(text) is None:
        return None
    seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return seconds or None


@lru_cache(maxsize=64)
def time_budget(timeout: str | None, cap: float = CAP) -> float:
    """Seconds that may pass before the answer goes out.

    The time-out, ``cap`` at most, less the reserve; a tenth of it at least. A time-out that can't
    be read counts as ``cap``.
    """
    allowed = min(parse_duration(timeout or "") or cap, cap)
    return max(allowed - RESERVE, allowed * SMALLEST_SHARE)


def request_budget(request: web.BaseRequest, cap: float = CAP) -> float:
    """``time_budget`` of a request's ``timeout`` parameter, without parsing the query each time."""
    return _query_budget(request.rel_url.raw_query_string, cap)


@lru_cache(maxsize=64)
def _query_budget(query: str, cap: float) -> float:
    try:
        values = parse_qs(query, max_num_fields=10).get("timeout")
    except ValueError:
        values = None
    return time_budget(values[0] if values else None, cap)
