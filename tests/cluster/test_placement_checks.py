"""Checks of Applications: a hub with the controllers of gates, and two members."""

from __future__ import annotations

import asyncio
import base64
import os

import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPLICATIONS,
    CLUSTERS,
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    EVALUATION_DEFINITIONS,
    EVENTS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
)
from harbourmaster.gates.release import RERUN_BY_KEY, RERUN_CHECKS_KEY, RERUN_KEY
from harbourmaster.lifecycle.model import AppVersion
from harbourmaster.lifecycle.reruns import failed_checks
from helpers.placement_flow import config_map, flow_in

pytestmark = pytest.mark.gate

LIFECYCLE = "--controllers=metrics,lifecycle,placement"
PRE = {"preDeployment": {"evaluations": ["few-errors"]}}
POST = {"postDeployment": {"evaluations": ["few-errors"]}}
FEW = "evaluation few-errors: errors → {} (<5)"


@pytest.fixture
async def flow(request, control_plane):
    async with flow_in(control_plane, request.node.name) as flow, flow.watching():
        yield flow


async def define_metric(flow, value):
    """Define a metric of a value that is in its provider."""
    spec = {"type": "static", "static": {"metrics": {"errors": value}}}
    await flow.make(METRICS_PROVIDERS, "constants", spec)
    spec = {"provider": {"name": "constants"}, "query": "errors", "fetchIntervalSeconds": 1}
    await flow.make(KEPTN_METRICS, "errors", spec)


async def define_check(flow, name="few-errors"):
    """Define an evaluation of the metric, which must be below 5."""
    spec = {"objectives": objectives("<5"), "retries": 1, "retryInterval": "1s"}
    await flow.make(EVALUATION_DEFINITIONS, name, spec)


def objectives(target):
    return [{"keptnMetricRef": {"name": "errors"}, "evaluationTarget": target}]


async def set_target(flow, target):
    spec = {"objectives": objectives(target)}
    await flow.change(EVALUATION_DEFINITIONS, "few-errors", {"spec": spec})


async def set_value(flow, value):
    """Have the metric change, and wait until it is so."""
    spec = {"static": {"metrics": {"errors": value}}}
    await flow.change(METRICS_PROVIDERS, "constants", {"spec": spec})

    async def is_so():
        stored = await flow.fetch("errors", KEPTN_METRICS)
        return stored["status"].get("value") == str(value)

    await until(is_so)


async def until(condition):
    """Wait until something is so that no cache here shows."""
    async with asyncio.timeout(60):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def objects(flow, resource):
    page = await flow.client.list(resource, flow.namespace)
    return [msgspec.json.decode(item) for item in page.items]


async def rerun(flow):
    """Ask for the failed checks of all applications again, as admission would write it."""
    for version in await objects(flow, APP_VERSIONS):
        checks = ",".join(sorted(failed_checks(msgspec.convert(version, AppVersion))))
        notes = {RERUN_BY_KEY: "ada", RERUN_CHECKS_KEY: checks}
        value = {"metadata": {"labels": {RERUN_KEY: checks[-8:]}, "annotations": notes}}
        if checks:
            await flow.change(APP_VERSIONS, version["metadata"]["name"], value)


async def until_checked(flow, reason, generation, name="app"):
    """Wait until the checks of a generation came to this; the status and the message."""

    def is_so(status):
        return any(
            (entry.type, entry.reason, entry.observed_generation) == ("Checked", reason, generation)
            for entry in status.conditions
        )

    await flow.until(is_so, name)
    status = (await flow.fetch(name))["status"]
    messages = {entry["type"]: entry.get("message") for entry in status["conditions"]}
    return status, messages["Checked"]


async def until_content(member, **data):
    await member.until(CONFIG_MAPS, "first", lambda obj: obj is not None and obj["data"] == data)


async def drift(member, **data):
    """Delete and edit an object, which is repaired with the same content."""
    await member.client.delete(CONFIG_MAPS, "first", member.namespace)
    await until_content(member, **data)
    await member.edit(CONFIG_MAPS, "first", {"data": {"a": "edited"}})
    await until_content(member, **data)


