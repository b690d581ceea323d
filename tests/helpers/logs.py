"""Our own log in memory, and the tests' logging as it was afterwards."""

from __future__ import annotations

import io
import logging
import warnings
from contextlib import contextmanager

import structlog

from harbourmaster.telemetry.logging import configure_logging


@contextmanager
def captured_log(level="info"):
    """Give the stream that takes the JSON lines."""
    root = logging.getLogger()
    handlers, before, show = root.handlers, root.level, warnings.showwarning
    stream = io.BytesIO()
    configure_logging(level, "json", stream=stream)
    try:
        yield stream
    finally:
        logging.captureWarnings(capture=False)
        root.handlers, warnings.showwarning = handlers, show
        root.setLevel(before)
        structlog.reset_defaults()
