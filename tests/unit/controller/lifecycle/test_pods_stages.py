"""Pods of a version with stages: no more are released than its stage allows, whatever fails."""

from __future__ import annotations

import asyncio
import time

import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import PODS, REPLICA_SETS, STATEFUL_SETS, WORKLOAD_VERSIONS
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.staged_releases import SELECTOR, StagedPod
from harbourmaster.kube.errors import NotFoundError, UnreachableError
from harbourmaster.lifecycle.model import StageStatus, WorkloadVersionStatus
from helpers.gated import (
    CHECKED,
    MINE,
    PROD,
    REMOVED,
    annotations_of,
    gates,
    keptn,
    make,
    names,
    owner_ref,
    pod,
    put,
    replica_set,
    set_status,
    version_of,
    version_there,
    waiting,
)
from helpers.lifecycle import RECONCILERS, context_of, running
from helpers.phased import STAMP, workload_version

STAGES = "gates.harbourmaster.dev/stages"
STAGE = "gates.harbourmaster.dev/stage"
LABEL = "gates.harbourmaster.dev/staged"
NAME = "shop-waiter-1.0"
DESIRED = "deployment.kubernetes.io/desired-replicas"
UNSEEN = 31
pytestmark = pytest.mark.usefixtures("pod_owners")


def staged(name, **more):
    labels = {LABEL: "true", **more.pop("labels", {})}
    return pod(name, {**keptn(), STAGES: "2, 100%"}, labels=labels, **more)


def staged_pods(*numbers):
    return [staged(f"waiter-{number}") for number in numbers]


def want(api, replicas):
    """Let the Deployment want so many pods."""
    stored = replica_set()
    stored["metadata"]["annotations"][DESIRED] = str(replicas)
    put(api, REPLICA_SETS, stored)


def set_stage(api, number=1, state="Releasing", **fields):
    stage = {"number": number, "of": 2, "state": state, **fields}
    set_status(api, WORKLOAD_VERSIONS, NAME, {**CHECKED, "stage": stage})


def released(api):
    return [name for name in names(api, PODS) if name not in waiting(api)]


async def begin(api, world, *, number=1, **fields):
    """Let the version be in its first stage, as soon as it exists."""
    await version_there(api, world)
    set_stage(api, number, **fields)


async def settle():
    """Give everything that is under way the time to end."""
    await asyncio.sleep(5)


class Flawed:
    """A client whose watch of staged pods can be kept back, and whose releases can fail.

    ``fail`` is asked before each release, and after it; what it returns is raised.
    """

    def __init__(self, client):
        self._client = client
        self.api = client.api if hasattr(client, "api") else None
        self.is_watching = asyncio.Event()
        self.is_watching.set()
        self.may_patch = asyncio.Event()
        self.may_patch.set()
        self.fail = lambda _name, _is_done: None
        self.lists = 0

    def __getattr__(self, name):
        return getattr(self._client, name)

    async def list(self, resource, *arguments, **options):
        if options.get("label_selector") == SELECTOR:
            if options.get("metadata_only"):
                self.lists += 1
            else:
                await self.is_watching.wait()
        return await self._client.list(resource, *arguments, **options)

    async def watch(self, resource, *arguments, **options):
        async for event in self._client.watch(resource, *arguments, **options):
            if options.get("label_selector") == SELECTOR:
                await self.is_watching.wait()
            yield event

    async def patch(self, resource, name, patch, *arguments, **options):
        if resource != PODS:
            return await self._client.patch(resource, name, patch, *arguments, **options)
        await self.may_patch.wait()
        for is_done in (False, True):
            if error := self.fail(name, is_done):
                raise error
            if not is_done:
                answer = await self._client.patch(resource, name, patch, *arguments, **options)
        return answer


@pytest.fixture
def flawed(client):
    return Flawed(client)


async def test_a_stage_releases_its_pods_which_bear_its_number(api, flawed):
    want(api, 4)
    make(api, *staged_pods(1, 2, 3, 4))
    async with running(flawed, *MINE) as world:
        await version_there(api, world)
        await settle()
        assert not released(api)
        set_stage(api)
        await settle()
        assert len(released(api)) == 2
        assert {annotations_of(api, name)[STAGE] for name in released(api)} == {"1"}
        first = set(released(api))
        set_stage(api, 2)
        await world.until(lambda: not waiting(api))
        others = set(names(api, PODS)) - first
        assert {annotations_of(api, name)[STAGE] for name in others} == {"2"}
    assert flawed.lists == 1


@pytest.mark.parametrize("label", [{}, {LABEL: "no"}])
async def test_a_pod_that_admission_did_not_label_gets_its_label_before_its_release(
    api, flawed, label
):
    want(api, 4)
    bare = staged("waiter-1")
    bare["metadata"]["labels"] = {"app": "shop", **label}
    make(api, bare)
    async with running(flawed, *MINE) as world:
        await begin(api, world)
        await world.until(lambda: not waiting(api))
    assert api.get(PODS, "waiter-1", PROD)["metadata"]["labels"] == {"app": "shop", LABEL: "true"}