async def test_it_is_checked_before_it_is_deployed_updated_and_moved(flow, planes, members):
    first, two = members
    await define_metric(flow, 7)
    async with flow.placing(LIFECYCLE):
        for name, plane in zip(("one", "two"), planes, strict=True):
            await flow.cluster(name, plane)
            await flow.change(CLUSTERS, name, {"metadata": {"labels": {"place": name}}})
        await flow.until_online("one", "two")
        there = {"cluster": {"labels": ["place is one"]}}
        await flow.application(
            config_map("first", first.namespace, a="1"), checks=PRE, constraints=there
        )
        # Nothing goes on without the definition.
        status, message = await until_checked(flow, "DefinitionNotFound", 1)
        missing = ": the definition of evaluation few-errors does not exist"
        assert message == f"generation 1 is not deployed to 'one'{missing}"
        await define_check(flow)
        status, message = await until_checked(flow, "CheckFailed", 1)
        assert message == f"generation 1 is not deployed to 'one': {FEW.format(7)}"
        assert "scheduledTo" not in status
        assert await first.names() == set()
        (version,) = await objects(flow, APP_VERSIONS)
        assert version["spec"]["metadata"] == {
            "cluster": "one",
            "cluster-label/place": "one",
            "generation": "1",
            "cause": "Deploy",
        }
        # Another definition is another check.
        await set_target(flow, "<10")
        await flow.until_running("one")
        await until_content(first, a="1")
        # One that fails keeps what runs, which is repaired.
        await set_target(flow, "<5")
        await flow.update(config_map("first", first.namespace, a="2"), approve=False)
        status, message = await until_checked(flow, "CheckFailed", 2)
        assert message == f"generation 2 is not deployed to 'one': {FEW.format(7)}"
        assert (status["scheduledGeneration"], status["proposed"]["cause"]) == (1, "Update")
        await drift(first, a="1")
        await set_value(flow, 3)
        await rerun(flow)
        await flow.until_running("one")
        await until_content(first, a="2")
        # Neither does it move.
        await set_value(flow, 7)
        there["cluster"]["labels"] = ["place is two"]
        await flow.change(APPLICATIONS, "app", {"spec": {"constraints": there}})
        status, message = await until_checked(flow, "CheckFailed", 3)
        assert message == f"generation 3 is not deployed to 'two': {FEW.format(7)}"
        assert status["scheduledTo"]["name"] == "one"
        assert await two.names() == set()
        revisions = [part["revision"] for part in await objects(flow, CONTROLLER_REVISIONS)]
        assert sorted(revisions) == [1, 2]
        await flow.change(APPLICATIONS, "app", {"spec": {"checks": None}})
        await flow.until_running("two")
        await until_content(two, a="2")
        assert await first.names() == set()
        for kind in (APP_VERSIONS, CONTROLLER_REVISIONS):
            assert await objects(flow, kind) == []
        status = (await flow.fetch())["status"]
        assert not {"checked", "proposed"}.intersection(status)
        assert "Checked" not in {entry["type"] for entry in status["conditions"]}


async def test_a_check_after_the_deployment_reverts_it_once(flow, planes, members):
    first, _ = members
    await define_metric(flow, 3)
    await define_check(flow)
    async with flow.placing(LIFECYCLE):
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        await flow.application(config_map("first", first.namespace, a="1"), checks=POST)
        status, _ = await until_checked(flow, "Passed", 1)
        assert status["checked"][0]["result"] == "Passed"
        # By default it stays.
        await set_value(flow, 7)
        await flow.update(config_map("first", first.namespace, a="2"), approve=False)
        status, message = await until_checked(flow, "PostCheckFailed", 2)
        assert message == f"generation 2 is deployed to 'one': {FEW.format(7)}"
        assert [part["result"] for part in status["checked"]] == ["Failed", "Passed"]
        await until_content(first, a="2")
        checks = {**POST, "onFailure": "Revert"}
        manifest = config_map("first", first.namespace, a="3")
        await flow.update(manifest, approve=False, checks=checks)
        status, message = await until_checked(flow, "Reverted", 3)
        failed = f"generation 3 on 'one' failed ({FEW.format(7)})"
        assert message == f"{failed}: generation 1 is deployed to 'one' again"
        await until_content(first, a="1")
        await flow.until(lambda status: status.observed_generation == 1)
        before = (await flow.fetch())["metadata"]["resourceVersion"]
        # No pass tries it again by itself.
        await flow.cluster("two", planes[1])
        await flow.until_online("two")
        assert (await flow.fetch())["metadata"]["resourceVersion"] == before
        told = [part["reason"] for part in await objects(flow, EVENTS)]
        assert told.count("Reverted") == 1
        await set_value(flow, 3)
        await rerun(flow)
        status, _ = await until_checked(flow, "Passed", 3)
        await until_content(first, a="3")
        records = [(part["generation"], part["result"]) for part in status["checked"]]
        assert records == [(3, "Passed"), (1, "Passed")]


