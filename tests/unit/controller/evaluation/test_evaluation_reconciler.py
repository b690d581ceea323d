"""The steps of KeptnEvaluations; the test advances the clock and fills the caches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harbourmaster.api.references import ALLOW_FROM
from harbourmaster.api.resources import EVALUATION_DEFINITIONS, EVALUATIONS, KEPTN_METRICS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.evaluation.evaluation_reconciler import EvaluationReconciler
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.evaluation.model import Metric
from harbourmaster.kube.errors import ApiError, ConflictError, ServerError
from harbourmaster.lifecycle.keptn_config import LifecycleConfiguration
from harbourmaster.lifecycle.model import Evaluation, EvaluationDefinition
from helpers.signals import RecordedSignals
from helpers.stored import sync

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Holder:
    current = LifecycleConfiguration()


class World:
    """One controller, at a time that only the test moves."""

    def __init__(self, api, client):
        self.api = api
        self.client = client
        self.now = START
        self.settings = LifecycleSettings()
        self.references = "ProvidersNeedConsent"
        self.restart()

    def restart(self):
        """Forget all that a process knows."""
        self.signals = RecordedSignals()
        self.caches = LifecycleCaches(self.client)
        self.evaluations = EvaluationReconciler(
            Context(
                client=self.client,
                caches=self.caches,
                settings=self.settings,
                configuration=Holder(),
                signals=self.signals,
                now=lambda: self.now,
                namespace="harbour",
                references=self.references,
            )
        )
        self.sync()

    def sync(self):
        """Bring the caches to what is stored."""
        sync(
            self.api,
            (self.caches.evaluations, EVALUATIONS, Evaluation),
            (self.caches.evaluation_definitions, EVALUATION_DEFINITIONS, EvaluationDefinition),
            (self.caches.metrics, KEPTN_METRICS, Metric),
        )

    def evaluation(self, name="pre-eval-checks-1", *, status=None, managed=(), **spec):
        metadata = {"name": name, "namespace": "prod", "managedFields": list(managed)}
        spec = {
            "evaluationDefinition": "checks",
            "workloadVersion": "",
            "retries": 2,
            "retryInterval": "3s",
            **spec,
        }
        obj = {"metadata": metadata, "spec": spec}
        self.api.put(EVALUATIONS, obj if status is None else {**obj, "status": status})

    def definition(self, *objectives, namespace="prod"):
        """Each objective is a metric's name, its target, and perhaps a namespace."""
        found = [
            {
                "keptnMetricRef": {"name": name, **({"namespace": rest[0]} if rest else {})},
                "evaluationTarget": target,
            }
            for name, target, *rest in objectives
        ]
        metadata = {"name": "checks", "namespace": namespace}
        self.api.put(EVALUATION_DEFINITIONS, {"metadata": metadata, "spec": {"objectives": found}})

    def metric(self, name, value, namespace="prod", raw="MTA=", allow=""):
        status = {"value": value, "rawValue": raw, "lastUpdated": format_rfc3339(self.now)}
        annotations = {ALLOW_FROM: allow} if allow else {}
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        spec = {"fetchIntervalSeconds": 60}
        self.api.put(KEPTN_METRICS, {"metadata": metadata, "spec": spec, "status": status})

    async def look(self, seconds=0.0):
        """Reconcile so many seconds later, with up-to-date caches."""
        self.now += timedelta(seconds=seconds)
        self.sync()
        return await self.evaluations.reconcile("prod/pre-eval-checks-1")

    @property
    def status(self):
        return self.api.get(EVALUATIONS, "pre-eval-checks-1", "prod").get("status")

    @property
    def message(self):
        return self.status["evaluationStatus"]["cpus"]["message"]

    @property
    def writes(self):
        return len([request for request in self.api.requests if request.verb == "patch"])


@pytest.fixture
def world(api, client):
    return World(api, client)


@pytest.fixture
def evaluated(world):
    world.evaluation()
    world.definition(("cpus", ">5"))
    return world


