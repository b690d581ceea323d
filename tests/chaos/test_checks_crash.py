"""A controller that dies at every write while an application is checked and reverted."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    CONTROLLER_REVISIONS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
)
from harbourmaster.placement.confirmation import CONFIRMED
from helpers.faults.crashing import Plan, live
from helpers.placement_flow import PLACING, config_map, flow_in, members_of, two_planes
from helpers.schemas import apply_definitions

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "applications.placement.harbourmaster.dev/app"
MANY = 400.0
"""Seconds for all lives together."""
SETTINGS = {"controllers": ["metrics", "lifecycle", "placement"], "placement": PLACING}


@pytest.fixture(scope="module")
def planes(control_plane, tmp_path_factory):
    apply_definitions(control_plane.kubectl)
    with two_planes(tmp_path_factory) as planes:
        yield planes


async def objects(flow, resource):
    page = await flow.client.list(resource, flow.namespace)
    return [msgspec.json.decode(item) for item in page.items]


async def test_one_that_dies_at_every_write_checks_and_reverts_once(request, control_plane, planes):
    async with (
        flow_in(control_plane, request.node.name) as flow,
        flow.watching(),
        members_of(planes) as (first, _),
    ):
        await flow.cluster("one", planes[0])
        lives, sent = await play(flow, first, control_plane)
    kinds = ("controllerrevisions", "keptnappversions", "applications")
    ours = [write for write in sent if any(f"/{kind}" in write for kind in kinds)]
    assert len(ours) >= 12
    assert lives > len(sent)


async def play(flow, first, control_plane):
    """Deploy, revert and update an application; return the number of lives, and all writes."""
    spec = {"type": "static", "static": {"metrics": {"errors": 3}}}
    await flow.make(METRICS_PROVIDERS, "constants", spec)
    spec = {"provider": {"name": "constants"}, "query": "errors", "fetchIntervalSeconds": 3600}
    await flow.make(KEPTN_METRICS, "errors", spec)
    for name, target in (("few", "<5"), ("none", "<1")):
        objective = {"keptnMetricRef": {"name": "errors"}, "evaluationTarget": target}
        spec = {"objectives": [objective], "retries": 1, "retryInterval": "1s"}
        await flow.make(EVALUATION_DEFINITIONS, name, spec)
    few = {"preDeployment": {"evaluations": ["few"]}, "onFailure": "Revert"}
    checks = {**few, "postDeployment": {"evaluations": ["few"]}}
    await flow.application(config_map("first", first.namespace, a="1"), checks=checks)
    await flow.change(APPLICATIONS, "app", {"metadata": {"annotations": {CONFIRMED: "true"}}})

    async def change(number, definition):
        # Another process: a death takes what this one has begun meanwhile with it.
        after = {**few, "postDeployment": {"evaluations": [definition]}}
        spec = {"manifests": [config_map("first", first.namespace, a=number)], "checks": after}
        patch = f"--patch={json.dumps({'spec': spec})}"
        arguments = ("patch", NAME, "--type=merge", patch, f"-n={flow.namespace}")
        await asyncio.to_thread(control_plane.kubectl, *arguments)

    async def until(reason, generation):
        def is_so(status):
            return any(
                (entry.reason, entry.observed_generation) == (reason, generation)
                and status.observed_generation == status.scheduled_generation
                for entry in status.conditions
            )

        await flow.until(is_so)
        return (await flow.fetch())["status"]

    async def over():
        async with asyncio.timeout(MANY):
            await until("Passed", 1)
            await change("2", "none")
            status = await until("Reverted", 2)
            assert status["scheduledGeneration"] == 1
            await change("3", "few")
            status = await until("Passed", 3)
            records = [(part["generation"], part["result"]) for part in status["checked"]]
            assert records == [(3, "Passed"), (1, "Passed")]

            async def is_clean():
                revisions = [part["revision"] for part in await objects(flow, CONTROLLER_REVISIONS)]
                versions = [part["spec"]["version"] for part in await objects(flow, APP_VERSIONS)]
                return (sorted(revisions), versions) == ([1, 3], ["3"])

            # A look now and then: what it waits for is in no cache here.
            while not await is_clean():  # noqa: ASYNC110
                await asyncio.sleep(0.2)

    plan = Plan(events=False)
    lives = await live(
        control_plane.kubeconfig, flow.namespace, plan, partial(over), patience=60.0, **SETTINGS
    )
    return lives, plan.sent
