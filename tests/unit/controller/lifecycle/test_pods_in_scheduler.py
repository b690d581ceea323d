"""Pods that wait in a scheduler are annotated once with the state of their checks."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import DEPLOYMENTS, PODS, WORKLOAD_VERSIONS, WORKLOADS
from harbourmaster.controller.lifecycle import scheduler_wakeups
from helpers.gated import (
    CREATED,
    MINE,
    PROVISIONAL,
    REMOVED,
    SetClock,
    annotations_of,
    deployment,
    gates,
    keptn,
    let_pass,
    make,
    names,
    pod,
    put,
    set_status,
    tick,
    version_there,
)
from helpers.lifecycle import running
from helpers.logs import captured_log

CHECKS = "gates.harbourmaster.dev/checks"
OURS = "keptn-scheduler"
WAITS = "0/1 nodes are available: 1 waits for pre-deployment checks of shop-waiter-1.0: smoke."
VERSION = "shop-waiter-1.0"
PHASE = "WorkloadPreDeployTasks"


pytestmark = pytest.mark.usefixtures("pod_owners")


@pytest.fixture(autouse=True)
def _set_times(monkeypatch):
    monkeypatch.setattr(scheduler_wakeups, "MARGIN", 0.05)


def waiter(name="waiter-1", annotations=None, *, scheduler=OURS, refusal=WAITS, **more):
    """Return a pod that its scheduler has refused."""
    waiting_pod = pod(name, annotations, gates=(), **more)
    waiting_pod["spec"]["schedulerName"] = scheduler
    if refusal:
        waiting_pod["status"]["conditions"] = [refusal_condition(refusal)]
    return waiting_pod


def refusal_condition(message):
    return {"type": "PodScheduled", "status": "False", "message": message}


def checks_annotation(api, name="waiter-1"):
    return annotations_of(api, name).get(CHECKS)


async def pass_checks(api, world):
    """Let the checks pass, and wait until the pod is annotated with that."""
    let_pass(api)
    await world.until(lambda: checks_annotation(api) == "passed")


def answer(api, message, name="waiter-1"):
    """Write the refusal of another scheduling attempt on a pod."""
    stored = api.get(PODS, name, "prod")
    api.put(
        PODS, {**stored, "status": {"phase": "Pending", "conditions": [refusal_condition(message)]}}
    )


def patches(api):
    return [seen.path.rpartition("/")[2] for seen in api.seen("patch", "/pods/")]


def checking(**status):
    return {"startTime": CREATED, "status": "Progressing", **status}


def world_of(client, **options):
    options.setdefault("scheduler", {})
    return running(client, *MINE, **options)


async def pass_later_checks(api, world, name="passer"):
    """Wait until the checks of a later pod have passed, so that all former changes are handled."""
    make(api, waiter(f"{name}-1", keptn(name), uid=name))
    await version_there(api, world, f"shop-{name}-1.0")
    let_pass(api, f"shop-{name}-1.0")
    await world.until(lambda: checks_annotation(api, f"{name}-1") == "passed")


async def begin(api, world, pods):
    """Start the checks of the pods' version, and return the annotation of each pod."""
    await version_there(api, world)
    set_status(api, WORKLOAD_VERSIONS, VERSION, checking(currentPhase=PHASE))
    await pass_later_checks(api, world)
    return {name: checks_annotation(api, name) for name in pods}


UNTIL = "2026-03-01T10:05:00Z"
NAMED = f"1 waits for pre-deployment checks of {VERSION} until {UNTIL}: smoke."
ABSENT = f"1 waits for KeptnWorkloadVersion {VERSION}, which is not there yet."