async def test_a_lost_member_is_left_and_the_generation_that_passed_moves(flow, planes, members):
    first, two = members
    await define_metric(flow, 3)
    await define_check(flow)
    # One that goes on until it passes.
    spec = {"objectives": objectives(">5"), "retries": 100, "retryInterval": "1s"}
    await flow.make(EVALUATION_DEFINITIONS, "patient", spec)
    async with flow.placing(LIFECYCLE):
        here = {"metadata": {"labels": {"place": "here"}}}
        await flow.cluster("lost", planes[0])
        await flow.change(CLUSTERS, "lost", here)
        await flow.until_online("lost")
        await flow.application(
            config_map("first", first.namespace, a="1"),
            checks={"preDeployment": {"evaluations": ["patient"]}},
            constraints={"cluster": {"labels": ["place is here"]}},
        )
        _, message = await until_checked(flow, "Checking", 1)
        assert message == "generation 1 is not deployed to 'lost'"
        await asyncio.to_thread(planes[0].kill, "kube-apiserver")
        try:
            await flow.until_cluster(lambda status: status.state == "Offline", "lost")
            await flow.cluster("two", planes[1])
            await flow.change(CLUSTERS, "two", here)

            async def is_proposed():
                return (await flow.fetch())["status"]["proposed"]["name"] == "two"

            await until(is_proposed)
            await set_value(flow, 7)
            await flow.until_running("two")
        finally:
            await asyncio.to_thread(planes[0].restart, "kube-apiserver")
        await flow.until_online("lost")
        assert await first.names() == set()
        assert len(await objects(flow, APP_VERSIONS)) == 1
        # The next generation fails, and its cluster must be left.
        manifest = config_map("first", first.namespace, a="2")
        await flow.update(manifest, approve=False, checks=PRE)
        await until_checked(flow, "CheckFailed", 2)
        await flow.change(CLUSTERS, "two", {"metadata": {"labels": {"place": "elsewhere"}}})
        await until_content(first, a="1")
        await two.until(CONFIG_MAPS, "first", lambda obj: obj is None)
        status, message = await until_checked(flow, "CheckFailed", 2)
        assert (status["scheduledTo"]["name"], status["scheduledGeneration"]) == ("lost", 1)


@pytest.mark.full
async def test_what_cannot_be_checked_or_kept_says_so(flow, planes, members):
    first, _ = members
    await define_metric(flow, 3)
    await define_check(flow)
    manifests = [config_map(name, first.namespace) for name in "abc"]
    for manifest in manifests:
        manifest["binaryData"] = {"noise": base64.b64encode(os.urandom(300_000)).decode()}
    async with flow.placing():
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        await flow.application(*manifests, checks=PRE)
        await flow.application(config_map("first", first.namespace), name="small", checks=PRE)
        for name in ("app", "small"):
            await until_checked(flow, "LifecycleOff", 1, name)
    async with flow.placing(LIFECYCLE):
        await flow.until_running("one", "small")
        _, message = await until_checked(flow, "TooLarge", 1)
        assert ": Application app has 12" in message
        assert "at most 1000000 can be kept" in message
        assert await first.names() == {"first"}
        await flow.change(APPLICATIONS, "app", {"spec": {"checks": None}})
        await flow.until_running("one")
        assert await first.names() == {"first", "a", "b", "c"}


@pytest.mark.full
async def test_fifty_are_checked_at_once(flow, planes, members):
    first, _ = members
    await define_metric(flow, 3)
    await define_check(flow)
    names = [f"app-{number}" for number in range(50)]
    async with flow.placing(LIFECYCLE):
        await flow.cluster("one", planes[0])
        await flow.until_online("one")
        for name in names:
            manifest = config_map(name, first.namespace)
            await flow.application(manifest, name=name, checks={**PRE, **POST})
        for name in names:
            await until_checked(flow, "Passed", 1, name)
        assert await first.names() == set(names)
        for kind in (APP_VERSIONS, CONTROLLER_REVISIONS):
            assert len(await objects(flow, kind)) == len(names)
        await set_value(flow, 7)
        for name in names:
            await flow.update(config_map(name, first.namespace, a="2"), name=name, approve=False)
        for name in names:
            await until_checked(flow, "CheckFailed", 2, name)
