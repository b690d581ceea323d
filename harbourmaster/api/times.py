"""Timestamps of the Kubernetes API: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def format_rfc3339(time: datetime) -> str:
    """Format an aware time in UTC, truncated to its second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_rfc3339(text: str) -> datetime:
    """Parse a timestamp, in UTC if it has no time zone. Raises ValueError."""
    time = datetime.fromisoformat(text)
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        # The first and the last representable day, in another time zone.
        raise ValueError("the time has no year in UTC") from None


def moment(text: str | None) -> datetime | None:
    """Return the time of a timestamp; None if it is missing or invalid."""
    try:
        return parse_rfc3339(text) if text else None
    except ValueError:
        return None


def seconds_between(begin: str, end: str) -> float | None:
    """Return the seconds between two timestamps; None if either is missing or invalid."""
    first, last = moment(begin), moment(end)
    return None if first is None or last is None else (last - first).total_seconds()


def utc_now() -> datetime:
    """Return the current time, for callers without a clock of their own."""
    return datetime.now(UTC)