async def test_who_was_refused_before_there_were_checks_hears_of_them_once(api, client):
    given = keptn(pre_deployment_tasks="smoke,load")
    early = waiter(annotations=given, refusal=ABSENT)
    undated = waiter("waiter-2", given, uid="w2")
    knows = waiter("waiter-3", given, uid="w3", refusal=NAMED)
    unasked = waiter("waiter-4", given, uid="w4", refusal="1 Insufficient cpu.")
    make(api, early, undated, knows, unasked)
    async with world_of(client, now=SetClock(0)) as world:
        begun = await begin(api, world, ("waiter-1", "waiter-2", "waiter-3", "waiter-4"))
        assert list(begun.values()) == ["checking", "checking", None, None]
        # The scheduler answers; a check ends; a replica that lags says the old thing again.
        answer(api, NAMED)
        answer(api, NAMED, "waiter-3")
        answer(api, ABSENT, "waiter-2")
        items = [{"definitionName": "smoke", "name": "pre-smoke-1", "status": "Succeeded"}]
        status = checking(currentPhase=PHASE, preDeploymentTaskStatus=items)
        set_status(api, WORKLOAD_VERSIONS, VERSION, status)
        await pass_later_checks(api, world, "second")
        # It comes to be asked about now only, and by one that lags.
        answer(api, ABSENT, "waiter-4")
        await world.until(lambda: checks_annotation(api, "waiter-4") == "checking")
    # Nor does the next leader tell it again.
    async with world_of(client, now=SetClock(0)) as world:
        await pass_later_checks(api, world, "third")
    mine = [patch for patch in patches(api) if patch.startswith("waiter")]
    assert sorted(mine) == ["waiter-1", "waiter-2", "waiter-4"]


async def test_checks_that_wait_for_their_app_are_told_of_when_they_begin(api, client):
    # Of another app than those beside, which wake each other.
    name = "own-waiter-1.0"
    given = keptn(app="own", pre_deployment_tasks="smoke")
    make(api, waiter(annotations=given, refusal=ABSENT.replace("shop", "own")))
    scheduler = {"pre_check_deadline_seconds": 60.0}
    clock = SetClock(0)
    async with world_of(client, now=clock, scheduler=scheduler) as world:
        await version_there(api, world, name)
        set_status(api, WORKLOAD_VERSIONS, name, checking())
        await pass_later_checks(api, world)
        assert checks_annotation(api) is None
        clock.seconds = 59.9
        set_status(api, WORKLOAD_VERSIONS, name, checking(currentPhase=PHASE))
        # A pod whose version did not come at once is looked at later anyhow.
        await world.until(lambda: checks_annotation(api) == "checking", 10)
        answer(
            api, f"1 waits for pre-deployment checks of {name} until 2026-03-01T10:01:00Z: smoke."
        )
        await pass_later_checks(api, world, "second")
        # Nothing but the time changes.
        clock.seconds = 61
        await world.until(lambda: checks_annotation(api) == "late" or tick(world), 10)


def log_lines(stream):
    lines = [line for line in stream.getvalue().decode().splitlines() if "name a scheduler" in line]
    stream.truncate(0)
    stream.seek(0)
    return lines


async def test_the_log_tells_once_of_pods_in_a_scheduler_that_is_not_ours(api, client):
    make(
        api,
        waiter(scheduler="gatekeeper"),
        waiter("waiter-2", dict(PROVISIONAL), scheduler="gatekeeper", uid="w2"),
        waiter("waiter-3", dict(PROVISIONAL), scheduler="porter", uid="w3"),
        # None of these is a sign of anything.
        waiter("a", {"app.kubernetes.io/name": "a"}, scheduler="a", uid="a"),
        waiter("b", {"example.com/a": "b"}, scheduler="b", uid="b"),
        waiter("c", scheduler="default-scheduler", uid="c"),
        waiter("d", {**keptn(), REMOVED: "true"}, scheduler="d", uid="d"),
    )
    with captured_log() as stream:
        async with world_of(client, now=SetClock(0)) as world:
            await pass_later_checks(api, world)
        first, second = sorted(log_lines(stream))
    assert '"scheduler":"gatekeeper"' in first.replace(": ", ":")
    assert (
        "the controller handles pods of keptn-scheduler: unless gatekeeper is a scheduler" in first
    )
    assert "porter" in second
    assert names(api, WORKLOADS) == ["shop-passer"]