async def test_a_value_that_is_good_ends_it_at_once(world):
    world.evaluation()
    world.definition(("cpus", "<10"))
    world.metric("cpus", "5")
    assert await world.look() is None
    assert world.status == {
        "retryCount": 1,
        "evaluationStatus": {
            "cpus": {
                "value": "5",
                "status": "Succeeded",
                "message": "value '5' met objective '<10'",
            }
        },
        "overallStatus": "Succeeded",
        "startTime": "2026-03-01T12:00:00Z",
        "endTime": "2026-03-01T12:00:00Z",
    }
    assert world.signals.reasons == ["completed"]


async def test_c74_what_is_missing_is_said_and_tried_again_until_it_is_there(world):
    world.evaluation(retries=5)
    world.definition(("cpus", ">5"))
    assert await world.look() == 3.0
    found = "KeptnMetric cpus not found in namespace prod or harbour or keptn-system"
    assert world.message.startswith(f"inconclusive: {found}: create it there, or set ")
    assert world.status["evaluationStatus"]["cpus"]["value"] == ""
    world.metric("cpus", "")
    assert await world.look(3) == 3.0
    assert world.message == "inconclusive: empty value for: cpus"
    world.metric("cpus", "10", raw="")
    assert await world.look(3) == 3.0
    assert world.message == "inconclusive: empty rawValue for: cpus"
    assert world.status["overallStatus"] == "Progressing"
    world.metric("cpus", "10")
    assert await world.look(3) is None
    assert (world.status["retryCount"], world.status["overallStatus"]) == (4, "Succeeded")


async def test_c75_it_fails_one_interval_after_the_last_try(evaluated):
    evaluated.metric("cpus", "3")
    assert await evaluated.look() == 3.0
    assert (evaluated.status["retryCount"], evaluated.status["overallStatus"]) == (1, "Progressing")
    assert await evaluated.look(3) == 3.0
    assert (evaluated.status["retryCount"], evaluated.status["overallStatus"]) == (2, "Progressing")
    assert evaluated.signals.reasons == []
    assert await evaluated.look(3) is None
    assert (evaluated.status["retryCount"], evaluated.status["overallStatus"]) == (2, "Failed")
    assert evaluated.status["startTime"] == format_rfc3339(START)
    assert evaluated.status["endTime"] == format_rfc3339(START + timedelta(seconds=6))
    assert evaluated.message == "value '3' did not meet objective '>5'"
    assert evaluated.signals.reasons == ["ReconcileEvaluationReconcileTimeout", "completed"]
    assert evaluated.signals.kept[0].text == "retryCount exceeded; not met: cpus"
    # Who is told finds the verdict.
    assert {each.obj.status.overall_status for each in evaluated.signals.kept} == {"Failed"}


async def test_nothing_but_time_causes_a_try(evaluated):
    await evaluated.look()
    evaluated.metric("cpus", "10")
    assert await evaluated.look(1) == 2.0
    # Nor does the definition.
    evaluated.definition(("cpus", ">6"))
    assert await evaluated.look(1) == 1.0
    assert evaluated.writes == 1
    assert await evaluated.look(1) is None
    assert (evaluated.status["retryCount"], evaluated.status["overallStatus"]) == (2, "Succeeded")


async def test_a_cache_that_is_behind_counts_no_try_twice(evaluated):
    await evaluated.look()
    # The write has not come back yet, and something wakes the object.
    assert await evaluated.evaluations.reconcile("prod/pre-eval-checks-1") == 3.0
    assert evaluated.writes == 1


async def test_a_value_changed_by_another_is_a_conflict_and_no_try(evaluated):
    evaluated.sync()
    evaluated.evaluation(status={"retryCount": 1, "evaluationStatus": {}, "overallStatus": ""})
    with pytest.raises(ConflictError):
        await evaluated.evaluations.reconcile("prod/pre-eval-checks-1")
    assert evaluated.status["retryCount"] == 1
    assert evaluated.signals.reasons == []


PROGRESSING = {
    "retryCount": 1,
    "evaluationStatus": {"cpus": {"value": "3", "status": "Failed", "message": ""}},
    "overallStatus": "Progressing",
    "startTime": format_rfc3339(START),
}


