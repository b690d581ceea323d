"""The real API server answers as the one in memory does (tests/unit/kube/test_client.py)."""

from __future__ import annotations

import pytest

from helpers.api_script import differences

pytestmark = pytest.mark.gate


async def test_it_answers_the_script(admin, namespace):
    assert await differences(admin, namespace) == []
