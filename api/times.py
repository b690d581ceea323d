"""Times as the API writes them: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(moment: datetime) -> str:
    """The moment, cut to its second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse(text: str) -> datetime:
    """The moment in a stamp, fractions of seconds or none, in UTC. Raises ValueError."""
    found = datetime.fromisoformat(text)
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:
        # The first and the last representable day, in another time zone.
        raise ValueError("the time has no year in UTC") from None


def utc_now() -> datetime:
    """The current time, for callers without a clock of their own."""
    return datetime.now(UTC)
