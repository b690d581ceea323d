"""What every unit test leaves as it found it."""

from __future__ import annotations

import logging

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before():
    """A test that configures logging writes to a stream that is closed after it."""
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    configured = structlog.get_config() if structlog.is_configured() else None
    yield
    root.handlers, root.level = handlers, level
    logging.captureWarnings(capture=False)
    if configured is None:
        structlog.reset_defaults()
    else:
        structlog.configure(**configured)
