"""A plan in slices is the plan of the cluster as it is at its end, whatever changes in between."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from harbourmaster.rescheduling import search
from harbourmaster.rescheduling.model import Pod
from harbourmaster.rescheduling.planner import plan, plan_in_slices
from helpers.planning import NOW, cluster
from helpers.properties import TIMEOUT, cases
from helpers.random_clusters import random_case

CASES = cases(1000)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch):
    monkeypatch.setattr(search, "SLICE", 1)


def change(account, rng):
    """Something of what may happen to nodes and to the pods on them."""
    nodes = account.nodes()
    pods = [pod for node in nodes for pod in account.pods_on(node.name)]
    kind = rng.randrange(7)
    if kind < 4 and nodes:
        node = rng.choice(nodes)
        if kind == 0:
            account.remove_node(node.name)
        elif kind == 1:
            account.put_node(replace(node, is_ready=not node.is_ready))
        elif kind == 2:
            more = {name: rng.randint(0, 2 * amount) for name, amount in node.allocatable.items()}
            account.put_node(replace(node, allocatable=more))
        else:
            # Another one of the same name, without the pods of the first.
            account.remove_node(node.name)
            for pod in pods:
                if pod.node == node.name and rng.random() < 0.5:
                    account.remove_pod(pod.uid)
            account.put_node(replace(node, uid=f"{node.uid}-again"))
    elif pods:
        pod = rng.choice(pods)
        if kind == 4:
            account.remove_pod(pod.uid)
        elif kind == 5:
            account.put_pod(replace(pod, deletion=NOW + rng.choice((1, 60))))
        else:
            again = replace(pod, uid=f"{pod.uid}-again", node=rng.choice(nodes).name)
            account.put_pod(replace(again, priority=rng.choice((0, 5)), grace=rng.choice((5, 60))))


def has_neighbours(case):
    """Whether it matters to any pod who else is there."""
    everyone = [case.pending.pod, *(obj for obj in case.objects if isinstance(obj, Pod))]
    return any(pod.anti_affinity or pod.ports for pod in everyone)


@pytest.mark.parametrize("part", range(5))
def test_what_changes_between_two_slices_counts(part):
    changed = 0
    for seed in range(part, CASES, 5):
        case, rng = random_case(seed), random.Random(seed)  # noqa: S311 - a fixed seed
        account = cluster(*case.objects)
        steps = plan_in_slices(account, case.pending, case.settings, NOW)
        before = plan(account, case.pending, case.settings, NOW)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                planning = end.value
                break
            if rng.random() < 0.5:
                change(account, rng)
        if has_neighbours(case):
            # Whom pods keep away is asked once; that is verified before anybody goes.
            continue
        after = plan(account, case.pending, case.settings, NOW)
        assert planning.candidate == after.candidate, seed
        assert planning.runners_up == after.runners_up, seed
        changed += after.candidate != before.candidate
    # Else nothing was tried.
    assert changed > CASES / 5 / 20