async def test_after_a_restart_the_rest_of_the_interval_is_waited_for(world):
    written = {"time": format_rfc3339(START), "subresource": "status", "manager": "x"}
    earlier = {**written, "time": format_rfc3339(START - timedelta(seconds=9))}
    of_spec = {"time": format_rfc3339(START + timedelta(seconds=9)), "manager": "x"}
    world.evaluation(status=PROGRESSING, managed=[earlier, written, of_spec])
    world.definition(("cpus", ">5"))
    # One second more, for the time is cut to its second.
    assert await world.look(1.5) == 2.5
    assert world.writes == 0
    assert await world.look(2.5) == 3.0
    assert world.status["retryCount"] == 2
    assert world.status["startTime"] == format_rfc3339(START)


async def test_a_whole_interval_is_waited_for_where_nothing_tells_of_the_last_try(world):
    world.evaluation(status=PROGRESSING)
    world.definition(("cpus", ">5"))
    assert await world.look() == 3.0
    assert await world.look(2) == 1.0
    assert await world.look(1) == 3.0
    assert world.status["retryCount"] == 2


async def test_a_clock_that_is_behind_the_servers_delays_by_an_interval_at_most(world):
    written = {"time": format_rfc3339(START + timedelta(hours=1)), "subresource": "status"}
    world.evaluation(status=PROGRESSING, managed=[written])
    world.definition(("cpus", ">5"))
    assert await world.look() == 3.0


async def test_c77_a_success_on_the_last_try_stays_one_after_a_restart(evaluated):
    evaluated.metric("cpus", "3")
    await evaluated.look()
    evaluated.metric("cpus", "10")
    assert await evaluated.look(3) is None
    before = evaluated.status
    assert (before["retryCount"], before["overallStatus"]) == (2, "Succeeded")
    evaluated.restart()
    evaluated.metric("cpus", "3")
    assert list(evaluated.evaluations.map_changes(None)) == []
    assert await evaluated.look(60) is None
    assert evaluated.status == before
    assert evaluated.signals.reasons == []


async def test_c78_without_its_definition_it_is_pending_until_one_comes(world):
    world.evaluation()
    assert await world.look() is None
    message = "keptnevaluationdefinition 'checks' not found"
    assert world.status == {
        "retryCount": 0,
        "evaluationStatus": {"checks": {"value": "", "status": "Pending", "message": message}},
        "overallStatus": "Pending",
        "startTime": format_rfc3339(START),
    }
    # It is told once, however often it is looked at.
    assert await world.look(60) is None
    assert world.writes == 1
    assert world.signals.reasons == ["CreateEvaluationNotFound"]
    world.definition(("cpus", ">5"))
    world.metric("cpus", "10")
    assert await world.look() is None
    assert list(world.status["evaluationStatus"]) == ["cpus"]
    assert (world.status["retryCount"], world.status["overallStatus"]) == (1, "Succeeded")


async def test_a_definition_that_is_lost_meanwhile_costs_no_try(world):
    world.evaluation(retries=3)
    world.definition(("cpus", ">5"))
    await world.look()
    world.api.remove(EVALUATION_DEFINITIONS, "checks", "prod")
    assert await world.look(3) is None
    assert (world.status["retryCount"], world.status["overallStatus"]) == (1, "Progressing")
    assert world.status["evaluationStatus"]["checks"]["status"] == "Pending"
    world.definition(("cpus", ">5"))
    assert await world.look(60) == 3.0
    assert world.status["retryCount"] == 2


@pytest.mark.parametrize(
    ("namespace", "of_metric"),
    [("prod", "keptn-system"), ("harbour", "prod"), ("keptn-system", "harbour")],
)
async def test_c79_definition_and_metric_are_looked_up_in_their_namespaces(
    world, namespace, of_metric
):
    world.evaluation()
    world.definition(("cpus", ">5"), namespace=namespace)
    world.metric("cpus", "10", of_metric)
    await world.look()
    assert world.status["overallStatus"] == "Succeeded"


