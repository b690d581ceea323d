"""The cycles of waits are looked for once, until something changes."""

from __future__ import annotations

import pytest

from harbourmaster.controller.lifecycle import wait_watches
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.metric_values import MetricValues
from harbourmaster.gates.waits import TIMED_OUT, WAIT_FOR_KEY, WAITED_KEY, waits_of
from harbourmaster.lifecycle.gated_pods import Pod
from helpers.gated import GATE


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


def test_a_page_of_many_pods_takes_one_search(caches, searches):
    put(caches, "a", "pod/b")
    put(caches, "b", "pod/a")
    put(caches, "other", "pod/x", namespace="test")
    for _ in range(3):
        assert set(caches.wait_watches.cycles("prod")) == {("pod", "a"), ("pod", "b")}
    assert searches == [["a", "b"]]


def test_the_search_is_repeated_after_a_pod_of_the_namespace_changed(caches, searches):
    put(caches, "a", "pod/b")
    assert caches.wait_watches.cycles("prod") == {}
    put(caches, "elsewhere", "pod/b", namespace="test")
    assert caches.wait_watches.cycles("prod") == {}
    assert len(searches) == 1
    put(caches, "b", "pod/a")
    assert len(caches.wait_watches.cycles("prod")) == 2


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
