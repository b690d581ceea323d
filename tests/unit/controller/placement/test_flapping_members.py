"""A member cluster that changes all the time is handled at a pace (krake-spec 7.11)."""

from __future__ import annotations

import asyncio
import contextlib
import itertools

import pytest

from harbourmaster.api.resources import DEFINITIONS, DEPLOYMENTS, NODES, Resource
from harbourmaster.controller.placement import deployment as placement_deployment
from harbourmaster.controller.placement.session import Session
from harbourmaster.controller.placement.settings import MemberSettings
from harbourmaster.controller.placement.writes import write
from harbourmaster.kube.untrusted_kubeconfig import Access
from harbourmaster.placement.rollout import Reach
from harbourmaster.serving.background import running
from helpers.fake_api import FakeApi
from helpers.placement_flow import deployment, reason_of

BOATS = Resource("example.com", "v1", "boats", "Boat")
MINUTE = 60.0
INTERVAL = 0.13
QUIET = 90.0
"""Seconds in which allowances are full again."""


def node(ready):
    return {"metadata": {"name": "a"}, "status": {"conditions": [{"type": "Ready", **ready}]}}


def set_ready(api, ready):
    api.put(NODES, node({"status": "True" if ready else "False"}))


def define(api):
    api.define(BOATS)
    api.put(DEFINITIONS, {"metadata": {"name": "boats.example.com"}, "spec": {"group": "x"}})


async def flap(change):
    """Change something for a minute; the last call has False."""
    # No divisor of a pace, which would find the same state each time.
    for number in range(2 * int(MINUTE / 2 / INTERVAL)):
        change(number % 2 == 0)
        await asyncio.sleep(INTERVAL)


@contextlib.asynccontextmanager
async def session_with(api):
    """A session that is settled, and its reports with their times."""
    reports, clock = [], asyncio.get_running_loop().time

    def report():
        observation = session.observation
        ready = [node.conditions[0].status for node in observation.nodes]
        reports.append((clock(), ready, session.custom_resources, session.kinds))

    session = Session(
        "team/one",
        Access(connection=api.connection, namespace="", expires=None),
        MemberSettings(),
        discover=True,
        on_change=report,
        on_objects=lambda _uids: None,
        on_crash=lambda name: pytest.fail(f"{name} crashed"),
        chance=lambda: 0.5,
    )
    async with running(session.run()):
        await asyncio.sleep(QUIET)
        assert session.reach is Reach.YES
        reports.clear()
        api.requests.clear()
        yield session, reports


@pytest.mark.claim("P6")
async def test_nodes_that_flap_are_reported_at_a_pace_and_the_last_state_is():
    async with FakeApi() as api:
        set_ready(api, ready=True)
        async with session_with(api) as (_, reports):
            before = asyncio.get_running_loop().time()
            await flap(lambda ready: set_ready(api, ready))
            assert 20 <= len(reports) <= 10 + MINUTE / 5 + 1
            # The first ones pass at once.
            assert reports[9][0] - before < 11 * INTERVAL
            await asyncio.sleep(5.1)
            assert reports[-1][1] == ["False"]


@pytest.mark.claim("P6")
async def test_definitions_that_come_and_go_are_looked_up_at_a_pace_and_the_last_one_is():
    async with FakeApi() as api:
        set_ready(api, ready=True)
        numbers = itertools.count()

        def change(is_added):
            name = f"n{next(numbers) // 2}.example.com"
            if is_added:
                api.put(DEFINITIONS, {"metadata": {"name": name}, "spec": {"group": "x"}})
            else:
                api.remove(DEFINITIONS, name)

        async with session_with(api) as (_, reports):
            await flap(change)
            passes = 10 + MINUTE / 5 + 1
            assert len(reports) <= passes
            # The pace of changes, and that of the time until the kinds are settled.
            assert len(api.seen("get", "/apis$")) <= 2 * passes
            assert len(api.seen("list", "/nodes")) <= 2 * passes
            define(api)
            # One change for the definition, and one for the kinds that are looked up then.
            await asyncio.sleep(2 * 5.1)
            assert reports[-1][2] == ("boats.example.com",)
            assert "example.com/v1/Boat" in reports[-1][3]


