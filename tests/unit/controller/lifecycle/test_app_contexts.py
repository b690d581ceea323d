"""Contexts of apps that come after the version of the app, and the delay that waits for them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from harbourmaster.api.resources import (
    APP_CONTEXTS,
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    REPLICA_SETS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.controller.lifecycle.app_versions import AppVersionReconciler
from harbourmaster.controller.lifecycle.apps import AppReconciler
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersionReconciler
from harbourmaster.lifecycle.conversion import convert
from helpers.phased import NOW, workload_version
from helpers.simulated_server import Mirrored, Server, owner, task_definition

KEY = "prod/shop"
FIRST, SECOND = "shop-1.0-6b86b273", "shop-2.0-d4735e3a"
ALL = (AppReconciler, AppVersionReconciler, WorkloadVersionReconciler)
LATE = "AppContextLate"


class Clock:
    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now

    def later(self, seconds):
        self.now += timedelta(seconds=seconds)


class World:
    """An API server with an app, and the lives of reconcilers on it."""

    def __init__(self):
        self.server = Server()
        self.clock = Clock()
        for name in ("first", "second", "own"):
            self.server.put(TASK_DEFINITIONS, task_definition(name))
        self.put_app("1.0")

    def put_app(self, version, generation=1, **spec):
        spec = {"version": version, "revision": 1, **spec}
        metadata = {"name": "shop", "generation": generation}
        self.server.put(APPS, {"metadata": metadata, "spec": spec})

    def put_context(self, *tasks, generation=1, **spec):
        metadata = {"name": "shop", "generation": generation}
        spec = {"preDeploymentTasks": list(tasks), **spec}
        self.server.put(APP_CONTEXTS, {"metadata": metadata, "spec": spec})

    def begin(self, *reconcilers, delay=0.0):
        return Mirrored(
            self.server,
            *(reconcilers or (AppReconciler,)),
            now=self.clock,
            settings={"app_context_delay_seconds": delay},
        )

    def tasks_of(self, name):
        return self.server.get(APP_VERSIONS, name)["spec"].get("preDeploymentTasks", [])

    def versions(self):
        return [obj["metadata"]["name"] for obj in self.server.all(APP_VERSIONS)]


@pytest.fixture
def world():
    return World()


async def settle(life):
    """Sweep until nothing changes any more."""
    life.sync()
    before = None
    while before != life.server.objects.version:
        before = life.server.objects.version
        await life.sweep()


async def test_a_first_version_waits_for_its_context(world):
    life = world.begin(delay=3.0)
    assert await life.sweep() == {KEY: 3.0}
    world.clock.later(2.0)
    assert await life.sweep() == {KEY: 1.0}
    world.put_context("first")
    await life.sweep()
    assert world.tasks_of(FIRST) == ["first"]


async def test_a_first_version_without_a_context_waits_no_longer_than_the_delay(world):
    life = world.begin(delay=3.0)
    await life.sweep()
    world.clock.later(3.0)
    await life.sweep()
    assert world.versions() == [FIRST]
    # Neither does a later version.
    world.put_app("2.0", 2)
    life.sync()
    await life.sweep()
    assert SECOND in world.versions()


async def test_a_later_version_waits_only_while_its_context_is_the_one_before(world):
    world.put_context("first")
    life = world.begin(delay=3.0)
    await life.sweep()
    assert world.tasks_of(FIRST) == ["first"]
    world.put_app("2.0", 2)
    life.sync()
    assert await life.sweep() == {KEY: 3.0}
    world.put_context("second", generation=2)
    await life.sweep()
    assert world.tasks_of(SECOND) == ["second"]


async def test_another_leader_waits_for_the_whole_delay(world):
    await world.begin(delay=3.0).sweep()
    world.clock.later(2.9)
    life = world.begin(delay=3.0)
    assert await life.sweep() == {KEY: 3.0}
    assert world.versions() == []


async def test_a_clock_that_is_set_back_ends_the_delay(world):
    life = world.begin(delay=3.0)
    await life.sweep()
    world.clock.later(-3600.0)
    await life.sweep()
    assert world.versions() == [FIRST]


async def test_a_context_that_comes_during_the_checks_replaces_the_one_before(world):
    world.put_context("first")
    life = world.begin(*ALL)
    await settle(life)
    world.put_context("second", metadata={"team": "a"})
    await settle(life)
    spec = world.server.get(APP_VERSIONS, FIRST)["spec"]
    assert (spec["preDeploymentTasks"], spec["metadata"]) == (["second"], {"team": "a"})
    assert len(world.server.all(TASKS)) == 2
    assert LATE not in life.signals.reasons


@pytest.mark.parametrize("changes_leader", [False, True])
async def test_a_context_that_comes_during_the_checks_of_a_workload_holds_it(world, changes_leader):
    world.put_app("1.0", workloads=[{"name": "cart", "version": "2.0"}])
    world.server.put(REPLICA_SETS, owner("cart-1", availableReplicas=2))
    world.server.put(WORKLOAD_VERSIONS, workload_version(pre_deployment_tasks=("own",)))
    life = world.begin(*ALL)
    await settle(life)
    name = "shop-cart-2.0"
    assert life.workload_version(name).status.current_phase == "WorkloadPreDeployTasks"
    world.put_context("first", metadata={"team": "a"})
    if changes_leader:
        # The spec is written, and the process ends.
        life.sync()
        await life.reconcilers[0].reconcile(KEY)
        assert world.tasks_of(FIRST) == ["first"]
        life = world.begin(*ALL)
    await settle(life)
    end_tasks(world, "own")
    await settle(life)
    status = life.workload_version(name).status
    assert (status.current_phase, status.deployment_start_time) == ("", "")
    end_tasks(world, "first")
    await settle(life)
    status = life.workload_version(name).status
    assert (status.status, status.app_context_metadata) == ("Succeeded", {"team": "a"})
    assert life.app_version(FIRST).status.status == "Succeeded"
    assert len(world.server.all(TASKS)) == 2


def end_tasks(world, definition, state="Succeeded"):
    for task in world.server.all(TASKS):
        if task["spec"]["taskDefinition"] == definition:
            world.server.change(TASKS, task["metadata"]["name"], status={"status": state})


async def test_a_workload_is_not_released_before_the_context_is_in_its_app_s_version(world):
    world.put_app("1.0", workloads=[{"name": "cart", "version": "2.0"}])
    world.server.put(WORKLOAD_VERSIONS, workload_version())
    life = world.begin(*ALL)
    apps, app_versions, workload_versions = life.reconcilers
    for reconciler, key in ((apps, KEY), (app_versions, f"prod/{FIRST}")):
        await reconciler.reconcile(key)
        life.sync()
    world.put_context("first")
    life.sync()
    await workload_versions.reconcile("prod/shop-cart-2.0")
    assert life.workload_version("shop-cart-2.0").status.deployment_start_time == ""
    world.server.remove(APP_CONTEXTS, "shop")
    life.sync()
    await workload_versions.reconcile("prod/shop-cart-2.0")
    assert life.workload_version("shop-cart-2.0").status.deployment_start_time


async def test_a_failed_check_that_a_context_replaces_is_no_obstacle_any_more(world):
    world.put_context("first")
    life = world.begin(*ALL)
    await settle(life)
    end_tasks(world, "first", "Failed")
    await settle(life)
    assert life.app_version(FIRST).status.status == "Failed"
    world.put_context("second")
    await settle(life)
    end_tasks(world, "second")
    await settle(life)
    assert life.app_version(FIRST).status.status == "Succeeded"


async def test_a_deleted_context_changes_nothing(world):
    world.put_context("first")
    life = world.begin(*ALL)
    await settle(life)
    world.server.remove(APP_CONTEXTS, "shop")
    await settle(life)
    assert world.tasks_of(FIRST) == ["first"]
    assert LATE not in life.signals.reasons


async def test_a_context_that_the_watch_has_not_brought_yet_is_not_replaced_by_an_older_one(world):
    world.put_context("first")
    life = world.begin()
    world.put_context("second")
    # The version is created with the live one.
    (reconciler,) = life.reconcilers
    await reconciler.reconcile(KEY)
    older = life.caches.app_contexts.store.get(KEY)
    life.sync()
    life.caches.app_contexts.store.put(KEY, older)
    await reconciler.reconcile(KEY)
    assert world.tasks_of(FIRST) == ["second"]


async def release_first_version(world, delay=0.0):
    life = world.begin(*ALL)
    await settle(life)
    assert life.app_version(FIRST).status.status == "Succeeded"
    return world.begin(*ALL, delay=delay)


async def test_a_context_that_comes_after_the_release_is_reported_once(world):
    life = await release_first_version(world)
    world.put_context("first")
    await settle(life)
    await settle(life)
    (report,) = [signal for signal in life.signals.kept if signal.reason == LATE]
    assert report.about == "AppContext shop"
    assert report.text == (
        "came too late for version 1.0 of KeptnApp shop, and counts from the next one on; to run "
        "its checks for this version, run kubectl -n prod patch keptnapp shop --type merge "
        """-p '{"spec": {"revision": 2}}'"""
    )
    assert world.tasks_of(FIRST) == []
    world.put_context("second", generation=2)
    await settle(life)
    assert life.signals.reasons.count(LATE) == 2


async def test_a_context_that_comes_before_the_next_version_is_not_reported(world):
    life = await release_first_version(world, delay=3.0)
    world.put_context("first")
    life.sync()
    assert (await life.sweep())[KEY] == 3.0
    world.clock.later(2.0)
    world.put_app("2.0", 2)
    await settle(life)
    assert world.tasks_of(SECOND) == ["first"]
    world.clock.later(60.0)
    await settle(life)
    assert LATE not in life.signals.reasons


async def test_a_context_is_not_reported_while_a_request_may_change_the_app(world):
    life = await release_first_version(world)
    request = {"metadata": {"name": "shop"}, "spec": {"appName": "shop"}}
    world.server.put(APP_CREATION_REQUESTS, request)
    world.put_context("first")
    await settle(life)
    assert LATE not in life.signals.reasons
    world.server.remove(APP_CREATION_REQUESTS, "shop")
    await settle(life)
    assert LATE in life.signals.reasons


async def test_a_context_that_comes_later_wins_over_the_checks_of_an_older_app(world):
    older = {"apiVersion": "lifecycle.keptn.sh/v1alpha3", "kind": "KeptnApp"}
    spec = {"version": "1.0", "preDeploymentTasks": ["own"]}
    metadata = {"name": "shop", "generation": 1}
    stored = convert({**older, "metadata": metadata, "spec": spec}, "lifecycle.keptn.sh/v1")
    world.server.put(APPS, stored)
    life = world.begin(*ALL)
    await settle(life)
    assert world.tasks_of(FIRST) == ["own"]
    world.put_context("first")
    await settle(life)
    assert world.tasks_of(FIRST) == ["first"]
    assert "CreateAppVersionChecksIgnored" in life.signals.reasons
