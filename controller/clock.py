"""The time of day, for whoever is not given another clock."""

from __future__ import annotations

from datetime import UTC, datetime


def utc_now() -> datetime:
    """This moment."""
    return datetime.now(UTC)
