"""KeptnConfigs arrive by a watch of a fake API server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harbourmaster.api.resources import KEPTN_CONFIGS
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.config import ConfigReconciler
from harbourmaster.controller.lifecycle.configuration import ConfigurationHolder
from harbourmaster.lifecycle.keptn_config import ADOPTS, LifecycleConfiguration
from helpers.lifecycle import Reconcilers, context_of


class ConfigControllers(Reconcilers):
    """The holder of the configuration and the controller of statuses, which share a cache."""

    def __init__(self, client):
        context = context_of(client, namespace="harbour")
        self.holder = ConfigurationHolder(context.caches, ("harbour", "keptn-system"))
        self.holder.on_change(self._check_current)
        super().__init__(replace(context, configuration=self.holder), (watches.CONFIG,))

    def _check_current(self, configuration):
        assert self.holder.current is configuration

    async def until_current(self, configuration):
        await self.until(lambda: self.holder.current == configuration)

    async def until_status(self, key, status):
        """Wait until the watch has brought a status."""
        store = self.caches.configs.store
        await self.until(lambda: key in store and store.get(key).status == status)


@pytest.fixture
def idle_controllers(client):
    return ConfigControllers(client)


@pytest.fixture
async def config_controllers(idle_controllers):
    async with idle_controllers:
        yield idle_controllers


def config(name="config", namespace="harbour", **spec):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def writes(api, name="config"):
    return len([request for request in api.requests if request.path.endswith(f"/{name}/status")])


async def test_what_is_there_at_the_start_is_in_force_when_the_cache_is_filled(
    api, idle_controllers, background
):
    api.put(KEPTN_CONFIGS, config(blockDeployment=False))
    # No leader is needed for it.
    background(idle_controllers.caches.configs.run())
    await idle_controllers.caches.configs.synced.wait()
    assert idle_controllers.holder.current == LifecycleConfiguration(block_deployment=False)


async def test_c84_the_next_one_takes_its_place(api, config_controllers):
    api.put(KEPTN_CONFIGS, config(observabilityTimeout="10s"))
    api.put(KEPTN_CONFIGS, config("other", "keptn-system", observabilityTimeout="20s"))
    await config_controllers.until_status(
        "keptn-system/other", "not in force: harbour/config comes first"
    )
    api.remove(KEPTN_CONFIGS, "config", "harbour")
    await config_controllers.until_current(LifecycleConfiguration(observability_timeout=20.0))
    await config_controllers.until_status("keptn-system/other", "in force")


async def test_one_of_another_namespace_has_no_effect_and_is_told_so_once(api, config_controllers):
    status = (
        "not in force: outside harbour and keptn-system it counts only after an administrator "
        "runs harbourmaster config adopt prod/mine"
    )
    api.put(KEPTN_CONFIGS, config("mine", "prod", observabilityTimeout="x"))
    await config_controllers.until_status("prod/mine", status)
    # Neither its own change nor another object's gives another event.
    changed = config("mine", "prod", observabilityTimeout="y")
    api.put(KEPTN_CONFIGS, {**changed, "status": status})
    api.put(KEPTN_CONFIGS, config())
    await config_controllers.until_status("harbour/config", "in force")
    assert config_controllers.holder.current == LifecycleConfiguration()
    (told,) = config_controllers.signals.kept
    assert told[:4] == ("Config mine", "ReconcileConfigFailed", status, True)


async def test_an_adopted_one_that_is_deleted_restores_the_defaults_and_is_told(
    api, config_controllers
):
    adopting = config("adopted")
    adopting["metadata"]["annotations"] = {ADOPTS: "prod/mine"}
    api.put(KEPTN_CONFIGS, config("mine", "prod", observabilityTimeout="10s"))
    api.put(KEPTN_CONFIGS, adopting)
    await config_controllers.until_status("harbour/adopted", "in force: it adopts prod/mine")
    status = "not in force: it adopts prod/mine, which does not exist; the defaults apply"
    api.remove(KEPTN_CONFIGS, "mine", "prod")
    await config_controllers.until_status("harbour/adopted", status)
    assert config_controllers.holder.current == LifecycleConfiguration()
    (told,) = config_controllers.signals.kept
    assert told[:4] == ("Config adopted", "ReconcileConfigFailed", status, True)


async def test_what_makes_no_sense_is_said_in_the_status_and_by_one_event(api, config_controllers):
    problem = (
        'observabilityTimeout: "0 days" is not a duration: write for example 30s, 5m or 1h30m; '
        "5m0s is used instead"
    )
    api.put(KEPTN_CONFIGS, config(observabilityTimeout="0 days", blockDeployment=False))
    await config_controllers.until_current(LifecycleConfiguration(block_deployment=False))
    await config_controllers.until_status("harbour/config", f"in force, but {problem}")
    # Its own write changes nothing, nor does another object.
    api.put(KEPTN_CONFIGS, config("other"))
    await config_controllers.until_status(
        "harbour/other", "not in force: harbour/config comes first"
    )
    (told,) = config_controllers.signals.kept
    assert told[:4] == ("Config config", "ReconcileConfigFailed", problem, True)
    assert writes(api) == 1


async def test_a_status_that_is_right_is_not_written(api, config_controllers):
    api.put(KEPTN_CONFIGS, {**config(), "status": "in force"})
    api.put(KEPTN_CONFIGS, config("last"))
    await config_controllers.until_status(
        "harbour/last", "not in force: harbour/config comes first"
    )
    assert writes(api) == 0


async def test_one_that_is_gone_is_left_alone(api, idle_controllers, background):
    api.put(KEPTN_CONFIGS, config(observabilityTimeout="x"))
    background(idle_controllers.caches.configs.run())
    await idle_controllers.caches.configs.synced.wait()
    api.fail_next("patch", "/config/status", status=404)
    # Nothing is raised, and nothing is told.
    for name in ("config", "deleted-before"):
        await ConfigReconciler(idle_controllers.context).reconcile(f"harbour/{name}")
    assert (writes(api), idle_controllers.signals.reasons) == (1, [])
