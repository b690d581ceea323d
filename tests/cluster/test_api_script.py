"""The real API server answers as the one in memory does (tests/unit/kube/test_api_script.py)."""

from __future__ import annotations

import pytest

from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import connect
from helpers.api_script import differences

pytestmark = [pytest.mark.gate, pytest.mark.cluster]


async def test_it_answers_the_script(control_plane, namespace):
    async with Client(connect(str(control_plane.kubeconfig))) as client:
        assert await differences(client, namespace) == []
