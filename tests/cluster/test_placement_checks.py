"""Checks of Applications: a hub with the controllers of gates, and two members."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import (
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
)
from helpers.placement_flow import config_map, flow_in, reason_of

pytestmark = pytest.mark.gate

LIFECYCLE = "--controllers=metrics,lifecycle,placement"


@pytest.fixture
async def flow(request, control_plane):
    async with flow_in(control_plane, request.node.name) as flow, flow.watching():
        yield flow


async def define_check(flow, value, name="few-errors"):
    """Define an evaluation of a value that must be below 5."""
    spec = {"type": "static", "static": {"metrics": {"errors": value}}}
    await flow.make(METRICS_PROVIDERS, "constants", spec)
    spec = {"provider": {"name": "constants"}, "query": "errors", "fetchIntervalSeconds": 1}
    await flow.make(KEPTN_METRICS, "errors", spec)
    objective = {"keptnMetricRef": {"name": "errors"}, "evaluationTarget": "<5"}
    spec = {"objectives": [objective], "retries": 1, "retryInterval": "1s"}
    await flow.make(EVALUATION_DEFINITIONS, name, spec)


async def set_value(flow, value):
    spec = {"static": {"metrics": {"errors": value}}}
    await flow.change(METRICS_PROVIDERS, "constants", {"spec": spec})


async def test_a_check_that_fails_keeps_the_first_deployment_away(flow, planes, members):
    first, _ = members
    await define_check(flow, 7)
    async with flow.placing(LIFECYCLE):
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        checks = {"preDeployment": {"evaluations": ["few-errors"]}}
        await flow.application(config_map("first", first.namespace), checks=checks)
        await flow.until(lambda status: reason_of(status, "Checked") == "CheckFailed")
        status = (await flow.fetch())["status"]
        assert "scheduledTo" not in status
        assert await first.names() == set()
        checked = next(part for part in status["conditions"] if part["type"] == "Checked")
        assert checked["message"] == (
            "generation 1 is not deployed to 'one': evaluation few-errors: errors → 7 (<5)"
        )
