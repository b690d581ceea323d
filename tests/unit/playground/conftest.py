from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from harbourmaster.playground import api


@pytest.fixture
def plain(monkeypatch):
    """Let requests go without TLS."""
    answered = api._open
    monkeypatch.setattr(
        api, "_open", lambda fault, port, _, *more: answered(fault, port, None, *more)
    )


@pytest.fixture
def twice_at_once():
    """Call a function from two threads at the same moment; returns both results."""

    def run(call):
        barrier = threading.Barrier(2)

        def together(_):
            barrier.wait()
            return call()

        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(together, range(2)))

    return run
