"""The process's log, in memory."""

from __future__ import annotations

import pytest

from helpers.logs import captured_log


@pytest.fixture
def log():
    """What is logged from level info on, as JSON lines."""
    with captured_log() as stream:
        yield stream
