"""A clock that stands until a test sets it."""

from __future__ import annotations

from datetime import datetime, timedelta

from helpers.gated import CREATED


class SetClock:
    """Tells the time ``seconds`` after CREATED."""

    def __init__(self, seconds=0.0):
        self.seconds = seconds

    def __call__(self):
        return datetime.fromisoformat(CREATED) + timedelta(seconds=self.seconds)
