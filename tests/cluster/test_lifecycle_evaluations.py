"""Evaluations on the real API server: its schema, its watches, its time stamps.

Metrics have no controller here: the tests write what one would have measured.
"""

from __future__ import annotations

import asyncio
import contextlib
from datetime import UTC, datetime

import msgspec
import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import EVALUATION_DEFINITIONS, EVALUATIONS, KEPTN_METRICS
from harbourmaster.api.times import parse, stamp
from harbourmaster.controller.lifecycle import watches
from harbourmaster.lifecycle.evaluations import PRE, evaluation_for
from harbourmaster.lifecycle.model import AppVersion, AppVersionSpec, EvaluationDefinition
from helpers.controller import connected
from helpers.flow.manifests import metric
from helpers.gated_namespace import GatedNamespace
from helpers.lifecycle import running
from helpers.patience import PATIENCE

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

# Of an interval of three seconds less than half, of the shortest by default (5 s) less than all.
LATE = 1.4
SOON = 4.0
NAME = "pre-eval-checks-12345"


class Evaluations(GatedNamespace):
    """A namespace with evaluations, and a controller of them."""

    def __init__(self, client, namespace):
        super().__init__(client, namespace)
        self._stack = contextlib.AsyncExitStack()

    async def start(self):
        controller = running(self.client, watches.EVALUATIONS)
        self.controller = await self._stack.enter_async_context(controller)

    async def stop(self):
        await self._stack.aclose()

    async def evaluation(self, **spec):
        spec = {"evaluationDefinition": "checks", "workloadVersion": "1.0", **spec}
        await self.create(EVALUATIONS, NAME, spec)

    async def definition(self, *objectives, **spec):
        found = [
            {"keptnMetricRef": {"name": name}, "evaluationTarget": target}
            for name, target in objectives
        ]
        stored = await self.create(EVALUATION_DEFINITIONS, "checks", {**spec, "objectives": found})
        return msgspec.convert(stored, EvaluationDefinition)

    async def measured(self, value):
        """Write what a metric's controller would, and wait until the cache has it."""
        await self.create(KEPTN_METRICS, "cpus", metric("cpus")["spec"])
        stamped = stamp(datetime.now(UTC))
        status = {"value": value, "rawValue": "MTA=", "lastUpdated": stamped}
        await self.status(KEPTN_METRICS, "cpus", **status)
        store = self.controller.caches.metrics.store
        key = self.key("cpus")
        await self.controller.until(lambda: key in store and store.get(key).status.value == value)

    async def until(self, is_so, patience=PATIENCE):
        """The evaluation's status as soon as ``is_so`` of it."""
        store = self.controller.caches.evaluations.store

        def find():
            found = store.get(self.key(NAME))
            return found is not None and is_so(found.status) and found

        return (await self.controller.until(find, patience)).status

    async def tries(self, count):
        return await self.until(lambda status: status.retry_count == count)

    async def ended(self, patience=PATIENCE):
        return await self.until(lambda status: status.end_time, patience)


@pytest.fixture
async def evaluations(control_plane, namespace):
    async with connected(control_plane.kubeconfig) as client:
        found = Evaluations(client, namespace)
        await found.start()
        yield found
        await found.stop()


async def test_a_value_of_5_is_below_10(evaluations):
    await evaluations.measured("5")
    await evaluations.definition(("cpus", "<10"))
    await evaluations.evaluation()
    status = await evaluations.ended(SOON)
    assert status.overall_status == "Succeeded"
    assert status.retry_count == 1
    (result,) = status.evaluation_status.items()
    assert result[0] == "cpus"
    assert msgspec.to_builtins(result[1]) == {
        "value": "5",
        "status": "Succeeded",
        "message": "value '5' met objective '<10'",
    }


async def test_c75_two_retries_every_three_seconds_fail_after_six(evaluations):
    """As the evaluation that fails with retries of the component and chainsaw tests."""
    await evaluations.measured("4")
    loop = asyncio.get_running_loop()
    await evaluations.definition(("cpus", ">1000"), retries=2, retryInterval="3s")
    begun = loop.time()
    await evaluations.evaluation(retries=2, retryInterval="3s")
    await evaluations.tries(1)
    times = [loop.time() - begun]
    await evaluations.tries(2)
    times.append(loop.time() - begun)
    status = await evaluations.ended()
    times.append(loop.time() - begun)
    assert times == pytest.approx([0, 3, 6], abs=LATE)
    assert (status.retry_count, status.overall_status) == (2, "Failed")
    assert status.evaluation_status["cpus"].message == ("value '4' did not meet objective '>1000'")
    assert parse(status.start_time) < parse(status.end_time)
    told = ["ReconcileEvaluationReconcileTimeout", "completed"]
    signals = evaluations.controller.signals
    await evaluations.controller.until(lambda: signals.of(NAME) == told)


async def test_two_objectives_for_one_metric_fit_the_schema(evaluations):
    await evaluations.measured("7")
    await evaluations.definition(("cpus", ">=7"), ("cpus", "<10,!=8"))
    await evaluations.evaluation()
    status = await evaluations.ended(SOON)
    assert status.overall_status == "Succeeded"
    assert set(status.evaluation_status) == {"cpus", "cpus#2"}


async def test_a_restart_between_two_tries_shortens_no_interval_and_counts_nothing_twice(
    evaluations,
):
    await evaluations.definition(("cpus", "<10"))
    await evaluations.evaluation(retries=5, retryInterval="4s")
    loop = asyncio.get_running_loop()
    await evaluations.tries(1)
    measured = loop.time()
    await evaluations.stop()
    await evaluations.start()
    await evaluations.tries(2)
    # The time that the API server keeps is cut to its second.
    assert 4.0 <= loop.time() - measured + 0.05 <= 5.0 + 2 * LATE


async def test_an_evaluation_of_ours_is_accepted_with_all_that_it_says(evaluations):
    definition = await evaluations.definition(("cpus", "<10"), retries=0, retryInterval="1m30s")
    parent = AppVersion(
        metadata=Metadata(
            name="shop-1.0-6b86b273", namespace=evaluations.namespace, uid="some-uid"
        ),
        spec=AppVersionSpec(app_name="shop", version="1.0"),
    )
    made = evaluation_for(parent, definition, PRE)
    stored = await evaluations.create(
        EVALUATIONS, made["metadata"].pop("name"), made["spec"], **made["metadata"]
    )
    assert stored["spec"] == made["spec"]
    assert stored["spec"]["retries"] == 0
    assert stored["spec"]["retryInterval"] == "1m30s"