async def test_or_in_one_that_settings_leave_out(api, client):
    make(api, waiter(), waiter("waiter-2", scheduler="bin-packer", uid="w2"))
    with captured_log() as stream:
        async with running(client, *MINE, now=SetClock(0)) as world:
            make(api, pod("passer-1", keptn("passer"), uid="p"))
            await version_there(api, world, "shop-passer-1.0")
        (line,) = log_lines(stream)
    assert "keptn-scheduler" in line
    assert "set scheduler.enabled, or the webhook's gating to schedulingGates" in line


LABELS = {
    "app.kubernetes.io/part-of": "shop",
    "app.kubernetes.io/name": "waiter",
    "app.kubernetes.io/version": "1.0",
}
RELEASED = "gates.harbourmaster.dev/released"


@pytest.mark.parametrize("in_gate", [False, True])
async def test_who_is_released_by_hand_meanwhile_stays_so(api, client, in_gate):
    """A user annotates a pod, and the watch has not delivered the annotation yet."""
    made = pod(annotations={}, labels=LABELS) if in_gate else waiter(annotations={}, labels=LABELS)
    make(api, made)
    patch = client.patch

    async def patch_after_release(resource, name, *arguments, **options):
        if resource is PODS and RELEASED not in annotations_of(api):
            stored = api.get(PODS, name, "prod")
            metadata = {**stored["metadata"], "annotations": {RELEASED: "by-hand"}}
            api.put(PODS, {**stored, "metadata": metadata})
        return await patch(resource, name, *arguments, **options)

    client.patch = patch_after_release
    async with world_of(client, now=SetClock(0)) as world:
        await version_there(api, world)
        let_pass(api)
        await world.until(lambda: RELEASED in annotations_of(api), 10)
        client.patch = patch
        await pass_later_checks(api, world)
    assert annotations_of(api)[RELEASED] == "by-hand"


async def test_a_pod_that_nobody_refused_is_not_told_that_it_may_go(api, client):
    make(api, waiter())
    async with world_of(client, now=SetClock(0)) as world:
        await version_there(api, world)
        await pass_checks(api, world)
        make(api, waiter("waiter-2", uid="w2", refusal=""))
        make(api, waiter("waiter-3", uid="w3", refusal="0/1 nodes: 1 Insufficient cpu."))
        await pass_later_checks(api, world)
        assert patches(api) == ["waiter-1", "passer-1"]
        # A replica that lags refuses one of them.
        answer(api, WAITS, "waiter-2")
        await world.until(lambda: checks_annotation(api, "waiter-2") == "passed")


async def test_the_deadline_is_told_once_and_a_late_pass_still_releases(api, client):
    make(api, waiter(), waiter("waiter-2", uid="w2"))
    scheduler = {"pre_check_deadline_seconds": 60.0}
    clock = SetClock(59.9)
    async with world_of(client, now=clock, scheduler=scheduler) as world:
        await version_there(api, world)
        set_status(api, WORKLOAD_VERSIONS, VERSION, checking())
        await pass_later_checks(api, world)
        assert checks_annotation(api) is None
        clock.seconds = 61
        await world.until(
            lambda: (
                checks_annotation(api) == checks_annotation(api, "waiter-2") == "late"
                or tick(world)
            )
        )
        await world.until(lambda: world.signals.of(VERSION) or tick(world))
    # Another leader knows by the pods.
    make(api, waiter("waiter-3", uid="w3"))
    async with world_of(client, now=SetClock(70), scheduler=scheduler) as again:
        await again.until(lambda: checks_annotation(api, "waiter-3") == "late" or tick(again))
        assert patches(api).count("waiter-1") == 1
        assert "PreCheckDeadlineExceeded" not in again.signals.reasons
        let_pass(api)
        pods = ("waiter-1", "waiter-2", "waiter-3")
        await again.until(lambda: {checks_annotation(api, pod) for pod in pods} == {"passed"})
    assert len(patches(api)) == 7
    deadlines = [
        signal for signal in world.signals.kept if signal.reason == "PreCheckDeadlineExceeded"
    ]
    assert [deadline.about for deadline in deadlines] == [f"WorkloadVersion {VERSION}"]
    assert deadlines[0].text == "checks before the deployment were not done by 2026-03-01T10:01:00Z"


