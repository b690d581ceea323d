"""A preemption that is hurried on, and nodes that are let go: C45, and where it is switched off."""

from __future__ import annotations

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import NODES
from helpers.rescheduling.cases import Cases
from helpers.rescheduling.objects import RESERVATIONS, removable
from helpers.rescheduling.toy_kubelet import SLOW

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

CASES = Cases()
case = CASES.case
SYSTEM = "system-cluster-critical"
OURS = {"key": "CriticalAddonsOnly", "value": "resched.01234567", "effect": "NoSchedule"}
TEXT = '[{"pod":"kube-system/gone","uid":"u","deadline":"2999-01-01T00:00:00Z","victims":[]}]'


@case("C45", shortenPreemption=True)
async def one_that_the_scheduler_takes_goes_sooner_and_alone(place):
    on = await place.node("n1", 2)
    names = ("v0", "v1")
    found = await place.full(on, *names, labels=SLOW, grace=60)
    uids = dict(zip(names, found, strict=True))
    uid = await place.critical(annotated=False, priorityClassName=SYSTEM)
    await place.cluster.until(place.taken, why=place.why)
    (victim,) = place.taken()
    # What comes and goes has the scheduler try again.
    for number in range(3):
        await place.pods(removable(f"passer-{number}", on, "1m"))
        await place.delete(f"passer-{number}", grace=0)
    await place.bound(uid, on)
    assert place.taken() == {victim}
    assert place.reason_of(victim) == "PreemptionByScheduler"
    history = [one.object["metadata"] for one in place.cluster.history(uids[victim])]
    graces = [each.get("deletionGracePeriodSeconds") for each in history]
    assert list(dict.fromkeys(graces))[:3] == [None, 60, 10]
    assert [one["verb"] for one in place.requests(f"pods/{victim}")] == ["delete"]
    assert not place.was_marked()


@case("off", before=True, enabled=False)
async def where_it_is_switched_off_nodes_are_let_go_and_no_more(place):
    on = await place.node("n1", 1)
    await place.full(on, "v0")
    uid = await place.critical()
    value = {"metadata": {"annotations": {RESERVATIONS: TEXT}}, "spec": {"taints": [OURS]}}
    await place.client.patch(NODES, on, MergePatch(value))
    await place.cluster.until(place.marked)
    await place.begin()
    await place.clean()
    assert not place.is_bound(uid)
    assert place.taken() == set()


@CASES.each()
def test_rescheduling(outcomes, case):
    outcomes.assert_passed(case)


def test_no_controller_told_of_a_fault(outcomes):
    assert outcomes.faults == []
