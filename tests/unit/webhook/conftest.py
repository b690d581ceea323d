"""The process's log, in memory."""

from __future__ import annotations

import io
import logging
import warnings

import pytest
import structlog

from telemetry.logging import configure_logging


@pytest.fixture
def log():
    """What is logged from level info on, as JSON lines; the logging of tests comes back after."""
    root = logging.getLogger()
    handlers, level, show = root.handlers, root.level, warnings.showwarning
    stream = io.BytesIO()
    configure_logging("info", "json", stream=stream)
    yield stream
    logging.captureWarnings(capture=False)
    root.handlers, warnings.showwarning = handlers, show
    root.setLevel(level)
    structlog.reset_defaults()
