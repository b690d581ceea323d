"""Times as the API writes them: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(time: datetime) -> str:
    """The time, cut to its second."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime:
    """The moment in a stamp, fractions of seconds or none, in UTC. Raises ValueError."""
    found = datetime.fromisoformat(text)
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:
        # The first and the last representable day, in another time zone.
        raise ValueError("the time has no year in UTC") from None


def moment(text: str | None) -> datetime | None:
    """The moment in a stamp; None for no stamp, or an invalid one."""
    try:
        return parse(text) if text else None
    except ValueError:
        return None


def seconds_between(begin: str, end: str) -> float | None:
    """Seconds from one stamp to another; None if either is missing or invalid."""
    first, last = moment(begin), moment(end)
    return None if first is None or last is None else (last - first).total_seconds()


def utc_now() -> datetime:
    """The current time, for callers without a clock of their own."""
    return datetime.now(UTC)
