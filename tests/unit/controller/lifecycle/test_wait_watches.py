"""Watches of the objects that pods wait for, against a fake API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter

import pytest

from harbourmaster.api.resources import (
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    SERVICES,
    SLICES,
)
from harbourmaster.controller.lifecycle import wait_watches
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.metric_values import MetricValues
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.gates.waits import TIMED_OUT, WAIT_FOR_KEY, WAITED_KEY, kind_of, waits_of
from harbourmaster.lifecycle.gated_pods import Pod
from helpers.gated import GATE, PROD, pod
from helpers.patience import Changes

_, WIDGETS = kind_of("widgets.v1.example.com")
WAIT_FOR = "gates.harbourmaster.dev/wait-for"
COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}


@pytest.fixture(autouse=True)
def _set_times(monkeypatch):
    monkeypatch.setattr(wait_watches, "LINGER", 0.0)


def waiter(name, *items, namespace=PROD, **options):
    """Return a pod that waits for items and has no checks."""
    annotations = {"gates.harbourmaster.dev/checks": "none", WAIT_FOR: ",".join(items)}
    waiting_pod = pod(name, annotations, owners=[], **options)
    waiting_pod["metadata"]["namespace"] = namespace
    return waiting_pod


def make(api, *pods):
    for obj in pods:
        api.put(PODS, obj)


def job(name, status=None):
    return {"metadata": {"name": name, "namespace": PROD}, "status": status or {}}


def object_json(name, **fields):
    return {"metadata": {"name": name, "namespace": PROD}, **fields}


class World:
    """Running watches, and the keys of pods that they reported."""

    def __init__(self, api, client, kinds):
        self.api = api
        kinds = (*LifecycleSettings().wait_kinds, *kinds)
        self.caches = LifecycleCaches(client, settings=LifecycleSettings(wait_kinds=kinds))
        self.waits = self.caches.wait_watches
        self.told = []
        self.changes = Changes()
        self.caches.pods.subscribe(self.changes.tell)
        self.waits.subscribe(self._tell)

    def _tell(self, keys):
        self.told.append(keys)
        self.changes.tell()

    def states(self, namespace=PROD):
        reports = self.waits.reports(namespace)
        return {item.text: report.state for item, report in reports.items()}

    def text(self, item):
        texts = {wanted.text: report.text for wanted, report in self.waits.reports(PROD).items()}
        return texts.get(item)

    async def until_states(self, expected, namespace=PROD):
        await self.changes.until(lambda: self.states(namespace) == expected)

    async def until_text(self, item, part):
        await self.changes.until(lambda: part in (self.text(item) or ""))

    def count_watches(self):
        """Return the number of open watches by collection, without the watch of pods."""
        counter = Counter((watch.resource.plural, watch.namespace) for watch in self.api._watches)
        counter["pods", ""] -= 1
        return +counter


@pytest.fixture
async def world(api, client):
    async with run_watches(api, client) as running_world:
        yield running_world


@contextlib.asynccontextmanager
async def run_watches(api, client, kinds=()):
    running_world = World(api, client, kinds)
    tasks = [
        asyncio.create_task(part.run()) for part in (running_world.caches.pods, running_world.waits)
    ]
    try:
        await running_world.caches.pods.synced.wait()
        yield running_world
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_nothing_is_watched_while_no_pod_waits_and_again_after_the_last(api, world):
    make(api, pod("checked"))
    await api.until_watched(1)
    assert world.count_watches() == {}
    make(api, waiter("one", "job/a"), waiter("two", "job/b"), waiter("three", "job/a,cm/c"))
    await api.until_watched(3)
    assert world.count_watches() == {("jobs", PROD): 1, ("configmaps", PROD): 1}
    api.remove(PODS, "three", PROD)
    await api.until_watched(2)
    await api.until_watched(2)
    assert world.count_watches() == {("jobs", PROD): 1}
    for name in ("one", "two"):
        api.remove(PODS, name, PROD)
    await api.until_watched(1)
    assert not world.waits._items
    assert world.waits.reports(PROD) == {}


async def test_a_watch_is_kept_for_the_pods_that_follow(api, world, monkeypatch):
    monkeypatch.setattr(wait_watches, "LINGER", 3600.0)
    make(api, waiter("one", "job/a"))
    await world.until_text("job/a", "does not exist")
    api.remove(PODS, "one", PROD)
    await world.changes.until(lambda: not world.waits._items)
    make(api, waiter("two", "job/a"))
    await world.until_text("job/a", "does not exist")
    assert world.count_watches() == {("jobs", PROD): 1}
    lists = [
        request
        for request in api.requests
        if "jobs" in str(request) and "watch" not in str(request)
    ]
    assert len(lists) == 1


async def test_costly_items_have_a_limit_of_their_own(api, world, monkeypatch):
    monkeypatch.setattr(wait_watches, "MOST_COSTLY", 1)
    make(api, waiter("one", "pod/a=b", "pod/a=c", "job/x"))
    await world.until_text("job/x", "does not exist")
    assert sorted(world.states().values()) == ["Blocked", "Pending", "Pending"]


async def test_a_change_costs_one_report_and_tells_of_the_pods_of_its_item_once(
    api, world, monkeypatch
):
    looks = []
    right = wait_watches.report_on

    api.put(JOBS, job("a"))
    api.put(JOBS, job("b"))
    make(api, waiter("one", "job/a"), waiter("two", "job/a"), waiter("three", "job/b"))
    await world.until_states({"job/a": "Pending", "job/b": "Pending"})
    await world.until_text("job/a", "is not complete")
    world.told.clear()
    monkeypatch.setattr(
        wait_watches,
        "report_on",
        lambda item, *given: looks.append(item.text) or right(item, *given),
    )
    api.put(JOBS, {**api.get(JOBS, "a", PROD), "status": COMPLETE})
    await world.until_states({"job/a": "Met", "job/b": "Pending"})
    assert looks == ["job/a"]
    assert world.told == [frozenset((f"{PROD}/one", f"{PROD}/two"))]
    api.put(JOBS, {**api.get(JOBS, "b", PROD), "spec": {"suspend": True}})
    make(api, waiter("four", "job/c"))
    await world.until_text("job/c", "does not exist")
    # Nothing else stands differently; the fourth is told once its own item is looked up.
    assert set().union(*world.told[1:]) <= {f"{PROD}/four"}


async def test_a_watch_starts_anew_when_an_item_asks_for_a_field(api, client):
    api.define(WIDGETS)
    api.put(WIDGETS, object_json("w", status={"phase": "Active", "conditions": []}))
    async with run_watches(api, client, ["widgets.v1.example.com"]) as world:
        make(api, waiter("plain", "widgets.example.com/w"))
        await world.until_states({"widgets.example.com/w": "Met"})
        assert world.waits.find_cache(WIDGETS, PROD).store.get(f"{PROD}/w").document == b""
        item = "widgets.example.com/w#field=status.phase:Active"
        make(api, waiter("whole", item))
        await world.until_states({"widgets.example.com/w": "Met", item: "Met"})
        await api.until_watched(2)
        assert world.count_watches() == {("widgets", PROD): 1}


async def test_a_kind_that_may_not_be_watched_is_said_and_is_watched_once_it_may(api, world):
    api.put(DEPLOYMENTS, object_json("db"))
    api.forbid("*", DEPLOYMENTS)
    make(api, waiter("one", "deployment/db"))
    await world.until_text("deployment/db", "not allowed to watch deployments.apps: allow it")
    assert world.states() == {"deployment/db": "Blocked"}
    api.heal()
    world.waits.find_cache(DEPLOYMENTS, PROD).wake()
    await world.until_text("deployment/db", "is not observed yet")


async def test_a_kind_that_is_not_there_is_said_and_is_met_once_it_is(api, client):
    async with run_watches(api, client, ["widgets.v1.example.com"]) as world:
        make(api, waiter("one", "widgets.example.com/w"))
        await world.until_text("widgets.example.com/w", "has no widgets.example.com")
        api.define(WIDGETS)
        api.put(WIDGETS, object_json("w"))
        # As it does by itself in up to a minute.
        world.waits.find_cache(WIDGETS, PROD).wake()
        await world.until_states({"widgets.example.com/w": "Met"})


async def test_a_kind_that_the_setting_lacks_is_blocked_and_watched_by_nobody(api, world):
    make(api, waiter("one", "job/a", "widgets.example.com/w"))
    await world.until_text("job/a", "does not exist")
    assert world.states() == {"job/a": "Pending", "widgets.example.com/w": "Blocked"}
    assert "lifecycle.waitKinds" in world.text("widgets.example.com/w")
    await api.until_watched(2)
    assert world.count_watches() == {("jobs", PROD): 1}


async def test_config_maps_are_watched_without_their_content_unless_a_field_is_asked(api, world):
    api.put(CONFIG_MAPS, object_json("settings", data={"ready": "yes"}))
    make(api, waiter("one", "cm/settings"))
    await world.until_states({"cm/settings": "Met"})
    wanted = "PartialObjectMetadata"
    assert all(wanted in request.headers["Accept"] for request in api.seen("*", "/configmaps"))
    make(api, waiter("two", "cm/settings#field=data.ready:yes"))
    await world.until_states({"cm/settings": "Met", "cm/settings#field=data.ready:yes": "Met"})


async def test_a_service_is_met_by_a_ready_endpoint_alone(api, world):
    api.put(SERVICES, object_json("db"))
    make(api, waiter("one", "svc/db"))
    await world.until_text("svc/db", "has no ready endpoint")
    stored = object_json("db-1", endpoints=[{"conditions": {"ready": False}}])
    stored["metadata"]["labels"] = {"kubernetes.io/service-name": "db"}
    api.put(SLICES, stored)
    api.put(SLICES, object_json("other", endpoints=[{"conditions": {"ready": True}}]))
    make(api, waiter("two", "svc/other"))
    await world.until_text("svc/other", "does not exist")
    assert world.states()["svc/db"] == "Pending"
    stored = api.get(SLICES, "db-1", PROD)
    api.put(SLICES, {**stored, "endpoints": [{"conditions": {"ready": True}}]})
    await world.until_states({"svc/db": "Met", "svc/other": "Pending"})


async def test_a_definition_is_watched_in_the_cluster(api, world):
    make(api, waiter("one", "crd/widgets.example.com"))
    await api.until_watched(2)
    assert world.count_watches() == {("customresourcedefinitions", ""): 1}
    conditions = [{"type": "Established", "status": "True"}]
    api.put(
        DEFINITIONS,
        {"metadata": {"name": "widgets.example.com"}, "status": {"conditions": conditions}},
    )
    await world.until_states({"crd/widgets.example.com": "Met"})


async def test_an_object_that_goes_is_waited_for_again(api, world):
    api.put(JOBS, job("a", COMPLETE))
    make(api, waiter("one", "job/a"))
    await world.until_states({"job/a": "Met"})
    api.remove(JOBS, "a", PROD)
    await world.until_states({"job/a": "Pending"})
    assert world.text("job/a") == "does not exist"


async def test_a_changed_annotation_changes_what_is_watched(api, world):
    make(api, waiter("one", "job/a"))
    await world.until_text("job/a", "does not exist")
    api.put(PODS, waiter("one", "cm/b"))
    await world.until_text("cm/b", "does not exist")
    assert world.states() == {"cm/b": "Pending"}
    await api.until_watched(2)
    assert world.count_watches() == {("configmaps", PROD): 1}


async def test_items_that_are_too_many_are_followed_once_others_go(api, world, monkeypatch):
    monkeypatch.setattr(wait_watches, "MOST_ITEMS", 2)
    for name in "abcd":
        make(api, waiter(name, f"job/{name}"))
        await world.changes.until(lambda name=name: f"job/{name}" in world.states())
    await world.until_text("job/b", "does not exist")
    both = {"job/a": "Pending", "job/b": "Pending"}
    assert world.states() == {**both, "job/c": "Blocked", "job/d": "Blocked"}
    api.put(JOBS, job("c", COMPLETE))
    api.remove(PODS, "a", PROD)
    await world.until_states({"job/b": "Pending", "job/c": "Met", "job/d": "Blocked"})
    await world.changes.until(lambda: frozenset((f"{PROD}/c",)) in world.told)
    api.remove(PODS, "d", PROD)
    await world.until_states({"job/b": "Pending", "job/c": "Met"})
    for name in "bc":
        api.remove(PODS, name, PROD)
    await world.changes.until(lambda: not world.states())
    assert not world.waits._items


async def test_a_cycle_is_answered_for_a_pod_whose_change_is_not_told_yet(api, world):
    make(api, waiter("one", "pod/two"))
    await world.until_text("pod/two", "does not exist")
    make(api, waiter("two", "pod/one"))
    await world.changes.until(lambda: f"{PROD}/two" in world.caches.pods.store)
    waiting_pod = world.caches.pods.store.get(f"{PROD}/two")
    # As between a change of the store and the call of its listeners.
    reports = world.waits._reports.pop(PROD)
    cycles = world.waits.cycles(waiting_pod.namespace)
    assert cycles["pod", "two"] == "a cycle of waits: pod/two -> pod/one -> pod/two"
    world.waits._reports[PROD] = reports


@pytest.fixture
def caches():
    return LifecycleCaches(None)


@pytest.fixture
def searches(monkeypatch):
    calls = []
    search = wait_watches.wait_cycles

    def record_search(pods, *args):
        calls.append(sorted(pod.name for pod in pods))
        return search(pods, *args)

    monkeypatch.setattr(wait_watches, "wait_cycles", record_search)
    return calls


def put(caches, name, wait_for, namespace="prod", **annotations):
    annotations[WAIT_FOR_KEY] = wait_for
    pod = Pod(
        name=name,
        namespace=namespace,
        annotations=annotations,
        gates=(GATE,),
        wait_conditions=waits_of(annotations),
    )
    caches.pods.store.put(pod.key, pod)
    caches.pods.notify(frozenset((pod.key,)))


def test_cycles_are_searched_once_until_a_pod_of_the_namespace_changes(caches, searches):
    put(caches, "a", "pod/b")
    for _ in range(3):
        assert caches.wait_watches.cycles("prod") == {}
        put(caches, "elsewhere", "pod/b", namespace="test")
    put(caches, "b", "pod/a")
    assert set(caches.wait_watches.cycles("prod")) == {("pod", "a"), ("pod", "b")}
    assert searches == [["a"], ["a", "b"]]


def test_pods_that_wait_for_objects_are_counted_by_state(caches):
    put(caches, "a", "pod/b")
    put(caches, "b", "pod/a")
    for number in range(3):
        put(caches, f"web-{number}", "service/db")
    put(caches, "late", "service/db", **{WAITED_KEY: TIMED_OUT})
    put(caches, "wrong", "no-object")
    put(caches, "done", "service/db", **{WAITED_KEY: "met"})
    counts = MetricValues(caches).read_gauges().waiting_pods
    assert (counts["pending"], counts["blocked"]) == (3, 4)