async def test_c79_the_own_namespace_comes_first(world):
    world.evaluation()
    world.definition(("cpus", "<1"), namespace="keptn-system")
    world.definition(("cpus", "<2"), namespace="harbour")
    world.definition(("cpus", ">5"))
    world.metric("cpus", "0", "keptn-system")
    world.metric("cpus", "1", "harbour")
    world.metric("cpus", "10")
    await world.look()
    assert world.message == "value '10' met objective '>5'"


async def test_c79_a_namespace_in_the_objective_is_the_only_one(world):
    world.evaluation()
    world.definition(("cpus", ">5", "other"))
    world.metric("cpus", "10")
    world.metric("cpus", "10", "keptn-system")
    await world.look()
    assert "KeptnMetric cpus not found in namespace other: " in world.message
    world.metric("cpus", "10", "other")
    assert await world.look(3) is None
    assert world.status["overallStatus"] == "Succeeded"


@pytest.mark.parametrize(
    ("interval", "seconds"), [("1m30s", 90.0), ("500ms", 0.5), ("0", 0.1), ("0s", 0.1), ("", 5.0)]
)
async def test_the_interval_is_a_duration(world, interval, seconds):
    world.evaluation(retryInterval=interval)
    world.definition(("cpus", ">5"))
    assert await world.look() == seconds
    assert world.signals.reasons == []


async def test_an_interval_that_is_none_is_told_once_and_replaced(world):
    world.evaluation(retryInterval="0 days")
    world.definition(("cpus", ">5"))
    assert await world.look() == 5.0
    assert await world.look(5) == 5.0
    (told,) = world.signals.kept
    assert (told.reason, told.warning) == ("ReconcileEvaluationReconcileError", True)
    assert told.text.startswith('retryInterval "0 days" is not a duration')
    assert told.text.endswith("5s is used instead")


async def test_a_write_that_fails_is_told_and_is_no_try(evaluated):
    evaluated.api.fail_next("patch", status=500)
    evaluated.sync()
    with pytest.raises(ServerError):
        await evaluated.evaluations.reconcile("prod/pre-eval-checks-1")
    assert evaluated.signals.reasons == ["ReconcileEvaluationReconcileError"]
    assert await evaluated.look() == 3.0
    assert evaluated.status["retryCount"] == 1


async def test_a_write_whose_answer_is_lost_counts_once(evaluated):
    evaluated.sync()
    evaluated.api.fail_next("patch", kind="torn")
    # Sent again, it finds another version than the one that it is for.
    with pytest.raises(ApiError):
        await evaluated.evaluations.reconcile("prod/pre-eval-checks-1")
    assert await evaluated.look() == 3.0
    assert evaluated.status["retryCount"] == 1
    assert await evaluated.look(3) == 3.0
    assert evaluated.status["retryCount"] == 2


async def test_what_is_gone_is_forgotten(evaluated):
    evaluated.sync()
    evaluated.api.remove(EVALUATIONS, "pre-eval-checks-1", "prod")
    assert await evaluated.evaluations.reconcile("prod/pre-eval-checks-1") is None
    assert evaluated.signals.reasons == []
    assert await evaluated.look() is None


async def test_what_ends_is_not_measured(world):
    world.evaluation()
    obj = world.api.get(EVALUATIONS, "pre-eval-checks-1", "prod")
    metadata = {**obj["metadata"], "deletionTimestamp": format_rfc3339(START)}
    world.api.objects.all(EVALUATIONS)["prod", "pre-eval-checks-1"] = {**obj, "metadata": metadata}
    world.definition(("cpus", ">5"))
    assert await world.look() is None
    assert world.writes == 0


async def test_one_of_the_same_name_begins_anew(evaluated):
    await evaluated.look()
    evaluated.api.remove(EVALUATIONS, "pre-eval-checks-1", "prod")
    evaluated.evaluation()
    assert await evaluated.look() == 3.0
    assert evaluated.status["retryCount"] == 1


