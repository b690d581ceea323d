"""Controllers that die while pods wait: the next one lets them go. And what is watched."""

from __future__ import annotations

import asyncio
import re

import pytest

from harbourmaster.api.resources import JOBS
from harbourmaster.controller.lifecycle.wait_watches import LINGER
from helpers.flow.manifests import (
    deployment,
    job,
    of_kind,
    pod,
    stay_waiting,
    until_noted,
    until_waiting,
    waits,
)
from helpers.patience import PATIENCE

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
async def flow(request, harbour, client):
    """A namespace that asked for no gates."""
    async with harbour.flow(client, request.node.name, enabled=False) as flow:
        yield flow
        assert harbour.new_faults() == []


async def die(harbour):
    await asyncio.to_thread(harbour.installation.kill, "controller")


async def rise(harbour):
    await asyncio.to_thread(harbour.installation.launch, "controller")
    await asyncio.to_thread(harbour.installation.await_ready, "controller")


async def test_without_a_controller_pods_wait_and_the_next_one_lets_them_go(flow, harbour):
    await die(harbour)
    await flow.create(
        pod("bare", "job/migrate"), deployment("web", waits("job/migrate, cm/settings"))
    )
    await until_waiting(flow, "bare", "web")
    await flow.create(job("migrate"), of_kind("ConfigMap", "settings"))
    await flow.until_like(*ended("migrate"))
    await rise(harbour)
    await flow.until_released("bare")
    await flow.until_released("web")


def ended(name):
    """A Job that has ended, as ``until_like`` takes it."""
    return JOBS, name, {"status": {"succeeded": 1}}


@pytest.mark.parametrize("moment", ["admitted", "watched", "told", "half", "ended", "timed-out"])
async def test_a_controller_may_die_at_any_moment(flow, harbour, moment):
    limits = {"timeout": "1s", "on_timeout": "Fail"} if moment == "timed-out" else {}
    parts = ["web", *(f"bare-{number}" for number in range(8))]
    await flow.create(
        deployment("web", waits("job/migrate", "cm/settings", **limits)),
        *(pod(name, "job/migrate", "cm/settings", limits=limits) for name in parts[1:]),
    )
    if moment == "admitted":
        await die(harbour)
    await until_waiting(flow, *parts)
    if moment == "watched":
        await stay_waiting(flow, "web")
        await die(harbour)
    if moment == "told":
        await until_noted(flow, "GateWaiting", "web", "job/migrate: does not exist")
        await die(harbour)
    await flow.create(job("migrate"), of_kind("ConfigMap", "other"))
    await flow.until_like(*ended("migrate"))
    if moment == "half":
        await die(harbour)
    if moment == "timed-out":
        await until_noted(flow, None, "bare-0", "it stays blocked")
        await die(harbour)
    await flow.create(of_kind("ConfigMap", "settings"))
    if moment == "ended":
        await die(harbour)
    await rise(harbour)
    if moment == "timed-out":
        await stay_waiting(flow, "bare-0")
        return
    for part in parts:
        await flow.until_released(part)


async def test_one_watch_by_kind_serves_fifty_pods_and_ends_with_the_last(flow, harbour):
    def watches():
        """The open watches of the API server, by kind."""
        text = harbour.plane.kubectl("get", "--raw=/metrics").stdout
        samples = re.findall(
            r'^apiserver_longrunning_requests\{(.*verb="WATCH".*)\} (\S+)$', text, re.MULTILINE
        )
        counts = {"jobs": 0.0, "statefulsets": 0.0, "services": 0.0}
        for labels, value in samples:
            kind = re.search(r'resource="([^"]*)"', labels)[1]
            if kind in counts and 'scope="namespace"' in labels:
                counts[kind] += float(value)
        return counts

    async def until_more(**more):
        expected = {kind: before[kind] + more.get(kind, 0) for kind in before}
        counts = None
        async with asyncio.timeout(LINGER + PATIENCE):
            # Changes of metrics wake nothing.
            while counts != expected:
                await asyncio.sleep(0.1)
                counts = await asyncio.to_thread(watches)

    before = await asyncio.to_thread(watches)
    names = [f"p{number}" for number in range(50)]
    await flow.create(
        *(pod(name, f"statefulset/s{index % 7}", "svc/db") for index, name in enumerate(names))
    )
    await until_waiting(flow, *names)
    await until_more(statefulsets=1, services=1)
    for name in names:
        await flow.delete("Pod", name)
    await until_more()