async def test_a_change_after_a_quiet_time_is_handled_at_once():
    async with FakeApi() as api:
        set_ready(api, ready=True)
        async with session_with(api) as (_, reports):
            await flap(lambda ready: set_ready(api, ready))
            await asyncio.sleep(QUIET)
            reports.clear()
            before = asyncio.get_running_loop().time()
            set_ready(api, ready=True)
            define(api)
            await asyncio.sleep(0.5)
            assert reports[0][1] == ["True"]
            assert any("example.com/v1/Boat" in kinds for *_, kinds in reports)
            assert reports[-1][0] - before < 0.5


async def test_a_node_that_flaps_with_its_lease_is_never_delayed_and_heartbeats_are_no_changes():
    async with FakeApi() as api:
        set_ready(api, ready=True)
        async with session_with(api) as (_, reports):
            changes = []
            for number in range(60):
                await asyncio.sleep(10)
                changes.append(asyncio.get_running_loop().time())
                set_ready(api, ready=number % 2 == 1)
                for beat in range(20):
                    status = "True" if number % 2 else "False"
                    api.put(NODES, node({"status": status, "lastHeartbeatTime": f"{beat}"}))
            await asyncio.sleep(1)
            assert [report[0] for report in reports] == pytest.approx(changes, abs=0.1)


async def test_an_operator_with_many_definitions_can_be_used_seconds_after_the_last_one():
    async with FakeApi() as api:
        set_ready(api, ready=True)
        async with session_with(api) as (_, reports):
            for number in range(170):
                api.put(DEFINITIONS, {"metadata": {"name": f"n{number}.g{number}.example.com"}})
                await asyncio.sleep(0.1)
            define(api)
            await asyncio.sleep(2 * 5.1)
            assert len(reports[-1][2]) == 171
            assert "example.com/v1/Boat" in reports[-1][3]


async def test_doubts_have_a_pace():
    async with FakeApi() as api, session_with(api) as (session, _):
        await flap(lambda _: session.doubt())
        assert len(api.seen("list", "/nodes")) <= 10 + MINUTE / 5 + 1 + MINUTE / 10


@pytest.mark.claim("P6")
async def test_a_cluster_that_flaps_has_its_status_written_at_a_pace(env, member, monkeypatch):
    async def write_slowly(*arguments, **options):
        # The node changes meanwhile, and the write has the reconciler look again.
        await asyncio.sleep(3 * INTERVAL)
        await write(*arguments, **options)

    monkeypatch.setattr(placement_deployment, "write", write_slowly)
    set_ready(member, ready=True)
    async with env.deploying():
        await env.add_member(member)
        await env.until_online("one")
        await asyncio.sleep(QUIET)
        env.api.requests.clear()
        await flap(lambda ready: set_ready(member, ready))
        assert 15 <= len(env.api.seen("PATCH")) <= 10 + MINUTE / 5 + 1
        await asyncio.sleep(5.1)
        status = await env.until_cluster(lambda _status: True, "one")
        assert reason_of(status, "NodesReady") == "NodeNotReady"
        await asyncio.sleep(QUIET)
        set_ready(member, ready=True)
        async with asyncio.timeout(0.5):
            await env.until_online("one")


@pytest.mark.claim("P6")
async def test_an_application_whose_objects_flap_has_its_status_written_at_a_pace(env, member):
    def report(available):
        (workload,) = member.objects.all(DEPLOYMENTS).values()
        status = {"observedGeneration": workload["metadata"]["generation"], "replicas": 1}
        status |= {"updatedReplicas": 1, "availableReplicas": int(available)}
        member.put(DEPLOYMENTS, {**workload, "status": status})

    async with env.deploying():
        await env.deploy(member, deployment("web"))
        await asyncio.sleep(QUIET)
        env.api.requests.clear()
        await flap(report)
        writes = env.api.seen("PATCH", "/applications/app/status$")
        assert 20 <= len(writes) <= 30 + MINUTE / 2 + 1
        await asyncio.sleep(5.1)
        status = await env.until(lambda _status: True)
        assert next(state.status for state in status.conditions if state.type == "Ready") == "False"
