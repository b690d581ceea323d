"""Preemption by the scheduler, and what is done beside it (rescheduler-spec 3.8)."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from harbourmaster.api.resources import PODS
from helpers.evicting import leading, told, until


async def test_rule_1_nothing_is_written_for_a_pod_with_a_nominated_node(full_api, make_controller):
    full_api.nominate("n1")
    async with leading(make_controller()):
        await asyncio.sleep(0.5)
    assert full_api.writes() == []


async def test_rule_3_room_is_made_on_another_node_when_the_preemption_is_stuck(
    full_api, make_controller
):
    terminate(full_api, "v0", seconds=0)
    full_api.nominate("n1")
    full_api.add_node("n2")
    for name, cpu in (("w0", "1100m"), ("w1", "900m")):
        full_api.add_pod(name, "n2", cpu=cpu)
    async with leading(make_controller(housekeepingIntervalSeconds=30)):
        await asyncio.sleep(290)
        assert full_api.writes() == []
        assert await until(full_api.evicted) == ["w0"]
        assert full_api.reservations("n2")
        full_api.remove(PODS, "w0", "default")
        await asyncio.sleep(0.1)
        full_api.bind(node="n2")
        await until(lambda: full_api.is_clean("n2"))
    assert full_api.evicted() == ["w0"]
    assert "RescheduleSucceeded" in told(full_api)


def terminate(api, name, seconds, **status):
    """Mark a pod as terminating, with a grace period that ends in so many seconds."""
    before = api.get(PODS, name, "default")
    ends = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {**before["metadata"], "deletionTimestamp": ends}
    after = {**before, "metadata": metadata, "status": {**before["status"], **status}}
    api.objects._keep(PODS, ("default", name), before, after)


async def deletions_beside_preemption(api, make_controller, reason, **settings):
    """Return the deletions made while a pod terminates on the nominated node for a reason."""
    api.add_node()
    api.add_pod("v0", terminationGracePeriodSeconds=60)
    api.add_pod("v1")
    api.add_critical()
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    terminate(api, "v0", seconds=60, conditions=[condition])
    critical = api.get(PODS, "c", "kube-system")
    api.put(PODS, {**critical, "spec": {**critical["spec"], "priority": 2_000_000_000}})
    api.nominate("n1")
    async with leading(make_controller(**settings)):
        await asyncio.sleep(0.5)
    assert api.evictions == []
    return api.deletions


async def test_rule_4_victims_of_a_preemption_are_deleted_sooner_if_that_is_set(
    api, make_controller
):
    deletions = await deletions_beside_preemption(
        api, make_controller, "PreemptionByScheduler", shortenPreemption=True
    )
    assert [(name, options["gracePeriodSeconds"]) for name, options in deletions] == [("v0", 10)]
    assert all("uid" in options["preconditions"] for _, options in deletions)


@pytest.mark.parametrize(
    ("reason", "settings"),
    [
        ("PreemptionByScheduler", {}),
        ("DeletionByTaintManager", {"shortenPreemption": True}),
        ("PreemptionByScheduler", {"shortenPreemption": True, "gracePeriodLimitSeconds": -1}),
    ],
)
async def test_rule_4_other_terminating_pods_keep_their_grace_period(
    api, make_controller, reason, settings
):
    assert await deletions_beside_preemption(api, make_controller, reason, **settings) == []


async def test_rule_4_a_pod_that_cannot_be_read_hides_no_preempted_one(api, make_controller):
    spec, status = {"nodeName": "n1"}, {"conditions": "broken"}
    metadata = {"name": "broken", "namespace": "default"}
    api.put(PODS, {"metadata": metadata, "spec": spec, "status": status})
    deletions = await deletions_beside_preemption(
        api, make_controller, "PreemptionByScheduler", shortenPreemption=True
    )
    assert [name for name, _ in deletions] == ["v0"]
