"""Events about waiting pods and their owners: on which objects, how many, and until when."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.controller.lifecycle import wait_events
from harbourmaster.controller.lifecycle.owners import decode_owner
from harbourmaster.controller.lifecycle.wait_events import INTERVAL, WaitEventReconciler
from harbourmaster.kube.errors import ConflictError, ForbiddenError, NotFoundError
from harbourmaster.lifecycle.gate_waits import REPEAT, SETTLED
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.model import StageStatus
from helpers.gated import GATE, keptn, owner_ref, pod, replica_set
from helpers.lifecycle import context_of
from helpers.lifecycle_objects import waiter_version
from helpers.virtual_time import virtual

VERSION = "shop-waiter-1.0"
KEY = f"prod/{VERSION}"
HELD_BY = "gates.harbourmaster.dev/held-by"
START = datetime(2026, 3, 1, 10, tzinfo=UTC)
MISSING = "GateDefinitionMissing"


class Patches:
    """A client that accepts patches of pods, or raises ``error``."""

    def __init__(self):
        self.error = None
        self.taken = []

    async def patch(self, resource, name, patch, namespace):
        self.taken.append(
            (resource.kind, name, [operation.get("value") for operation in patch.operations])
        )
        if self.error is not None:
            raise self.error


class Waits:
    """The reconciler on caches that a test fills; ``told`` are its events with their times."""

    def __init__(self):
        self.client = Patches()
        self.context = context_of(self.client, now=self.now)
        self.caches = self.context.caches
        self.reconciler = WaitEventReconciler(self.context)
        self.told = []
        self.context.signals.on_told = self._note
        self.put(self.caches.replica_sets, replica_set(), decode_owner)

    def now(self):
        return START + timedelta(seconds=asyncio.get_running_loop().time())

    def _note(self):
        signal = self.context.signals.kept[-1]
        self.told.append((round(asyncio.get_running_loop().time(), 3), signal.about, signal.reason))

    def put(self, cache, obj, decode=None):
        metadata = obj["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}"
        cache.store.put(key, decode(msgspec.json.encode(obj)) if decode else obj)

    def wait(self, *names, **options):
        """Add pods that wait."""
        for name in names:
            self.put(self.caches.pods, pod(name, uid=f"u-{name}", **options), decode_pod)

    def version(self):
        checks = {"pre_deployment_tasks": ("warm",), "pre_deployment_evaluations": ("rate",)}
        version = waiter_version(spec=checks, current_phase="WorkloadPreDeployTasks")
        self.caches.workload_versions.store.put(KEY, version)

    async def run(self, seconds, *keys):
        """Reconcile as the queue does, for so long; return when the next look would be."""
        clock = asyncio.get_running_loop().time
        end = clock() + seconds
        again = dict.fromkeys(keys or (KEY,), clock())
        while again and min(again.values()) <= end:
            key = min(again, key=again.__getitem__)
            await asyncio.sleep(again.pop(key) - clock())
            left = await self.reconciler.reconcile(key)
            if left is not None:
                again[key] = clock() + left
        await asyncio.sleep(max(end - clock(), 0))
        return min(again.values(), default=None)

    @property
    def abouts(self):
        return [about for _, about, _ in self.told]


@virtual
async def test_the_deployment_is_told_first_and_then_each_pod_once_after_three_seconds():
    waits = Waits()
    waits.version()
    waits.wait("waiter-1", "waiter-2")
    await waits.run(60)
    assert waits.told == [
        (SETTLED, "Deployment waiter", MISSING),
        (SETTLED + INTERVAL, "Pod waiter-1", MISSING),
        (SETTLED + 2 * INTERVAL, "Pod waiter-2", MISSING),
    ]
    (_, value) = waits.client.taken[0][2]
    assert (waits.client.taken[0][:2], value) == (("Pod", "waiter-1"), VERSION)
    waits.wait("waiter-3")
    await waits.run(1)
    assert waits.abouts[3:] == ["Pod waiter-3"]


@virtual
async def test_a_pod_waits_for_its_stage_without_a_warning_and_held_is_one_once():
    waits = Waits()
    waits.wait("waiter-1", labels={"gates.harbourmaster.dev/staged": "true"})
    keys = ("pre_deployment_status", "pre_deployment_evaluation_status")
    passed = {**dict.fromkeys(keys, "Succeeded"), "deployment_status": "Progressing"}
    for state, reason in (("Releasing", "GateWaiting"), ("Held", "GateBlocked")):
        before = len(waits.told)
        stage = StageStatus(number=1, of=2, state=state, wanted=4, allowed=1, released=1)
        version = waiter_version(spec={"stages": "1"}, **passed, stage=stage)
        waits.caches.workload_versions.store.put(KEY, version)
        await waits.run(600)
        told = [(about, given) for _, about, given in waits.told[before:]]
        assert told == [("Deployment waiter", reason), ("Pod waiter-1", reason)]
    texts = [report.text for report in waits.context.signals.kept]
    assert texts[0] == "waits for stage 1 of 2: 1 of 4 pods released, not all of them are ready"
    assert "harbourmaster gate promote keptnworkload/shop-waiter -n prod" in texts[-1]


@virtual
async def test_never_more_than_five_events_a_second_of_all_versions_and_none_is_lost():
    waits = Waits()
    waits.version()
    waits.wait(*(f"waiter-{number}" for number in range(30)))
    original = waits.caches.workload_versions.store.get(KEY)
    keys = [KEY]
    for number in range(3):
        name = f"shop-other-{number}-1.0"
        spec = msgspec.structs.replace(original.spec, workload_name=f"shop-other-{number}")
        metadata = msgspec.structs.replace(original.metadata, name=name)
        copy = msgspec.structs.replace(original, metadata=metadata, spec=spec)
        waits.caches.workload_versions.store.put(f"prod/{name}", copy)
        waits.wait(f"other-{number}", annotations=keptn(f"other-{number}"))
        keys.append(f"prod/{name}")
    await waits.run(60, *keys)
    # One Deployment of all, told of four versions.
    assert len(waits.told) == 30 + 3 + 4
    times = [at for at, *_ in waits.told]
    assert all(later - at > 0.999 for at, later in zip(times, times[5:], strict=False))
    # No version waits until another one's pods were told.
    assert {"Pod other-0", "Pod other-1", "Pod other-2"} <= {*waits.abouts[:12]}


@virtual
async def test_what_waits_is_told_again_after_45_minutes_and_no_more_once_it_goes():
    waits = Waits()
    waits.version()
    waits.wait("waiter-1")
    await waits.run(REPEAT + 60)
    assert waits.abouts == ["Deployment waiter", "Pod waiter-1"] * 2
    assert waits.told[2][0] - waits.told[0][0] == REPEAT
    waits.caches.pods.store.remove("prod/waiter-1")
    assert await waits.run(2 * REPEAT) is None
    # A wait that begins again must last again.
    waits.wait("waiter-2")
    await waits.run(SETTLED - 0.1)
    assert len(waits.told) == 4


@virtual
async def test_a_pod_that_goes_while_its_event_waits_for_its_turn_is_not_told():
    waits = Waits()
    waits.version()
    waits.wait("waiter-1", "waiter-2")
    turn = asyncio.create_task(waits.run(10))
    await asyncio.sleep(SETTLED + INTERVAL / 2)
    assert waits.abouts == ["Deployment waiter"]
    waits.caches.pods.store.remove("prod/waiter-1")
    await turn
    assert waits.abouts == ["Deployment waiter", "Pod waiter-2"]


@pytest.mark.parametrize(
    ("owner", "about"),
    [
        (owner_ref("StatefulSet", "store", "s-1"), "StatefulSet store"),
        (owner_ref("DaemonSet", "agent", "d-9"), "DaemonSet agent"),
        (owner_ref("ReplicaSet", "lone-rs", "rs-9"), "ReplicaSet lone-rs"),
    ],
)
@virtual
async def test_the_owner_is_the_one_at_which_users_look(owner, about):
    waits = Waits()
    waits.put(waits.caches.replica_sets, replica_set("lone-rs", "rs-9", above=None), decode_owner)
    waits.version()
    waits.wait("waiter-1", owners=[owner])
    await waits.run(10)
    assert waits.abouts == [about, "Pod waiter-1"]


@pytest.mark.parametrize(
    "options",
    [
        {"gates": ("example.com/quota",)},
        {"deletionTimestamp": "2026-03-01T10:00:00Z"},
        {"owners": [owner_ref("Job", "j", "j")]},
        {"annotations": {**keptn(), "gates.harbourmaster.dev/parent": "unresolved"}},
    ],
    ids=["others' gate", "ending", "orphan", "provisional"],
)
@virtual
async def test_pods_that_wait_for_no_check_are_not_told(options):
    waits = Waits()
    waits.version()
    waits.wait("waiter-1", **options)
    assert await waits.run(60) is None
    assert waits.told == []
    waits.wait("waiter-2")
    await waits.run(60)
    assert waits.abouts == ["Deployment waiter", "Pod waiter-2"]


@virtual
async def test_an_annotation_that_is_there_is_left_and_one_that_is_refused_hides_no_event():
    waits = Waits()
    waits.version()
    waits.wait("waiter-1", annotations={**keptn(), HELD_BY: "another"})
    await waits.run(10)
    assert waits.client.taken == []
    for error in (ForbiddenError("denied"), NotFoundError("gone")):
        waits.client.error = error
        waits.wait(f"of {type(error).__name__}")
        await waits.run(10)
    assert waits.abouts[2:] == ["Pod of ForbiddenError", "Pod of NotFoundError"]
    waits.client.error = ConflictError("changed meanwhile")
    waits.wait("changed")
    with pytest.raises(ConflictError):
        await waits.run(10)
    waits.client.error = None
    await waits.run(10)
    assert waits.abouts[4:] == ["Pod changed"]


@virtual
async def test_a_new_leader_looks_at_the_versions_of_all_waiting_pods():
    waits = Waits()
    waits.wait("waiter-1", "waiter-2")
    waits.wait("free", gates=())
    waits.wait("next", annotations=keptn(version="2.0"))
    assert set(waits.reconciler.map_changes(None)) == {KEY, "prod/shop-waiter-2.0"}
    assert set(waits.reconciler.map_changes(["prod/one"])) == {"prod/one"}
    assert GATE in waits.caches.pods.store.get("prod/next").gates


@virtual
async def test_of_many_pods_only_the_one_whose_event_is_due_gets_a_reference(monkeypatch):
    made = []
    right = wait_events.reference
    monkeypatch.setattr(
        wait_events, "reference", lambda *given: made.append(given) or right(*given)
    )
    waits = Waits()
    waits.version()
    waits.wait(*(f"waiter-{number}" for number in range(1, 100)))
    await waits.run(SETTLED + 1)
    assert len(made) == len([about for about in waits.abouts if about.startswith("Pod")]) == 5
