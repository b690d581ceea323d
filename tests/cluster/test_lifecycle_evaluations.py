"""Evaluations and settings on the real API server: its schema, its watches, its time stamps.

Metrics have no controller here: the tests write what one would have measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from datetime import UTC, datetime

import msgspec
import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_CONFIGS,
    KEPTN_METRICS,
)
from harbourmaster.api.times import parse
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.evaluation.evaluations import Evaluations
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.config import Configs, ConfigurationHolder
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.lifecycle.configuration import Configuration
from harbourmaster.lifecycle.evaluations import PRE, evaluation_for
from harbourmaster.lifecycle.model import AppVersion, AppVersionSpec, EvaluationDefinition
from harbourmaster.telemetry.controller_metrics import create_controller_metrics
from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.controller import connected
from helpers.patience import PATIENCE
from helpers.signals import RecordedSignals

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

# Of an interval of three seconds less than half, of the shortest by default (5 s) less than all.
LATE = 1.4
SOON = 4.0
NAME = "pre-eval-checks-12345"


class Running:
    """A controller process in this one: its caches, its jobs, and what it tells."""

    def __init__(self, client, own_namespace):
        self.caches = LifecycleCaches(client)
        self._moved = asyncio.Event()
        self.signals = RecordedSignals(on_told=self._moved.set)
        self.holder = ConfigurationHolder(self.caches, (own_namespace,))
        self._tasks = []
        context = Context(
            client=client,
            caches=self.caches,
            settings=LifecycleSettings(definition_namespaces=()),
            configuration=self.holder,
            signals=self.signals,
            now=lambda: datetime.now(UTC),
            namespace=own_namespace,
        )
        names = (watches.EVALUATIONS, watches.CONFIG)
        metrics = create_controller_metrics("0", names)
        self._mirrors = (
            self.caches.evaluations,
            self.caches.evaluation_definitions,
            self.caches.metrics,
            self.caches.configs,
        )
        starts = {watches.EVALUATIONS: Evaluations, watches.CONFIG: Configs}
        jobs = {
            name: Controller(name, lambda _queue, start=start: start(context), metrics)
            for name, start in starts.items()
        }
        for job in jobs.values():
            job.reflectors = self._mirrors
        watches.Watches(self.caches, jobs).connect()
        for mirror in self._mirrors:
            mirror.subscribe(lambda _keys: self._moved.set())
        self._jobs = jobs

    def start(self):
        coroutines = [mirror.run() for mirror in self._mirrors]
        coroutines += [job.lead() for job in self._jobs.values()]
        self._tasks = [asyncio.create_task(each) for each in coroutines]

    async def stop(self):
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        self._tasks = []

    async def until(self, find, timeout=PATIENCE):  # noqa: ASYNC109 - a bound, not an option
        """Wait until ``find`` finds something in the caches, and return it."""
        async with asyncio.timeout(timeout):
            while not (found := find()):
                self._moved.clear()
                await self._moved.wait()
        return found


class World:
    """A namespace with evaluations, our own namespace, and a controller for both."""

    def __init__(self, client, namespace, own_namespace):
        self.client = client
        self.namespace = namespace
        self.own_namespace = own_namespace
        self.running = Running(client, own_namespace)

    async def restart(self):
        """Stop the controller and start one that knows nothing."""
        await self.running.stop()
        self.running = Running(self.client, self.own_namespace)
        self.running.start()

    async def create(self, resource, obj, namespace):
        kinds = {"apiVersion": resource.api_version, "kind": resource.kind}
        return await self.client.create(resource, {**kinds, **obj}, namespace)

    async def evaluation(self, **spec):
        spec = {"evaluationDefinition": "checks", "workloadVersion": "1.0", **spec}
        metadata = {"name": NAME, "namespace": self.namespace}
        await self.create(EVALUATIONS, {"metadata": metadata, "spec": spec}, self.namespace)

    async def definition(self, *objectives, namespace=None, **spec):
        namespace = namespace or self.namespace
        found = [
            {"keptnMetricRef": {"name": name}, "evaluationTarget": target}
            for name, target in objectives
        ]
        obj = {
            "metadata": {"name": "checks", "namespace": namespace},
            "spec": {**spec, "objectives": found},
        }
        raw = await self.create(EVALUATION_DEFINITIONS, obj, namespace)
        return msgspec.json.decode(raw, type=EvaluationDefinition)

    async def metric(self, name="available-cpus", namespace=None):
        namespace = namespace or self.namespace
        spec = {"provider": {"name": "p"}, "query": "q", "fetchIntervalSeconds": 3600}
        obj = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
        await self.create(KEPTN_METRICS, obj, namespace)

    async def measured(self, value, name="available-cpus", namespace=None, raw="MTA="):
        """Write what a metric's controller would, and wait until the cache has it."""
        namespace = namespace or self.namespace
        stamped = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"value": value, "rawValue": raw, "lastUpdated": stamped}
        await self.client.patch(
            KEPTN_METRICS, name, MergePatch({"status": status}), namespace, subresource="status"
        )
        store = self.running.caches.metrics.store
        key = f"{namespace}/{name}"
        await self.running.until(lambda: key in store and store.get(key).status.value == value)

    async def until(self, is_so, timeout=PATIENCE):  # noqa: ASYNC109 - a bound, not an option
        """The evaluation's status as soon as ``is_so`` of it."""
        store = self.running.caches.evaluations.store
        key = f"{self.namespace}/{NAME}"

        def find():
            found = store.get(key)
            return found is not None and is_so(found.status) and found

        return (await self.running.until(find, timeout)).status

    async def told(self, *reasons):
        """Wait until just this has been told of our namespaces; others may still be ending."""
        ours = {self.namespace, self.own_namespace}
        kept = self.running.signals.kept

        def is_so():
            return [one.reason for one in kept if one.obj.metadata.namespace in ours] == [*reasons]

        await self.running.until(is_so)

    async def tries(self, count):
        return await self.until(lambda status: status.retry_count == count)

    async def verdict(self, timeout=PATIENCE):  # noqa: ASYNC109 - a bound, not an option
        return await self.until(lambda status: status.end_time, timeout)


