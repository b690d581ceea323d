"""Applications, clusters and their metrics on a real API server: who is placed where, and when."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import (
    CLOUDS,
    CLUSTERS,
    GLOBAL_CLOUDS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    MAGNUM_CLUSTERS,
    PROJECTS,
)
from harbourmaster.placement.application_status import moment
from helpers.choosing import Choosing, refs
from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.controller import connected
from helpers.placed import reason_of

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
async def world(request, control_plane):
    kubectl = control_plane.kubectl
    name = fresh_namespace(kubectl, request.node.name)
    async with connected(control_plane.kubeconfig) as client:
        found = Choosing(client, name)
        yield found
        await found.clear()
    delete_namespace(kubectl, name)


async def test_a_label_decides_and_the_record_says_so(world):
    async with world.deciding():
        await world.berth("one", labels={"location": "DE"})
        await world.berth("two", labels={"location": "SK"})
        await world.ship(labels=["location is SK"])
        status = await world.until_placed("two")
        assert status.scheduled_time
        assert status.next_reschedule_time
        assert status.phase == "Pending"
        record = status.last_decision
        assert (record.outcome, record.chosen) == ("Placed", "two")
        assert (record.considered, record.matched) == (2, 1)
        out = next(each for each in record.candidates if each.cluster == "one")
        assert "location" in out.reason
        await world.until_told("Scheduled")


async def test_a_metric_decides_and_moves_after_the_hold_off_alone(world):
    async with world.deciding(reschedule_after=3.0):
        await world.static(green=0.9, coal=0.2)
        await world.berth("one", metrics=refs(green=1))
        await world.berth("two", metrics=refs(coal=1))
        await world.ship()
        placed = moment((await world.until_placed("one")).scheduled_time)
        assert placed is not None
        await world.value("green", 0.1)
        status = await world.until_placed("two")
        # Times are cut to whole seconds.
        assert (moment(status.scheduled_time) - placed).total_seconds() >= 3
        assert len(status.recent_moves) == 1
        await world.until_told("Scheduled", "Rescheduled")
        record = status.last_decision
        assert record.candidates[0].cluster == "two"
        assert record.candidates[1].stickiness == 0.1
        assert record.runner_up.cluster == "one"


async def test_nothing_suits_until_something_does(world):
    async with world.deciding():
        await world.berth("one", labels={"location": "DE"})
        await world.ship(labels=["location is SK"])
        status = await world.until(lambda status: status.phase == "Degraded")
        assert reason_of(status, "Scheduled") == "NoSuitableTarget"
        assert status.retries_left == -1
        assert status.next_retry_time
        await world.change(CLUSTERS, "one", {"metadata": {"labels": {"location": "SK"}}})
        status = await world.until_placed("one")
        assert (status.retries_left, status.next_retry_time) == (None, "")
        await world.until_told("NoSuitableTarget", "Scheduled")


async def test_bad_input_is_told_on_that_object_alone(world):
    async with world.deciding():
        await world.berth("one")
        await world.ship("poison", labels=["location is"])
        await world.ship("sound")
        await world.until_placed("one", "sound")
        status = await world.until(lambda status: status.conditions, "poison")
        assert reason_of(status, "Scheduled") == "InvalidConstraint"
        await world.until_told("InvalidConstraint", name="poison")


async def test_a_cluster_that_is_to_be_made_gets_a_cloud_once(world):
    stem = world.namespace
    async with world.deciding():
        await world.make(CLUSTERS, "wanted", {"constraints": {"cloud": {"labels": ["a is b"]}}})
        status = await world.until_cluster(lambda status: status.state == "Degraded", "wanted")
        assert reason_of(status, "Scheduled") == "NoSuitableTarget"
        values = {"type": "static", "static": {"metrics": {"cost": 0.4}}}
        await world.make(GLOBAL_PROVIDERS, f"{stem}-p", values)
        source = {"name": f"{stem}-p", "metric": "cost"}
        await world.make(GLOBAL_METRICS, f"{stem}-m", {"min": 0, "max": 1, "provider": source})
        weights = [{"name": f"{stem}-m", "weight": 1, "scope": "Global"}]
        await world.make(GLOBAL_CLOUDS, f"{stem}-c", {"metrics": weights}, labels={"a": "b"})
        status = await world.until_cluster(lambda status: status.scheduled_to, "wanted")
        assert (status.scheduled_to.kind, status.state) == ("GlobalCloud", "Pending")
        bound = status.scheduled_time
        await world.make(CLOUDS, "near", labels={"a": "b"})
        await asyncio.sleep(1)
        stored = await world.stored("wanted", CLUSTERS)
        assert stored["status"]["scheduledTime"] == bound


async def test_a_magnum_cluster_takes_over_what_its_project_has(world):
    async with world.deciding():
        await world.static(cost=0.4)
        project = {"template": "small", "metrics": refs(cost=2)}
        await world.make(PROJECTS, "yard", project, labels={"x": "y", "a": "theirs"})
        constraints = {"project": {"labels": ["x is y"]}}
        spec = {"masterCount": 1, "nodeCount": 2, "constraints": constraints}
        await world.make(MAGNUM_CLUSTERS, "crane", spec, labels={"a": "own"})
        mirror = world.controller.caches.magnum_clusters
        found = await world.until_found(
            lambda: (
                (one := mirror.store.get(f"{world.namespace}/crane")) and one.status.project and one
            )
        )
        assert found.status.template == "small"
        assert found.metadata.labels == {"a": "own", "x": "y"}
        assert [(each.name, each.weight) for each in found.spec.metrics] == [("cost", 2)]
