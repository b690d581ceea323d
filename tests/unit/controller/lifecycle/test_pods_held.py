"""Gated pods that stay gated: orphans, bad names, missing permissions, and their age."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from harbourmaster.api.resources import (
    APP_CREATION_REQUESTS,
    PODS,
    REPLICA_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.controller.lifecycle import pod_reports, pods
from helpers.gated import (
    CREATED,
    LATER,
    MINE,
    PROD,
    REMOVED,
    annotations_of,
    keptn,
    let_pass,
    make,
    names,
    owner_ref,
    pod,
    put,
    release,
    replica_set,
    tick,
    version_there,
    waiting,
    workload_of,
)
from helpers.lifecycle import await_signal, running

pytestmark = pytest.mark.usefixtures("pod_owners")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"annotations": {"example.com/a": "b"}}, "no longer names a workload"),
        ({"owners": []}, "owns it"),
        ({"owners": [owner_ref("Job", "j", "j")]}, "owns it"),
    ],
)
async def test_orphans_are_reported_and_stay(api, client, changes, why):
    make(api, pod(**changes))
    async with running(client, *MINE) as world:
        await world.until(lambda: world.signals.kept or tick(world))
        # Once, however often it changes.
        api.put(PODS, pod(labels={"a": "b"}, **changes))
        make(api, pod("passer-1", keptn("passer"), uid="p"))
        await version_there(api, world, "shop-passer-1.0")
    (signal,) = [emitted for emitted in world.signals.kept if emitted.about == "Pod waiter-1"]
    assert (signal.reason, signal.warning) == ("GateOrphaned", True)
    assert why in signal.text
    assert "waiter-1" in waiting(api)


async def test_an_orphan_is_reported_again_before_its_event_expires(api, client, monkeypatch):
    monkeypatch.setattr(pods, "REPEAT", 0.05)
    monkeypatch.setattr(pod_reports, "REPEAT", 0.05)
    make(api, pod(owners=[]))
    async with running(client, *MINE) as world:
        await world.until(lambda: len(world.signals.kept) > 2 or tick(world))
    assert set(world.signals.reasons) == {"GateOrphaned"}


async def test_a_pod_that_ends_is_left_alone(api, client):
    ending = {"deletionTimestamp": CREATED, "finalizers": ["example.com/f"]}
    make(api, pod(**ending), pod("passer-1", keptn("passer"), uid="p"))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-passer-1.0")
    assert names(api, WORKLOADS) == ["shop-passer"]


def ages(api, seconds):
    moment = datetime.fromisoformat(CREATED) + timedelta(seconds=seconds)
    return lambda: moment.astimezone(UTC)


async def test_a_pod_that_waits_too_long_is_reported_once(api, client):
    make(api, pod())
    async with running(
        client, *MINE, settings={"max_gate_age_seconds": 60.0}, now=ages(api, 61)
    ) as world:
        await version_there(api, world)
        api.put(PODS, pod(labels={"a": "b"}))
        await await_signal(world, "GateExpired")
        make(api, pod("passer-1", keptn("passer"), uid="p", created=LATER))
        await version_there(api, world, "shop-passer-1.0")
    expired = [signal for signal in world.signals.kept if signal.reason == "GateExpired"]
    assert [signal.about for signal in expired] == ["Pod waiter-1"]
    assert expired[0].text == "waits at the gate for 61 s, longer than 60 s"
    assert "waiter-1" in waiting(api)


@pytest.mark.parametrize("annotations", [None, {"example.com/a": "b"}])
async def test_a_pod_that_waits_too_long_is_released_where_that_is_wanted(api, client, annotations):
    make(api, pod(annotations=annotations))
    settings = {"max_gate_age_seconds": 60.0, "on_expiry": "Release"}
    async with running(client, *MINE, settings=settings, now=ages(api, 60)) as world:
        await world.until(lambda: not waiting(api))
        await await_signal(world, "GateReleased")
    pod_annotations = annotations_of(api)
    assert pod_annotations["gates.harbourmaster.dev/released"] == "expired"
    assert pod_annotations[REMOVED] == "true"


async def test_the_time_is_exact(api, client):
    make(api, pod())
    started = None
    first = datetime.fromisoformat(CREATED)

    def now():
        passed = 0 if started is None else asyncio.get_running_loop().time() - started
        return first + timedelta(seconds=59.5 + passed)

    settings = {"max_gate_age_seconds": 60.0, "on_expiry": "Release"}
    async with running(client, *MINE, settings=settings, now=now) as world:
        await version_there(api, world)
        assert waiting(api) == ["waiter-1"]
        started = asyncio.get_running_loop().time()
        await world.until(lambda: not waiting(api))
    assert asyncio.get_running_loop().time() - started >= 0.5


async def test_age_counts_whatever_else_fails(api, client):
    make(api, pod())
    api.forbid("create", WORKLOADS)
    settings = {"max_gate_age_seconds": 60.0, "on_expiry": "Release"}
    async with running(client, *MINE, settings=settings, now=ages(api, 60)) as world:
        await world.until(lambda: not waiting(api))


@pytest.mark.parametrize(
    ("annotations", "reason", "text"),
    [
        (keptn("no name!"), "CreateWorkloadFailed", '"shop-no name!", the name by workload'),
        (keptn(app="a/b"), "CreateWorkloadFailed", '"a/b"'),
    ],
)
async def test_illegal_names_are_told_once_and_nobody_is_asked(
    api, client, annotations, reason, text
):
    make(api, pod(annotations=annotations))
    async with running(client, *MINE) as world:
        await world.until(lambda: world.signals.kept or tick(world))
        api.put(PODS, pod(annotations=annotations, labels={"a": "b"}))
        make(api, pod("passer-1", keptn("passer"), uid="p"))
        await version_there(api, world, "shop-passer-1.0")
    signals = [signals for signals in world.signals.kept if signals.about == "Pod waiter-1"]
    assert [signal.reason for signal in signals] == [reason]
    assert text in signals[0].text
    assert names(api, WORKLOADS) == ["shop-passer"]


async def test_a_workload_of_another_app_is_not_taken(api, client):
    make(api, pod(annotations=keptn("b-c", app="a")))
    async with running(client, *MINE) as world:
        await version_there(api, world, "a-b-c-1.0")
        make(api, pod("other-1", keptn("c", app="a-b"), uid="o"))
        await await_signal(world, "CreateWorkloadFailed")
        let_pass(api, "a-b-c-1.0")
        await world.until(lambda: waiting(api) == ["other-1"])
    signals = [
        signals for signals in world.signals.kept if signals.reason == "CreateWorkloadFailed"
    ]
    assert [signal.text for signal in signals] == ["KeptnWorkload a-b-c is of the app a"]


async def test_two_versions_of_one_name_are_told_apart(api, client):
    make(api, pod(annotations=keptn(version="v1_rc")))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-waiter-v1-rc")
        await release(api, world, "shop-waiter-v1-rc")
        make(api, pod("waiter-2", keptn(version="v1-rc"), created=LATER))
        await await_signal(world, "CreateWorkloadVersionFailed")
    assert waiting(api) == ["waiter-2"]
    assert workload_of(api)["spec"]["version"] == "v1_rc"


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        (WORKLOADS, "CreateWorkloadFailed"),
        (APP_CREATION_REQUESTS, "CreateAppCreationRequestFailed"),
    ],
)
async def test_missing_rights_are_told_once_and_tried_again(api, client, resource, reason):
    make(api, pod())
    api.forbid("create", resource)
    async with running(client, *MINE) as world:
        await await_signal(world, reason)
        await api.until_seen("create", f"/{resource.plural}$", 3)
        assert world.signals.of("waiter-1") == [reason]
        api.heal()
        await version_there(api, world)
        await world.until(lambda: names(api, resource))
        assert waiting(api) == ["waiter-1"]


async def test_a_pod_whose_checks_passed_goes_though_its_app_may_not_be_written(api, client):
    make(api, pod())
    async with running(client, *MINE) as world:
        await version_there(api, world)
        await release(api, world)
        await world.until(lambda: names(api, APP_CREATION_REQUESTS))
        api.forbid("create", APP_CREATION_REQUESTS)
        api.remove(APP_CREATION_REQUESTS, "shop", PROD)
        make(api, pod("waiter-2", created=LATER))
        await world.until(lambda: not waiting(api))


async def test_a_namespace_that_ends_is_left_alone(api, client):
    make(api, pod())
    message = "unable to create new content in namespace prod because it is being terminated"
    body = json.dumps(
        {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
    ).encode()
    api.fail_next("create", "", None, status=403, body=body)
    async with running(client, *MINE) as world:
        await api.until_seen("create")
        await world.until(lambda: len(world.caches.pods.store))
    assert world.signals.kept == []
    assert len(api.seen("create")) == 1


@pytest.mark.slow
async def test_two_versions_that_can_not_be_made_do_not_write_in_turns(api, client):
    put(api, REPLICA_SETS, replica_set("canary-rs", "rs-2", above=None))
    canary = [owner_ref("ReplicaSet", "canary-rs", "rs-2")]
    make(api, pod(), pod("canary-1", keptn(version="2.0"), owners=canary))
    api.forbid("create", WORKLOAD_VERSIONS)
    async with running(client, *MINE) as world:
        # After so many attempts everybody has been woken often enough.
        await api.until_seen("create", "/keptnworkloadversions$", 6)
        writes = len(api.seen("patch", "/keptnworkloads/shop-waiter$"))
        assert writes <= 2
        api.heal()
        await world.until(lambda: names(api, WORKLOAD_VERSIONS))