def seconds_per_pod(caches, number):
    """The time in which a released pod comes and goes, and one that waits asks for room."""
    releases, store = caches.staged_releases, caches.staged_pods.store
    stage = StageStatus(number=2, of=2, state="Releasing")
    version = workload_version(stages="100%", status=WorkloadVersionStatus(stage=stage))
    counted = StagedPod(version=version.metadata.key, is_released=True, ready_since=STAMP)
    places = [f"prod/canary-{index}" for index in range(number)]
    begin = time.process_time()
    for place in places:
        store.put(place, replace(counted, uid=place))
        releases.observe({place})
        releases.room(version)
    assert releases.room(version) == -number
    for place in places:
        store.remove(place)
        releases.observe({place})
    assert releases.room(version) == 0
    return (time.process_time() - begin) / number


async def test_the_cost_of_a_pod_does_not_grow_with_the_pods_of_its_version(client):
    caches = context_of(client).caches
    few, many = (min(seconds_per_pod(caches, number) for _ in range(3)) for number in (200, 4000))
    assert many < 5 * few
    assert (caches.staged_releases._counted, caches.staged_releases._releases) == ({}, {})


@pytest.mark.parametrize("state", ["Completed", "Skipped", "Refused"])
async def test_all_pods_are_released_where_stages_are_over(api, flawed, state):
    want(api, 4)
    make(api, *staged_pods(1, 2, 3, 4))
    async with running(flawed, *MINE) as world:
        await begin(api, world, number=0, state=state)
        await world.until(lambda: not waiting(api))


async def test_scaling_up_releases_more_unless_the_stage_is_held(api, flawed):
    want(api, 1)
    make(api, *staged_pods(1, 2, 3, 4))
    async with running(flawed, *MINE) as world:
        await begin(api, world)
        await settle()
        assert len(released(api)) == 1
        want(api, 8)
        await settle()
        assert len(released(api)) == 2
        set_stage(api, 2, "Held", allowed=2)
        want(api, 80)
        await settle()
        assert len(released(api)) == 2


async def test_a_deleted_pod_is_replaced_while_the_stage_is_held(api, flawed):
    want(api, 4)
    make(api, *staged_pods(1, 2, 3, 4))
    async with running(flawed, *MINE) as world:
        await begin(api, world)
        await settle()
        set_stage(api, 1, "Held", allowed=2)
        await settle()
        api.remove(PODS, released(api)[0], PROD)
        await settle()
        assert (len(released(api)), len(waiting(api))) == (2, 1)


async def test_pods_that_have_ended_take_no_room(api, flawed):
    want(api, 4)
    make(api, *staged_pods(1, 2, 3, 4))
    async with running(flawed, *MINE) as world:
        await begin(api, world)
        await settle()
        set_status(api, PODS, released(api)[0], {"phase": "Failed"})
        await settle()
        assert len(released(api)) == 3


@pytest.mark.parametrize("is_done", [False, True])
async def test_a_release_whose_answer_is_lost_counts_once(api, flawed, is_done):
    want(api, 4)
    make(api, *staged_pods(1, 2, 3, 4))
    failures = dict.fromkeys(names(api, PODS), 2)

    def fail(name, at):
        if at is is_done and failures[name]:
            failures[name] -= 1
            return UnreachableError("lost")
        return None

    flawed.fail = fail
    async with running(flawed, *MINE) as world:
        await begin(api, world)
        await settle()
        assert len(released(api)) == 2
    assert len(released(api)) == 2


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_no_more_pods_are_released_while_the_watch_is_behind(api, flawed, is_restarted):
    want(api, 4)
    make(api, *staged_pods(1, 2, 3, 4))
    async with running(flawed, *MINE) as world:
        await version_there(api, world)
        flawed.is_watching.clear()
        set_stage(api)
        await settle()
        assert len(released(api)) == 2
        if is_restarted:
            await world.stop()
            world.start()
        make(api, *staged_pods(5, 6))
        await asyncio.sleep(3 * UNSEEN)
        assert len(released(api)) == 2
        flawed.is_watching.set()
        api.remove(PODS, released(api)[0], PROD)
        await settle()
        assert len(released(api)) == 2


async def test_a_leader_counts_what_another_one_released(api, flawed):
    want(api, 4)
    make(api, *staged_pods(1, 2, 3, 4))
    async with running(flawed, *MINE) as world:
        await version_there(api, world)
        await world.stop()
        flawed.is_watching.clear()
        for number in (1, 2):
            name = f"waiter-{number}"
            stored = api.get(PODS, name, PROD)
            metadata, spec = stored["metadata"], stored["spec"]
            notes = {**metadata["annotations"], STAGE: "1", REMOVED: "true"}
            changed = {**metadata, "annotations": notes}
            api.put(PODS, {**stored, "metadata": changed, "spec": {**spec, "schedulingGates": []}})
        set_stage(api)
        world.start()
        await settle()
        assert released(api) == ["waiter-1", "waiter-2"]
        api.remove(PODS, "waiter-1", PROD)
        await settle()
        flawed.is_watching.set()
        await settle()
        assert len(released(api)) == 2


