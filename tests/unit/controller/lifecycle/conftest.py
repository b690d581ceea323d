"""Controllers of tasks and their definitions, on a fake API server, and owners of pods."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import DEPLOYMENTS, REPLICA_SETS
from harbourmaster.controller.lifecycle import caches
from helpers.gated import deployment, put, replica_set
from helpers.tasks import TaskControllers


@pytest.fixture(autouse=True)
def _list_all_pods(monkeypatch):
    """The fake API server knows no fields to select pods by."""
    monkeypatch.setattr(caches, "PENDING_PODS", "")
    monkeypatch.setattr(caches, "selector", lambda _name: "")


@pytest.fixture
def pod_owners(api):
    """Store a Deployment and its ReplicaSet."""
    put(api, REPLICA_SETS, replica_set())
    put(api, DEPLOYMENTS, deployment())


@pytest.fixture
async def controllers(client):
    async with TaskControllers(client) as task_controllers:
        yield task_controllers