async def test_checks_that_begin_anew_are_told_and_have_a_deadline_of_their_own(api, client):
    make(api, waiter())
    scheduler = {"pre_check_deadline_seconds": 60.0}
    clock = SetClock(61)
    async with world_of(client, now=clock, scheduler=scheduler) as world:
        await version_there(api, world)
        set_status(api, WORKLOAD_VERSIONS, VERSION, checking())
        await world.until(lambda: checks_annotation(api) == "late")
        restarted = "2026-03-01T10:00:01.1Z"
        set_status(api, WORKLOAD_VERSIONS, VERSION, checking(startTime=restarted))
        await world.until(lambda: checks_annotation(api) == "waiting")
        clock.seconds = 62
        await world.until(lambda: checks_annotation(api) == "late" or tick(world))
    reasons = [signal for signal in world.signals.of(VERSION) if signal.startswith("PreCheck")]
    assert reasons == ["PreCheckDeadlineExceeded"] * 2
    assert patches(api) == ["waiter-1"] * 3


async def test_a_tracked_provisional_pod_gets_what_it_is_to_carry_and_waits(api, client):
    put(api, DEPLOYMENTS, deployment(annotations=keptn()))
    make(api, waiter(annotations=dict(PROVISIONAL)))
    async with world_of(client, now=SetClock(0)) as world:
        await version_there(api, world)
        assert annotations_of(api) == keptn()
        await pass_checks(api, world)


@pytest.mark.parametrize(
    "fields",
    [
        waiter(scheduler="default-scheduler"),
        waiter(annotations={"example.com/a": "b"}),
        waiter(annotations={**keptn(), "gates.harbourmaster.dev/released": "by-hand"}),
        waiter(annotations={**keptn(), REMOVED: "true"}),
    ],
    ids=["another scheduler", "no workload", "released", "ungated"],
)
async def test_whoever_does_not_wait_is_none_of_our_business(api, client, fields):
    make(api, fields)
    async with world_of(client, now=SetClock(0)) as world:
        await pass_later_checks(api, world)
        assert not world.caches.pods.store.get("prod/waiter-1").is_ours
    assert patches(api) == ["passer-1"]
    assert names(api, WORKLOADS) == ["shop-passer"]


async def test_where_no_scheduler_asks_us_its_pods_and_nodes_are_not_looked_at(api, client):
    make(api, waiter(), pod("passer-1", keptn("passer"), uid="p"))
    async with running(client, *MINE, now=SetClock(9000)) as world:
        await version_there(api, world, "shop-passer-1.0")
        assert world.caches.started_pods is None
        assert [reflector.name for reflector in world.caches.reflectors].count("pods") == 1
    assert names(api, WORKLOADS) == ["shop-passer"]


async def test_a_gate_counts_before_the_scheduler(api, client):
    both = waiter()
    both["spec"]["schedulingGates"] = [{"name": "keptn-prechecks-gate"}]
    make(api, both)
    async with world_of(client, now=SetClock(0)) as world:
        await version_there(api, world)
        let_pass(api)
        await world.until(lambda: not gates(api))
    assert checks_annotation(api) is None
    assert annotations_of(api)[REMOVED] == "true"


async def test_a_pod_that_only_lacks_a_node_is_never_too_old(api, client):
    make(api, waiter())
    settings = {"max_gate_age_seconds": 60.0}
    async with world_of(client, now=SetClock(50), settings=settings) as world:
        await version_there(api, world)
        await pass_checks(api, world)
    async with world_of(client, now=SetClock(90), settings=settings) as world:
        make(api, waiter("passer-1", keptn("passer"), uid="p"))
        await version_there(api, world, "shop-passer-1.0")
        await world.until(lambda: "GateExpired" in world.signals.reasons or tick(world))
    assert {signal.about for signal in world.signals.kept if signal.reason == "GateExpired"} == {
        "Pod passer-1"
    }