async def test_due_are_those_without_a_verdict_and_those_to_be_forgotten(world):
    world.evaluation()
    world.evaluation("other", status={**PROGRESSING, "overallStatus": "Failed"})
    world.definition(("cpus", ">5"))
    world.sync()
    assert list(world.evaluations.map_changes(None)) == ["prod/pre-eval-checks-1"]
    assert list(world.evaluations.map_changes(["prod/other", "prod/none"])) == []
    await world.look()
    world.api.remove(EVALUATIONS, "pre-eval-checks-1", "prod")
    world.sync()
    assert list(world.evaluations.map_changes(["prod/pre-eval-checks-1"])) == [
        "prod/pre-eval-checks-1"
    ]
    await world.evaluations.reconcile("prod/pre-eval-checks-1")
    assert list(world.evaluations.map_changes(["prod/pre-eval-checks-1"])) == []


async def test_a_stale_value_never_passes(evaluated):
    evaluated.metric("cpus", "10")
    await evaluated.look(131)
    text = "inconclusive: the value of cpus is 2m11s old, longer than 2m10s"
    assert evaluated.message == text
    assert evaluated.status["overallStatus"] == "Progressing"
    evaluated.metric("cpus", "10")
    await evaluated.look(3)
    assert evaluated.status["overallStatus"] == "Succeeded"


async def test_without_sticky_successes_all_must_be_met_by_one_measurement(world):
    world.settings = LifecycleSettings(sticky_evaluations=False)
    world.restart()
    world.evaluation(retries=9)
    world.definition(("cpus", ">5"), ("errors", "<1"))
    world.metric("cpus", "10")
    world.metric("errors", "1")
    await world.look()
    world.metric("cpus", "0")
    world.metric("errors", "0")
    await world.look(3)
    assert world.status["overallStatus"] == "Progressing"
    assert world.message == "value '0' did not meet objective '>5'"
    world.metric("cpus", "10")
    await world.look(3)
    assert world.status["overallStatus"] == "Succeeded"


REFUSED = (
    'no consent to references from namespace "prod": keptnmetric platform/cpus: '
    "kubectl annotate keptnmetric -n platform cpus harbourmaster.dev/allow-from=prod"
)


@pytest.mark.claim("O14")
@pytest.mark.parametrize("exists", [True, False])
async def test_an_evaluation_waits_for_the_consent_of_a_metric(world, exists):
    world.references = "AllNeedConsent"
    world.restart()
    world.evaluation()
    world.definition(("cpus", ">5", "platform"), ("own", ">5"))
    world.metric("own", "10")
    if exists:
        world.metric("cpus", "4242.5", namespace="platform")
    assert await world.look() is None
    assert world.status["evaluationStatus"] == {
        "cpus": {"value": "", "status": "Pending", "message": REFUSED}
    }
    assert (world.status["retryCount"], world.status["overallStatus"]) == (0, "Pending")
    # It is told once, and costs no try.
    assert await world.look(60) is None
    assert world.signals.reasons == ["ReferenceRefused"]
    assert world.writes == 1
    world.metric("cpus", "10", namespace="platform", allow="prod")
    assert await world.look() is None
    assert (world.status["retryCount"], world.status["overallStatus"]) == (1, "Succeeded")


@pytest.mark.claim("O14")
async def test_a_metric_is_not_read_once_its_consent_is_withdrawn(world):
    world.references = "AllNeedConsent"
    world.restart()
    world.evaluation(retries=5)
    world.definition(("cpus", ">5", "platform"))
    world.metric("cpus", "1", namespace="platform", allow="*")
    await world.look()
    world.metric("cpus", "10", namespace="platform")
    assert await world.look(3) is None
    assert (world.message, world.status["retryCount"]) == (REFUSED, 1)


async def test_the_definition_refers_to_a_metric_and_not_who_uses_it(world):
    world.references = "AllNeedConsent"
    world.restart()
    world.evaluation()
    world.definition(("cpus", ">5", "harbour"), namespace="harbour")
    world.metric("cpus", "10", namespace="harbour")
    await world.look()
    assert world.status["overallStatus"] == "Succeeded"


async def test_shared_metrics_that_are_looked_up_need_no_consent(world):
    world.references = "AllNeedConsent"
    world.restart()
    world.evaluation()
    world.definition(("cpus", ">5"))
    world.metric("cpus", "10", namespace="harbour")
    await world.look()
    assert world.status["overallStatus"] == "Succeeded"
