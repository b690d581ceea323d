from __future__ import annotations

import pytest

from harbourmaster.playground import api


@pytest.fixture
def plain(monkeypatch):
    """Let requests go without TLS."""
    connect = api._connect
    monkeypatch.setattr(api, "_connect", lambda port, _, *more: connect(port, None, *more))
