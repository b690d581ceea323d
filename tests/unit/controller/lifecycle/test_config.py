"""KeptnConfigs arrive by a watch of a fake API server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from harbourmaster.api.resources import KEPTN_CONFIGS
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.config import ConfigReconciler
from harbourmaster.controller.lifecycle.configuration import ConfigurationHolder
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.lifecycle.keptn_config import ADOPTS, LifecycleConfiguration
from helpers.signals import RecordedSignals


class ConfigControllers:
    """The holder of the configuration and the controller of statuses, which share a cache."""

    def __init__(self, client, metrics):
        self.caches = LifecycleCaches(client)
        self.signals = RecordedSignals()
        self.holder = ConfigurationHolder(self.caches, ("harbour", "keptn-system"))
        self.context = context = Context(
            client=client,
            caches=self.caches,
            settings=LifecycleSettings(),
            configuration=self.holder,
            signals=self.signals,
            now=lambda: datetime.now(UTC),
            namespace="harbour",
        )
        self.told = []
        self._changed = asyncio.Event()
        self.caches.configs.subscribe(lambda _keys: self._changed.set())
        self.holder.on_change(self._note)
        self.controller = Controller(
            "keptn-config", lambda _queue: ConfigReconciler(context), metrics
        )
        self.controller.reflectors = [self.caches.configs]
        self.caches.configs.subscribe(self.controller.enqueue)

    def _note(self, configuration):
        # Who is told finds the same.
        assert self.holder.current is configuration
        self.told.append(configuration)

    async def until(self, configuration):
        await self._until(lambda: self.holder.current == configuration)

    async def until_status(self, key, status):
        """Wait until the watch has brought a status."""
        store = self.caches.configs.store
        await self._until(lambda: key in store and store.get(key).status == status)

    async def _until(self, is_so):
        while not is_so():
            self._changed.clear()
            await self._changed.wait()


@pytest.fixture
def config_controllers(client, metrics):
    return ConfigControllers(client, metrics)


def config(name="config", namespace="harbour", **spec):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def writes(api, name="config"):
    return len([request for request in api.requests if request.path.endswith(f"/{name}/status")])


async def test_the_defaults_are_in_force_before_and_without_any(config_controllers):
    assert config_controllers.holder.current == LifecycleConfiguration()


async def test_what_is_there_at_the_start_is_in_force_when_the_cache_is_filled(
    api, config_controllers, background
):
    api.put(KEPTN_CONFIGS, config(blockDeployment=False))
    # No leader is needed for it.
    background(config_controllers.caches.configs.run())
    await config_controllers.caches.configs.synced.wait()
    assert config_controllers.holder.current == LifecycleConfiguration(block_deployment=False)


async def test_c84_the_next_one_takes_its_place(api, config_controllers, lead):
    api.put(KEPTN_CONFIGS, config(observabilityTimeout="10s"))
    api.put(KEPTN_CONFIGS, config("other", "keptn-system", observabilityTimeout="20s"))
    lead(config_controllers.controller)
    await config_controllers.until_status(
        "keptn-system/other", "not in force: harbour/config comes first"
    )
    api.remove(KEPTN_CONFIGS, "config", "harbour")
    await config_controllers.until(LifecycleConfiguration(observability_timeout=20.0))
    await config_controllers.until_status("keptn-system/other", "in force")


async def test_one_of_another_namespace_has_no_effect_and_is_told_so_once(
    api, config_controllers, lead
):
    status = (
        "not in force: outside harbour and keptn-system it counts only after an administrator "
        "runs harbourmaster config adopt prod/mine"
    )
    api.put(KEPTN_CONFIGS, config("mine", "prod", observabilityTimeout="x"))
    lead(config_controllers.controller)
    await config_controllers.until_status("prod/mine", status)
    # Neither its own change nor another object's gives another event.
    changed = config("mine", "prod", observabilityTimeout="y")
    api.put(KEPTN_CONFIGS, {**changed, "status": status})
    api.put(KEPTN_CONFIGS, config())
    await config_controllers.until_status("harbour/config", "in force")
    assert config_controllers.holder.current == LifecycleConfiguration()
    (told,) = config_controllers.signals.kept
    assert told[:4] == ("Config mine", "ReconcileConfigFailed", status, True)


async def test_one_of_another_namespace_counts_while_it_is_adopted(api, config_controllers, lead):
    adopting = config("adopted")
    adopting["metadata"]["annotations"] = {ADOPTS: "prod/mine"}
    api.put(KEPTN_CONFIGS, config("mine", "prod", observabilityTimeout="10s"))
    api.put(KEPTN_CONFIGS, adopting)
    lead(config_controllers.controller)
    await config_controllers.until_status("prod/mine", "in force")
    await config_controllers.until_status("harbour/adopted", "in force: it adopts prod/mine")
    assert config_controllers.holder.current == LifecycleConfiguration(observability_timeout=10.0)
    assert config_controllers.signals.reasons == []
    api.remove(KEPTN_CONFIGS, "adopted", "harbour")
    await config_controllers.until(LifecycleConfiguration())


async def test_an_adopted_one_that_is_deleted_restores_the_defaults_and_is_told(
    api, config_controllers, lead
):
    adopting = config("adopted")
    adopting["metadata"]["annotations"] = {ADOPTS: "prod/mine"}
    api.put(KEPTN_CONFIGS, config("mine", "prod", observabilityTimeout="10s"))
    api.put(KEPTN_CONFIGS, adopting)
    lead(config_controllers.controller)
    await config_controllers.until_status("harbour/adopted", "in force: it adopts prod/mine")
    status = "not in force: it adopts prod/mine, which does not exist; the defaults apply"
    api.remove(KEPTN_CONFIGS, "mine", "prod")
    await config_controllers.until_status("harbour/adopted", status)
    assert config_controllers.holder.current == LifecycleConfiguration()
    (told,) = config_controllers.signals.kept
    assert told[:4] == ("Config adopted", "ReconcileConfigFailed", status, True)


async def test_a_change_that_changes_nothing_is_not_told(api, config_controllers, lead):
    api.put(KEPTN_CONFIGS, config())
    lead(config_controllers.controller)
    await config_controllers.until_status("harbour/config", "in force")
    assert config_controllers.told == []


async def test_what_makes_no_sense_is_said_in_the_status_and_by_one_event(
    api, config_controllers, lead
):
    problem = (
        'observabilityTimeout: "0 days" is not a duration: write for example 30s, 5m or 1h30m; '
        "5m0s is used instead"
    )
    api.put(KEPTN_CONFIGS, config(observabilityTimeout="0 days", blockDeployment=False))
    lead(config_controllers.controller)
    await config_controllers.until(LifecycleConfiguration(block_deployment=False))
    await config_controllers.until_status("harbour/config", f"in force, but {problem}")
    # Its own write changes nothing, nor does another object.
    api.put(KEPTN_CONFIGS, config("other"))
    await config_controllers.until_status(
        "harbour/other", "not in force: harbour/config comes first"
    )
    (told,) = config_controllers.signals.kept
    assert told[:4] == ("Config config", "ReconcileConfigFailed", problem, True)
    assert writes(api) == 1


async def test_a_status_that_is_right_is_not_written(api, config_controllers, lead):
    api.put(KEPTN_CONFIGS, {**config(), "status": "in force"})
    api.put(KEPTN_CONFIGS, config("last"))
    lead(config_controllers.controller)
    await config_controllers.until_status(
        "harbour/last", "not in force: harbour/config comes first"
    )
    assert writes(api) == 0


async def test_one_that_is_gone_is_left_alone(api, config_controllers, background):
    api.put(KEPTN_CONFIGS, config(observabilityTimeout="x"))
    background(config_controllers.caches.configs.run())
    await config_controllers.caches.configs.synced.wait()
    api.fail_next("patch", "/config/status", status=404)
    # Nothing is raised, and nothing is told.
    await ConfigReconciler(config_controllers.context).reconcile("harbour/config")
    assert (writes(api), config_controllers.signals.reasons) == (1, [])
