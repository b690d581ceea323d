"""Durations in Go's syntax, which Keptn's manifests use: ``5m``, ``1h30m``, ``300ms``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_UNITS: Final = {
    "ns": Decimal("0.000000001"),
    "us": Decimal("0.000001"),
    "µs": Decimal("0.000001"),
    "μs": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_LONGEST: Final = Decimal(2**63 - 1) / Decimal(10**9)


def parse_duration(text: str) -> float:
    """Parse a duration into seconds. Raises ValueError with one line that shows examples."""
    sign, rest = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if rest == "0":
        return 0.0
    total, at = Decimal(0), 0
    while at < len(rest) and (match := _PART.match(rest, at)):
        total += Decimal(match[1]) * _UNITS[match[2]]
        at = match.end()
    if not rest or at != len(rest):
        shown = text if len(text) <= 64 else f"{text[:61]}..."  # noqa: PLR2004 - for a message
        raise ValueError(f'"{shown}" is not a duration: write for example 30s, 5m or 1h30m')
    if total > _LONGEST:
        raise ValueError("the duration is longer than 292 years")
    return float(sign * total)


def format_duration(seconds: float) -> str:
    """Format a duration as Go does: ``5m0s``, ``30s``, ``1h0m0s``, ``1.5s``, ``300ms``, ``0s``."""
    if seconds < 0:
        return f"-{format_duration(-seconds)}"
    nanoseconds = round(Decimal(repr(seconds)) * 10**9)
    if nanoseconds == 0:
        return "0s"
    for unit, size in (("ns", 1), ("µs", 10**3), ("ms", 10**6)):
        if nanoseconds < size * 1000:
            return f"{_format_number(Decimal(nanoseconds) / size)}{unit}"
    minutes, rest = divmod(Decimal(nanoseconds) / 10**9, 60)
    hours, minutes = divmod(minutes, 60)
    text = f"{_format_number(rest)}s"
    if hours or minutes:
        text = f"{int(minutes)}m{text}"
    return f"{int(hours)}h{text}" if hours else text


def _format_number(number: Decimal) -> str:
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