async def test_a_pod_that_goes_before_its_release_gives_its_room_to_the_next_one(api, flawed):
    want(api, 4)
    make(api, *staged_pods(1, 2, 3, 4))
    gone = []

    def fail(name, is_done):
        if len(gone) < 2 and not is_done:
            gone.append(name)
            return NotFoundError("gone")
        return None

    flawed.fail = fail
    async with running(flawed, *MINE) as world:
        await version_there(api, world)
        flawed.is_watching.clear()
        set_stage(api)
        await settle()
        assert len(released(api)) == 2
        assert not set(released(api)) & set(gone)


async def test_a_list_in_the_middle_of_a_term_forgets_no_release_under_way(api, flawed):
    want(api, 4)
    make(api, *staged_pods(1))
    async with running(flawed, *MINE) as world:
        await version_there(api, world)
        flawed.is_watching.clear()
        make(api, *staged_pods(2, 9))
        await settle()
        flawed.may_patch.clear()
        set_stage(api)
        await asyncio.sleep(UNSEEN)
        make(api, *staged_pods(3, 4, 5))
        await settle()
        assert flawed.lists == 2
        flawed.may_patch.set()
        await settle()
        assert len(released(api)) == 2


async def test_the_room_of_a_pod_that_the_watch_never_brings_is_given_to_another(api, flawed):
    want(api, 2)
    make(api, staged("waiter-1"))
    async with running(flawed, *MINE) as world:
        await version_there(api, world)
        flawed.is_watching.clear()
        make(api, *staged_pods(2, 3))
        set_stage(api)
        await settle()
        assert len(released(api)) == 2
        for name in set(released(api)) - {"waiter-1"}:
            api.remove(PODS, name, PROD)
        await asyncio.sleep(2 * UNSEEN)
        assert not waiting(api)


def of_set(name, uid):
    owners = [owner_ref("StatefulSet", "store", "s-1")]
    label = {"controller-revision-hash": "store-1"}
    return staged(name, owners=owners, labels=label, uid=uid)


async def test_a_pod_with_the_name_of_a_former_one_is_another_pod(api, flawed):
    metadata = {"name": "store", "namespace": PROD, "uid": "s-1", "generation": 1}
    status = {"observedGeneration": 1, "updateRevision": "store-1", "replicas": 4}
    obj = {"metadata": metadata, "spec": {"replicas": 4}, "status": status}
    put(api, STATEFUL_SETS, obj)
    put(api, PODS, of_set("store-0", "p-0"))
    put(api, PODS, of_set("store-1", "p-1"))
    async with running(flawed, *MINE) as world:
        await begin(api, world)
        await world.until(lambda: not waiting(api))
        for number in (2, 3):
            flawed.is_watching.clear()
            api.remove(PODS, "store-0", PROD)
            put(api, PODS, of_set("store-0", f"p-0-{number}"))
            put(api, PODS, of_set(f"store-{number}", f"p-{number}"))
            await settle()
            assert len(released(api)) <= 2
            flawed.is_watching.set()
            await settle()
            assert len(released(api)) == 2
    assert gates(api, "store-3") or gates(api, "store-2")
    assert version_of(api)["status"]["stage"]["number"] == 1


@pytest.fixture
def woken():
    """The keys of the versions that are reconciled by ``noting``."""
    return []


@pytest.fixture
def noting(woken):
    """The reconcilers, of which that of versions only notes their keys."""

    class Noting:
        def __init__(self, _context):
            pass

        def map_changes(self, keys):
            return list(keys or ())

        async def reconcile(self, key):
            woken.append(key)

    return {
        **{name: RECONCILERS[name] for name in MINE},
        watches.WORKLOAD_VERSIONS: Noting,
    }


async def test_a_version_is_looked_at_when_its_last_waiting_pod_is_gone(api, client, woken, noting):
    make(api, pod("waiter-1"), pod("waiter-2"))
    async with running(client, reconcilers=noting) as world:
        await version_there(api, world)
        await settle()
        woken.clear()
        api.remove(PODS, "waiter-1", PROD)
        await settle()
        assert woken == []
        api.remove(PODS, "waiter-2", PROD)
        await settle()
    assert woken == [f"{PROD}/{NAME}"]


async def test_a_version_is_looked_at_when_a_pod_of_its_stage_is_ready(api, flawed, woken, noting):
    want(api, 4)
    make(api, *staged_pods(1))
    async with running(flawed, reconcilers=noting) as world:
        await begin(api, world)
        await world.until(lambda: not waiting(api))
        woken.clear()
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-03-01T10:01:00Z"}
        set_status(api, PODS, "waiter-1", {"phase": "Running", "conditions": [ready]})
        await settle()
        assert f"{PROD}/{NAME}" in woken
