"""Changes wake the controllers that they concern, and placement that is off does nothing."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import (
    APPLICATIONS,
    CLOUDS,
    CLUSTERS,
    GLOBAL_CLOUDS,
    GLOBAL_METRICS,
    GLOBAL_PROVIDERS,
    MAGNUM_CLUSTERS,
    PROJECTS,
)
from harbourmaster.controller.names import PLACEMENT
from harbourmaster.controller.placement.metrics import PlacementStates
from harbourmaster.controller.placement.settings import PlacementSettings
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.placement.deployed import (
    ClusterObjects,
    DeployedApplication,
    DeployedStatus,
    MemberCluster,
)
from harbourmaster.placement.inventory import ObjectRef
from harbourmaster.placement.model import Condition, MemberStatus
from helpers.patience import PATIENCE
from helpers.placement_environment import NAMESPACE, PlacementEnv, weights


class Woken:
    """Replaces a controller, and records the keys that it is told of."""

    def __init__(self):
        self.keys = set()
        self.all = 0

    def enqueue(self, keys):
        self.keys |= set(keys)

    def enqueue_all(self):
        self.all += 1


@pytest.fixture
def env():
    environment = PlacementEnv()
    environment.static(green=0.5)
    environment.add_cluster("one", metrics=weights(green=1))
    environment.add_application()
    environment.put(CLUSTERS, "elsewhere", {}, namespace="other")
    for job in ("_scheduler", "_clouds", "_projects", "_sampler"):
        setattr(environment.controller, job, Woken())
    # Subscribed again, with these in the place of the controllers.
    for cache in environment.caches.reflectors:
        cache._listeners.clear()
    environment.controller._subscribe()
    environment.changed = lambda resource, *keys: environment.caches.by_resource[resource].notify(
        frozenset(keys)
    )
    environment.changed(CLUSTERS, f"{NAMESPACE}/one")
    for job in ("_scheduler", "_clouds", "_projects", "_sampler"):
        getattr(environment.controller, job).__init__()
    return environment


async def test_answers_of_a_moment_wake_an_application_once(env):
    looks, woken = [], asyncio.Event()

    def enqueue(keys):
        looks.append(keys)
        woken.set()

    env.controller._scheduler.enqueue = enqueue
    for _ in range(100):
        env.controller._wake_users_soon({NAMESPACE})
    assert looks == []
    await asyncio.wait_for(woken.wait(), PATIENCE)
    assert looks == [[f"{NAMESPACE}/app"]]
    woken.clear()
    env.controller._wake_users_soon({NAMESPACE})
    await asyncio.wait_for(woken.wait(), PATIENCE)
    assert looks == [[f"{NAMESPACE}/app"]] * 2


def test_an_application_wakes_itself_alone(env):
    env.changed(APPLICATIONS, f"{NAMESPACE}/app")
    assert env.controller._scheduler.keys == {f"{NAMESPACE}/app"}
    assert env.controller._sampler.all == 0


@pytest.mark.parametrize(
    "status",
    [
        {"state": "Offline"},
        {"state": "Online", "customResources": ["a.example.com"]},
        {"state": "Online", "servedKinds": ["example.com/v1/A"]},
    ],
)
def test_a_cluster_that_stands_otherwise_wakes_the_applications_of_its_namespace(env, status):
    env.add_cluster("one", status=status, metrics=weights(green=1))
    env.changed(CLUSTERS, f"{NAMESPACE}/one")
    assert env.controller._scheduler.keys == {f"{NAMESPACE}/app"}
    assert f"{NAMESPACE}/one" in env.controller._clouds.keys
    assert "other/elsewhere" not in env.controller._clouds.keys
    assert env.controller._sampler.all == 1


def test_what_no_decision_reads_of_a_cluster_wakes_itself_alone(env):
    metrics = [{"name": "green", "value": 0.7}]
    status = {"state": "Online", "metrics": metrics}
    env.add_cluster("one", status=status, metrics=weights(green=1))
    env.changed(CLUSTERS, f"{NAMESPACE}/one")
    assert env.controller._scheduler.keys == set()
    assert env.controller._clouds.keys == {f"{NAMESPACE}/one"}


def test_a_cluster_that_goes_wakes_the_applications(env):
    env.remove(CLUSTERS, "one")
    env.changed(CLUSTERS, f"{NAMESPACE}/one")
    assert env.controller._scheduler.keys == {f"{NAMESPACE}/app"}


def test_a_cloud_wakes_its_namespace(env):
    env.changed(CLOUDS, f"{NAMESPACE}/near")
    assert env.controller._scheduler.keys == {f"{NAMESPACE}/app"}
    assert env.controller._clouds.keys == {f"{NAMESPACE}/one"}


def test_a_project_wakes_who_may_go_to_one(env):
    env.changed(PROJECTS, "other/yard")
    assert env.controller._projects.all == 1
    assert env.controller._scheduler.all == 0
    assert env.controller._scheduler.keys == set()


@pytest.mark.parametrize("resource", [GLOBAL_CLOUDS, GLOBAL_METRICS, GLOBAL_PROVIDERS])
def test_what_is_everybodys_wakes_everybody(env, resource):
    env.changed(resource, "anything")
    for job in (env.controller._scheduler, env.controller._clouds, env.controller._projects):
        assert job.all == 1


def test_a_new_value_is_seen_by_the_next_decision(env):
    before = env.controller._snapshots.current()
    assert env.controller._snapshots.current() is before
    env.controller._wake_users({NAMESPACE})
    assert env.controller._snapshots.current() is not before


def test_a_pass_has_the_right_time(env):
    before = env.controller._snapshots.current()
    env.time = 1
    after = env.controller._snapshots.current()
    assert (after.seen.now - before.seen.now).total_seconds() == 1
    assert after.seen.snapshot is before.seen.snapshot


def test_a_magnum_cluster_wakes_itself(env):
    env.changed(MAGNUM_CLUSTERS, f"{NAMESPACE}/crane")
    assert env.controller._projects.keys == {f"{NAMESPACE}/crane"}


def test_it_is_off_unless_it_is_switched_on():
    assert PLACEMENT not in ControllerSettings().running
    switched_on = ControllerSettings(placement=PlacementSettings(enabled=True))
    assert PLACEMENT in switched_on.running
    others = ControllerSettings(placement=switched_on.placement, controllers=("metrics",))
    assert PLACEMENT not in others.running


def test_values_last_until_the_next_ones_at_least():
    with pytest.raises(msgspec.ValidationError, match="sampleMaxAgeSeconds: must be longer"):
        msgspec.convert({"sampleMaxAgeSeconds": 15}, PlacementSettings)
    assert PlacementSettings().max_age == 45
    assert PlacementSettings(sample_max_age_seconds=16).max_age == 16


def application(phase="", ready="", left=()):
    conditions = (Condition(type="Ready", status=ready),) if ready else ()
    if phase == "NotConfirmed":
        phase, conditions = "", (Condition(type="Scheduled", status="False", reason=phase),)
    ref = ObjectRef(api_version="v1", kind="ConfigMap", namespace="shop", name="one")
    pending = tuple(ClusterObjects(cluster=name, objects=(ref,)) for name in left)
    status = DeployedStatus(phase=phase, conditions=conditions, pending_cleanup=pending)
    return DeployedApplication(metadata=Metadata(name="shop"), status=status)


def test_gauges_count_objects_by_state_when_they_are_read():
    registry, applications, clusters = CollectorRegistry(), [], []
    PlacementStates(registry, lambda: applications, lambda: clusters)

    def value(name, **labels):
        return registry.get_sample_value(f"harbourmaster_placement_{name}", labels)

    assert value("pending_cleanups") == 0
    applications += [
        application(),
        application("Running", "True"),
        application("Running", "True", left=["m1", "m2"]),
        application("Running", "False", left=["m1"]),
        application("NotConfirmed"),
    ]
    clusters += [
        MemberCluster(metadata=Metadata(name="new")),
        MemberCluster(metadata=Metadata(name="m1"), status=MemberStatus(state="Offline")),
    ]
    assert value("applications", phase="Pending", ready="Unknown") == 1
    assert value("applications", phase="Running", ready="True") == 2
    assert value("applications", phase="Running", ready="False") == 1
    assert value("applications", phase="NotConfirmed", ready="Unknown") == 1
    assert value("clusters", state="Pending") == 1
    assert value("clusters", state="Offline") == 1
    assert value("pending_cleanups") == 3