@pytest.fixture
async def world(control_plane, kubectl, namespace):
    own_namespace = fresh_namespace(kubectl, "own")
    async with connected(control_plane.kubeconfig) as client:
        found = World(client, namespace, own_namespace)
        found.running.start()
        yield found
        await found.running.stop()
    delete_namespace(kubectl, own_namespace)


async def test_a_value_of_5_is_below_10(world):
    await world.metric()
    await world.measured("5")
    await world.definition(("available-cpus", "<10"))
    await world.evaluation()
    status = await world.verdict(SOON)
    assert status.overall_status == "Succeeded"
    assert status.retry_count == 1
    (result,) = status.evaluation_status.items()
    assert result[0] == "available-cpus"
    assert msgspec.to_builtins(result[1]) == {
        "value": "5",
        "status": "Succeeded",
        "message": "value '5' met objective '<10'",
    }


async def test_c75_two_retries_every_three_seconds_fail_after_six(world):
    """As the evaluation that fails with retries of the component and chainsaw tests."""
    await world.metric()
    await world.measured("4")
    loop = asyncio.get_running_loop()
    await world.definition(("available-cpus", ">1000"), retries=2, retryInterval="3s")
    begun = loop.time()
    await world.evaluation(retries=2, retryInterval="3s")
    await world.tries(1)
    times = [loop.time() - begun]
    await world.tries(2)
    times.append(loop.time() - begun)
    status = await world.verdict()
    times.append(loop.time() - begun)
    assert times == pytest.approx([0, 3, 6], abs=LATE)
    assert (status.retry_count, status.overall_status) == (2, "Failed")
    assert status.evaluation_status["available-cpus"].message == (
        "value '4' did not meet objective '>1000'"
    )
    assert parse(status.start_time) < parse(status.end_time)
    await world.told("ReconcileEvaluationReconcileTimeout", "completed")


async def test_two_objectives_for_one_metric_fit_the_schema(world):
    await world.metric()
    await world.measured("7")
    await world.definition(("available-cpus", ">=7"), ("available-cpus", "<10,!=8"))
    await world.evaluation()
    status = await world.verdict(SOON)
    assert status.overall_status == "Succeeded"
    assert set(status.evaluation_status) == {"available-cpus", "available-cpus#2"}


async def test_a_restart_between_two_tries_shortens_no_interval_and_counts_nothing_twice(world):
    await world.definition(("available-cpus", "<10"))
    await world.evaluation(retries=5, retryInterval="4s")
    loop = asyncio.get_running_loop()
    await world.tries(1)
    measured = loop.time()
    await world.restart()
    await world.tries(2)
    # The time that the API server keeps is cut to its second.
    assert 4.0 <= loop.time() - measured + 0.05 <= 5.0 + 2 * LATE


async def test_an_evaluation_of_ours_is_accepted_with_all_that_it_says(world):
    definition = await world.definition(("available-cpus", "<10"), retries=0, retryInterval="1m30s")
    parent = AppVersion(
        metadata=Metadata(name="shop-1.0-6b86b273", namespace=world.namespace, uid="some-uid"),
        spec=AppVersionSpec(app_name="shop", version="1.0"),
    )
    made = evaluation_for(parent, definition, PRE)
    stored = json.loads(await world.create(EVALUATIONS, made, world.namespace))
    assert stored["spec"] == made["spec"]
    assert stored["spec"]["retries"] == 0
    assert stored["spec"]["retryInterval"] == "1m30s"


def config(namespace, name="config", **spec):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


async def test_c84_the_settings_of_a_keptnconfig_end_with_it(world):
    running, own = world.running, world.own_namespace

    async def until(configuration):
        await running.until(lambda: running.holder.current == configuration)

    await world.create(
        KEPTN_CONFIGS,
        config(own, blockDeployment=False, OTelCollectorUrl="collector.example.com:4317"),
        own,
    )
    await until(Configuration(block_deployment=False, collector_url="collector.example.com:4317"))
    store = running.caches.configs.store
    await running.until(lambda: store.get(f"{own}/config").status == "in force")
    foreign = config(world.namespace, blockDeployment=True)
    await world.create(KEPTN_CONFIGS, foreign, world.namespace)
    key = f"{world.namespace}/config"
    await running.until(lambda: key in store and store.get(key).status)
    assert store.get(key).status == f"not in force: only a KeptnConfig in {own} counts"
    assert not running.holder.current.block_deployment
    await world.client.delete(KEPTN_CONFIGS, "config", own)
    await until(Configuration())


async def test_a_duration_that_the_schema_lets_pass_is_told_in_the_status(world):
    running, own = world.running, world.own_namespace
    await world.create(KEPTN_CONFIGS, config(own, observabilityTimeout="0 days"), own)
    store = running.caches.configs.store
    key = f"{own}/config"
    status = await running.until(lambda: key in store and store.get(key).status)
    assert status.startswith('in force, but observabilityTimeout: "0 days" is no duration')
    assert running.holder.current == Configuration()
    await world.told("ReconcileConfigFailed")
