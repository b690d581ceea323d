from __future__ import annotations

import asyncio

import msgspec
import pytest

from harbourmaster.dashboard import caches as counts
from harbourmaster.dashboard.caches import PodCounter
from harbourmaster.dashboard.sources import LabelledPod
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import Policy


def policy(name, namespace=None, **spec):
    raw = {
        "kind": "PodSchedulingPolicy" if namespace else "ClusterPodSchedulingPolicy",
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }
    return compile_policy(msgspec.convert(raw, Policy))


SPACES = {"prod": {"stage": "prod"}, "dev": {"stage": "dev"}}
PODS = [
    LabelledPod("prod", {"app": "web"}),
    LabelledPod("prod", {"app": "db"}),
    LabelledPod("dev", {"app": "web"}),
    LabelledPod("unknown", {}),
]
POLICIES = [
    policy("all", namespaceSelector={}, podSelector={}),
    policy("of-prod", namespaceSelector={"matchLabels": {"stage": "prod"}}, podSelector={}),
    policy("web", "dev", podSelector={"matchLabels": {"app": "web"}}),
    policy("none", "dev"),
]


def counter(pods=None, policies=None):
    listed = PODS if pods is None else pods
    return PodCounter(lambda: policies or POLICIES, lambda: listed, SPACES.get)


async def test_each_policy_is_counted_by_namespace():
    result = await counter().counts()
    assert result.pods == {"prod": 2, "dev": 1, "unknown": 1}
    assert result.by_policy == {
        "ClusterPodSchedulingPolicy all": {"prod": 2, "dev": 1, "unknown": 1},
        "ClusterPodSchedulingPolicy of-prod": {"prod": 2},
        "PodSchedulingPolicy dev/web": {"dev": 1},
    }


async def test_it_counts_what_admission_would_match():
    result = await counter().counts()
    chosen = policy_set(POLICIES)
    expected = {}
    for pod in PODS:
        for policy in chosen.match(pod.namespace, SPACES.get(pod.namespace) or {}, pod.labels):
            expected[policy.reference] = expected.get(policy.reference, 0) + 1
    assert {
        name: sum(by_namespace.values()) for name, by_namespace in result.by_policy.items()
    } == expected


async def test_nothing_is_counted_twice_until_something_changes(monkeypatch):
    monkeypatch.setattr(counts, "HELD", 0.0)
    pods = list(PODS)
    counted = counter(pods)
    first = await counted.counts()
    assert await counted.counts() is first
    pods.append(LabelledPod("dev", {"app": "web"}))
    counted.outdate()
    assert (await counted.counts()).pods["dev"] == 2


async def test_changes_come_together(monkeypatch):
    monkeypatch.setattr(counts, "HELD", 3600.0)
    counted = counter()
    first = await counted.counts()
    counted.outdate()
    assert await counted.counts() is first


async def test_others_have_their_turn_while_many_are_counted():
    turns = 0

    async def other():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await counter(PODS * counts.SLICE).counts()
    task.cancel()
    assert turns >= 4


async def test_who_goes_away_while_pods_are_counted_leaves_it_to_the_next():
    counted = counter(PODS * counts.SLICE)
    asked = asyncio.create_task(counted.counts())
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert (await counted.counts()).pods["prod"] == 2 * counts.SLICE


async def test_what_was_counted_too_early_is_counted_again(monkeypatch):
    monkeypatch.setattr(counts, "HELD", 3600.0)
    pods, known = [], []
    counted = PodCounter(lambda: POLICIES, lambda: pods, SPACES.get, lambda: bool(known))
    assert not (await counted.counts()).is_whole
    pods += PODS
    known.append(True)
    result = await counted.counts()
    assert result.is_whole
    assert result.pods["prod"] == 2
