"""The steps of KeptnEvaluations; the test advances the clock and fills the caches.

These tests prove keptn-spec 4.1.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from harbourmaster.api.references import ALLOW_FROM
from harbourmaster.api.resources import EVALUATION_DEFINITIONS, EVALUATIONS, KEPTN_METRICS
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.controller.evaluation.evaluation_reconciler import EvaluationReconciler
from harbourmaster.controller.lifecycle.caches import LifecycleCaches
from harbourmaster.controller.lifecycle.context import Context
from harbourmaster.controller.lifecycle.settings import LifecycleSettings
from harbourmaster.evaluation.model import Metric
from harbourmaster.kube.errors import ApiError, ConflictError, ServerError
from harbourmaster.lifecycle.keptn_config import LifecycleConfiguration
from harbourmaster.lifecycle.model import Evaluation, EvaluationDefinition
from helpers.evaluation import sync
from helpers.signals import RecordedSignals

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Holder:
    current = LifecycleConfiguration()


class EvaluationEnvironment:
    """A reconciler and its API server, whose clock only the test advances."""

    def __init__(self, api, client):
        self.api = api
        self.client = client
        self.now = START
        self.settings = LifecycleSettings()
        self.references = "ProvidersNeedConsent"
        self.restart()

    def restart(self):
        """Replace the reconciler and its caches, as a new process does."""
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
        """Fill the caches with the stored objects."""
        sync(
            self.api,
            (self.caches.evaluations, EVALUATIONS, Evaluation),
            (self.caches.evaluation_definitions, EVALUATION_DEFINITIONS, EvaluationDefinition),
            (self.caches.metrics, KEPTN_METRICS, Metric),
        )

    def put_evaluation(self, name="pre-eval-checks-1", *, status=None, managed=(), **spec):
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

    def put_definition(self, *objectives, namespace="prod"):
        """Take objectives as the name of a metric, its target, and optionally a namespace."""
        items = [
            {
                "keptnMetricRef": {"name": name, **({"namespace": rest[0]} if rest else {})},
                "evaluationTarget": target,
            }
            for name, target, *rest in objectives
        ]
        metadata = {"name": "checks", "namespace": namespace}
        self.api.put(EVALUATION_DEFINITIONS, {"metadata": metadata, "spec": {"objectives": items}})

    def put_metric(self, name, value, namespace="prod", raw="MTA=", allow=""):
        status = {"value": value, "rawValue": raw, "lastUpdated": format_rfc3339(self.now)}
        annotations = {ALLOW_FROM: allow} if allow else {}
        metadata = {"name": name, "namespace": namespace, "annotations": annotations}
        spec = {"fetchIntervalSeconds": 60}
        self.api.put(KEPTN_METRICS, {"metadata": metadata, "spec": spec, "status": status})

    async def reconcile(self, seconds=0.0):
        """Reconcile so many seconds later, with up-to-date caches."""
        self.now += timedelta(seconds=seconds)
        self.sync()
        return await self.evaluations.reconcile("prod/pre-eval-checks-1")

    @property
    def status(self):
        return self.api.get(EVALUATIONS, "pre-eval-checks-1", "prod").get("status")

    @property
    def progress(self):
        return self.status["retryCount"], self.status["overallStatus"]

    @property
    def message(self):
        return self.status["evaluationStatus"]["cpus"]["message"]

    @property
    def writes(self):
        return len([request for request in self.api.requests if request.verb == "patch"])


@pytest.fixture
def env(api, client):
    return EvaluationEnvironment(api, client)


@pytest.fixture
def ready_env(env):
    env.put_evaluation()
    env.put_definition(("cpus", ">5"))
    return env


async def test_a_value_that_is_good_ends_it_at_once(env):
    env.put_evaluation()
    env.put_definition(("cpus", "<10"))
    env.put_metric("cpus", "5")
    assert await env.reconcile() is None
    assert env.status == {
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
        "measurements": {
            "cpus": {
                "target": "<10",
                "tries": [{"time": "2026-03-01T12:00:00Z", "status": "Succeeded", "value": "5"}],
            }
        },
    }
    assert env.signals.reasons == ["completed"]


async def test_c75_it_fails_one_interval_after_the_last_try(ready_env):
    ready_env.put_metric("cpus", "3")
    assert await ready_env.reconcile() == 3.0
    assert ready_env.progress == (1, "Progressing")
    assert await ready_env.reconcile(3) == 3.0
    assert ready_env.progress == (2, "Progressing")
    assert ready_env.signals.reasons == []
    assert await ready_env.reconcile(3) is None
    assert ready_env.progress == (2, "Failed")
    assert ready_env.status["startTime"] == format_rfc3339(START)
    assert ready_env.status["endTime"] == format_rfc3339(START + timedelta(seconds=6))
    assert ready_env.message == "value '3' did not meet objective '>5'"
    assert ready_env.signals.reasons == ["ReconcileEvaluationReconcileTimeout", "completed"]
    assert ready_env.signals.kept[0].text == "retryCount exceeded; not met: cpus"
    # Who is told finds the verdict.
    assert {signal.obj.status.overall_status for signal in ready_env.signals.kept} == {"Failed"}


def recorded(env, key="cpus"):
    """Seconds since the start, value and state of the recorded tries."""
    return [
        (
            (parse_rfc3339(made["time"]) - START).total_seconds(),
            made.get("value", ""),
            made["status"],
        )
        for made in env.status["measurements"][key]["tries"]
    ]


async def test_every_try_is_recorded_by_the_write_that_counts_it(env):
    env.put_evaluation(retries=5)
    env.put_definition(("cpus", ">5"), ("errors", "<1"))
    env.put_metric("errors", "0")
    for value in ("4", "4", "NaN"):
        env.put_metric("cpus", value)
        await env.reconcile(3)
    assert recorded(env) == [
        (3.0, "4", "Failed"),
        (6.0, "4", "Failed"),
        (9.0, "NaN", "Failed"),
    ]
    assert env.writes == 3
    # What was met is not measured again.
    assert recorded(env, "errors") == [(3.0, "0", "Succeeded")]
    cpus = env.status["measurements"]["cpus"]
    assert [made.get("message", "") for made in cpus["tries"]] == [
        "",
        "",
        "inconclusive: value 'NaN' is not a finite number",
    ]
    assert cpus["target"] == ">5"
    # A target that is relaxed in between is that of the newest try.
    env.put_definition(("cpus", ">3"), ("errors", "<1"))
    env.put_metric("cpus", "4")
    assert await env.reconcile(3) is None
    assert recorded(env)[3:] == [(12.0, "4", "Succeeded")]
    assert env.status["measurements"]["cpus"]["target"] == ">3"


async def test_the_end_and_waiting_are_no_measurements(ready_env):
    ready_env.put_metric("cpus", "3")
    await ready_env.reconcile()
    ready_env.api.remove(EVALUATION_DEFINITIONS, "checks", "prod")
    await ready_env.reconcile(3)
    ready_env.put_definition(("cpus", ">5"))
    ready_env.restart()
    for _ in range(3):
        await ready_env.reconcile(3)
    assert ready_env.progress == (2, "Failed")
    assert [seconds for seconds, *_ in recorded(ready_env)] == [0.0, 9.0]


async def test_an_evaluation_without_objectives_has_no_record(env):
    env.put_evaluation()
    env.put_definition()
    assert await env.reconcile() is None
    assert env.progress == (1, "Succeeded")
    assert "measurements" not in env.status


async def test_the_newest_twenty_tries_are_recorded(env):
    env.put_evaluation(retries=30)
    env.put_definition(("cpus", ">5"))
    for number in range(25):
        env.put_metric("cpus", str(-number))
        await env.reconcile(3)
    assert [value for _, value, _ in recorded(env)] == [str(1 - number) for number in range(6, 26)]


async def test_nothing_but_time_causes_a_try(ready_env):
    await ready_env.reconcile()
    ready_env.put_metric("cpus", "10")
    assert await ready_env.reconcile(1) == 2.0
    # Nor does the definition.
    ready_env.put_definition(("cpus", ">6"))
    assert await ready_env.reconcile(1) == 1.0
    assert ready_env.writes == 1
    assert await ready_env.reconcile(1) is None
    assert ready_env.progress == (2, "Succeeded")


async def test_a_cache_that_is_behind_counts_no_try_twice(ready_env):
    await ready_env.reconcile()
    # The write has not come back yet, and something wakes the object.
    assert await ready_env.evaluations.reconcile("prod/pre-eval-checks-1") == 3.0
    assert ready_env.writes == 1


async def test_a_value_changed_by_another_is_a_conflict_and_no_try(ready_env):
    ready_env.sync()
    ready_env.put_evaluation(status={"retryCount": 1, "evaluationStatus": {}, "overallStatus": ""})
    with pytest.raises(ConflictError):
        await ready_env.evaluations.reconcile("prod/pre-eval-checks-1")
    assert ready_env.status["retryCount"] == 1
    assert ready_env.signals.reasons == []


PROGRESSING = {
    "retryCount": 1,
    "evaluationStatus": {"cpus": {"value": "3", "status": "Failed", "message": ""}},
    "overallStatus": "Progressing",
    "startTime": format_rfc3339(START),
}


async def test_after_a_restart_the_rest_of_the_interval_is_waited_for(env):
    written = {"time": format_rfc3339(START), "subresource": "status", "manager": "x"}
    earlier = {**written, "time": format_rfc3339(START - timedelta(seconds=9))}
    of_spec = {"time": format_rfc3339(START + timedelta(seconds=9)), "manager": "x"}
    env.put_evaluation(status=PROGRESSING, managed=[earlier, written, of_spec])
    env.put_definition(("cpus", ">5"))
    # One second more, for the time is cut to its second.
    assert await env.reconcile(1.5) == 2.5
    assert env.writes == 0
    assert await env.reconcile(2.5) == 3.0
    assert env.status["retryCount"] == 2
    assert env.status["startTime"] == format_rfc3339(START)


async def test_a_whole_interval_is_waited_for_where_nothing_tells_of_the_last_try(env):
    env.put_evaluation(status=PROGRESSING)
    env.put_definition(("cpus", ">5"))
    assert await env.reconcile() == 3.0
    assert await env.reconcile(2) == 1.0
    assert await env.reconcile(1) == 3.0
    assert env.status["retryCount"] == 2


async def test_a_clock_that_is_behind_the_servers_delays_by_an_interval_at_most(env):
    written = {"time": format_rfc3339(START + timedelta(hours=1)), "subresource": "status"}
    env.put_evaluation(status=PROGRESSING, managed=[written])
    env.put_definition(("cpus", ">5"))
    assert await env.reconcile() == 3.0


async def test_c77_a_success_on_the_last_try_stays_one_after_a_restart(ready_env):
    ready_env.put_metric("cpus", "3")
    await ready_env.reconcile()
    ready_env.put_metric("cpus", "10")
    assert await ready_env.reconcile(3) is None
    before = ready_env.status
    assert (before["retryCount"], before["overallStatus"]) == (2, "Succeeded")
    ready_env.restart()
    ready_env.put_metric("cpus", "3")
    assert list(ready_env.evaluations.map_changes(None)) == []
    assert await ready_env.reconcile(60) is None
    assert ready_env.status == before
    assert ready_env.signals.reasons == []


async def test_c78_without_its_definition_it_is_pending_until_one_comes(env):
    env.put_evaluation()
    assert await env.reconcile() is None
    message = "keptnevaluationdefinition 'checks' not found"
    assert env.status == {
        "retryCount": 0,
        "evaluationStatus": {"checks": {"value": "", "status": "Pending", "message": message}},
        "overallStatus": "Pending",
        "startTime": format_rfc3339(START),
    }
    # It is told once, however often it is looked at.
    assert await env.reconcile(60) is None
    assert env.writes == 1
    assert env.signals.reasons == ["CreateEvaluationNotFound"]
    env.put_definition(("cpus", ">5"))
    env.put_metric("cpus", "10")
    assert await env.reconcile() is None
    assert list(env.status["evaluationStatus"]) == ["cpus"]
    assert env.progress == (1, "Succeeded")


async def test_a_definition_that_is_lost_meanwhile_costs_no_try(env):
    env.put_evaluation(retries=3)
    env.put_definition(("cpus", ">5"))
    await env.reconcile()
    env.api.remove(EVALUATION_DEFINITIONS, "checks", "prod")
    assert await env.reconcile(3) is None
    assert env.progress == (1, "Progressing")
    assert env.status["evaluationStatus"]["checks"]["status"] == "Pending"
    env.put_definition(("cpus", ">5"))
    assert await env.reconcile(60) == 3.0
    assert env.status["retryCount"] == 2


@pytest.mark.parametrize(
    ("namespace", "of_metric"),
    [("prod", "keptn-system"), ("harbour", "prod"), ("keptn-system", "harbour")],
)
async def test_c79_definition_and_metric_are_looked_up_in_their_namespaces(
    env, namespace, of_metric
):
    env.put_evaluation()
    env.put_definition(("cpus", ">5"), namespace=namespace)
    env.put_metric("cpus", "10", of_metric)
    await env.reconcile()
    assert env.status["overallStatus"] == "Succeeded"


async def test_c79_the_own_namespace_comes_first(env):
    env.put_evaluation()
    env.put_definition(("cpus", "<1"), namespace="keptn-system")
    env.put_definition(("cpus", "<2"), namespace="harbour")
    env.put_definition(("cpus", ">5"))
    env.put_metric("cpus", "0", "keptn-system")
    env.put_metric("cpus", "1", "harbour")
    env.put_metric("cpus", "10")
    await env.reconcile()
    assert env.message == "value '10' met objective '>5'"


async def test_c79_a_namespace_in_the_objective_is_the_only_one(env):
    env.put_evaluation()
    env.put_definition(("cpus", ">5", "other"))
    env.put_metric("cpus", "10")
    env.put_metric("cpus", "10", "keptn-system")
    await env.reconcile()
    assert "KeptnMetric cpus not found in namespace other: " in env.message
    env.put_metric("cpus", "10", "other")
    assert await env.reconcile(3) is None
    assert env.status["overallStatus"] == "Succeeded"


@pytest.mark.parametrize(
    ("interval", "seconds"), [("1m30s", 90.0), ("1s", 1.0), ("1500ms", 1.5), ("", 5.0)]
)
async def test_the_interval_is_a_duration(env, interval, seconds):
    env.put_evaluation(retryInterval=interval)
    env.put_definition(("cpus", ">5"))
    assert await env.reconcile() == seconds
    assert env.signals.reasons == []


@pytest.mark.parametrize("interval", ["500ms", "0", "0s", "1ns"])
async def test_an_interval_that_is_too_short_is_raised_and_reported(env, interval):
    env.put_evaluation(retryInterval=interval)
    env.put_definition(("cpus", ">5"))
    assert await env.reconcile() == 1.0
    (event,) = env.signals.kept
    assert event.text == f"retryInterval {interval} is shorter than 1s, so 1s is used"


async def test_an_interval_that_is_none_is_told_once_and_replaced(env):
    env.put_evaluation(retryInterval="0 days")
    env.put_definition(("cpus", ">5"))
    assert await env.reconcile() == 5.0
    assert await env.reconcile(5) == 5.0
    (told,) = env.signals.kept
    assert (told.reason, told.warning) == ("ReconcileEvaluationReconcileError", True)
    assert told.text.startswith('retryInterval "0 days" is not a duration')
    assert told.text.endswith("5s is used instead")


async def test_a_write_that_fails_is_told_and_is_no_try(ready_env):
    ready_env.api.fail_next("patch", status=500)
    ready_env.sync()
    with pytest.raises(ServerError):
        await ready_env.evaluations.reconcile("prod/pre-eval-checks-1")
    assert ready_env.signals.reasons == ["ReconcileEvaluationReconcileError"]
    assert await ready_env.reconcile() == 3.0
    assert ready_env.status["retryCount"] == 1


async def test_a_write_whose_answer_is_lost_counts_once(ready_env):
    ready_env.sync()
    ready_env.api.fail_next("patch", kind="torn")
    # Sent again, it finds another version than the one that it is for.
    with pytest.raises(ApiError):
        await ready_env.evaluations.reconcile("prod/pre-eval-checks-1")
    assert await ready_env.reconcile() == 3.0
    assert ready_env.status["retryCount"] == 1
    assert await ready_env.reconcile(3) == 3.0
    assert ready_env.status["retryCount"] == 2


async def test_what_is_gone_is_forgotten(ready_env):
    ready_env.sync()
    ready_env.api.remove(EVALUATIONS, "pre-eval-checks-1", "prod")
    assert await ready_env.evaluations.reconcile("prod/pre-eval-checks-1") is None
    assert ready_env.signals.reasons == []
    assert await ready_env.reconcile() is None


async def test_what_ends_is_not_measured(env):
    env.put_evaluation()
    obj = env.api.get(EVALUATIONS, "pre-eval-checks-1", "prod")
    metadata = {**obj["metadata"], "deletionTimestamp": format_rfc3339(START)}
    env.api.objects.all(EVALUATIONS)["prod", "pre-eval-checks-1"] = {**obj, "metadata": metadata}
    env.put_definition(("cpus", ">5"))
    assert await env.reconcile() is None
    assert env.writes == 0


async def test_one_of_the_same_name_begins_anew(ready_env):
    await ready_env.reconcile()
    ready_env.api.remove(EVALUATIONS, "pre-eval-checks-1", "prod")
    ready_env.put_evaluation()
    assert await ready_env.reconcile() == 3.0
    assert ready_env.status["retryCount"] == 1


async def test_due_are_those_without_a_verdict_and_those_to_be_forgotten(env):
    env.put_evaluation()
    env.put_evaluation("other", status={**PROGRESSING, "overallStatus": "Failed"})
    env.put_definition(("cpus", ">5"))
    env.sync()
    assert list(env.evaluations.map_changes(None)) == ["prod/pre-eval-checks-1"]
    assert list(env.evaluations.map_changes(["prod/other", "prod/none"])) == []
    await env.reconcile()
    env.api.remove(EVALUATIONS, "pre-eval-checks-1", "prod")
    env.sync()
    assert list(env.evaluations.map_changes(["prod/pre-eval-checks-1"])) == [
        "prod/pre-eval-checks-1"
    ]
    await env.evaluations.reconcile("prod/pre-eval-checks-1")
    assert list(env.evaluations.map_changes(["prod/pre-eval-checks-1"])) == []


async def test_a_stale_value_never_passes(ready_env):
    ready_env.put_metric("cpus", "10")
    await ready_env.reconcile(131)
    text = "inconclusive: the value of cpus is 2m11s old, longer than 2m10s"
    assert ready_env.message == text
    assert ready_env.status["overallStatus"] == "Progressing"
    ready_env.put_metric("cpus", "10")
    await ready_env.reconcile(3)
    assert ready_env.status["overallStatus"] == "Succeeded"


async def test_without_sticky_successes_all_must_be_met_by_one_measurement(env):
    env.settings = LifecycleSettings(sticky_evaluations=False)
    env.restart()
    env.put_evaluation(retries=9)
    env.put_definition(("cpus", ">5"), ("errors", "<1"))
    env.put_metric("cpus", "10")
    env.put_metric("errors", "1")
    await env.reconcile()
    env.put_metric("cpus", "0")
    env.put_metric("errors", "0")
    await env.reconcile(3)
    assert env.status["overallStatus"] == "Progressing"
    assert env.message == "value '0' did not meet objective '>5'"
    env.put_metric("cpus", "10")
    await env.reconcile(3)
    assert env.status["overallStatus"] == "Succeeded"


REFUSED = (
    'no consent to references from namespace "prod": keptnmetric platform/cpus: '
    "kubectl annotate keptnmetric -n platform cpus harbourmaster.dev/allow-from=prod"
)


@pytest.mark.claim("O14")
@pytest.mark.parametrize("exists", [True, False])
async def test_an_evaluation_waits_for_the_consent_of_a_metric(env, exists):
    env.references = "AllNeedConsent"
    env.restart()
    env.put_evaluation()
    env.put_definition(("cpus", ">5", "platform"), ("own", ">5"))
    env.put_metric("own", "10")
    if exists:
        env.put_metric("cpus", "4242.5", namespace="platform")
    assert await env.reconcile() is None
    assert env.status["evaluationStatus"] == {
        "cpus": {"value": "", "status": "Pending", "message": REFUSED}
    }
    assert env.progress == (0, "Pending")
    # It is told once, and costs no try.
    assert await env.reconcile(60) is None
    assert env.signals.reasons == ["ReferenceRefused"]
    assert env.writes == 1
    env.put_metric("cpus", "10", namespace="platform", allow="prod")
    assert await env.reconcile() is None
    assert env.progress == (1, "Succeeded")


@pytest.mark.claim("O14")
async def test_a_metric_is_not_read_once_its_consent_is_withdrawn(env):
    env.references = "AllNeedConsent"
    env.restart()
    env.put_evaluation(retries=5)
    env.put_definition(("cpus", ">5", "platform"))
    env.put_metric("cpus", "1", namespace="platform", allow="*")
    await env.reconcile()
    env.put_metric("cpus", "10", namespace="platform")
    assert await env.reconcile(3) is None
    assert (env.message, env.status["retryCount"]) == (REFUSED, 1)


async def test_the_definition_refers_to_a_metric_and_not_who_uses_it(env):
    env.references = "AllNeedConsent"
    env.restart()
    env.put_evaluation()
    env.put_definition(("cpus", ">5", "harbour"), namespace="harbour")
    env.put_metric("cpus", "10", namespace="harbour")
    await env.reconcile()
    assert env.status["overallStatus"] == "Succeeded"


@pytest.mark.parametrize("named", [(), ("harbour",)], ids=["looked-up", "named"])
async def test_shared_metrics_need_no_consent(env, named):
    """To name the namespace gives no more than to leave it out."""
    env.references = "AllNeedConsent"
    env.restart()
    env.put_evaluation()
    env.put_definition(("cpus", ">5", *named))
    env.put_metric("cpus", "10", namespace="harbour")
    await env.reconcile()
    assert env.status["overallStatus"] == "Succeeded"
