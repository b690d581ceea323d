"""Reconcilers of analyses and of metrics, whose clock only the test advances."""

from __future__ import annotations

import pytest

from helpers.analysis_controller import ControllerProcess, objective
from helpers.metric_controller import World


@pytest.fixture
def life(api, client, events):
    return ControllerProcess(api, client, events)


@pytest.fixture
def ready(life):
    """One objective, whose query is answered by 4."""
    life.provider()
    life.template("ready", "sum(up)")
    life.definition(objective("ready", failure={"lessThan": {"fixedValue": "2"}}))
    life.questions.answers["sum(up)"] = "4"
    return life


@pytest.fixture
async def world(api, client, events):
    found = World(api, client, events)
    found.provider()
    yield found
    await found.metrics.close()


@pytest.fixture
def metered(world):
    world.metric()
    return world
