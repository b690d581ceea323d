"""Checks that every unit test leaves global state unchanged."""

from __future__ import annotations

import logging
import os

import pytest
import structlog

# Rich, which the default takes, spends half a second on the local variables of each failure.
structlog.get_config()["processors"][-1].exception_formatter = structlog.dev.plain_traceback


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


@pytest.fixture(autouse=True, scope="package")
def no_authorities_of_the_system():
    """They take 30 ms to load for each client of a test, and no test asks anybody outside."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.devnull)
        yield
