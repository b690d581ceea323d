"""A check is reported with its value, its condition, and the time of its next try."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from harbourmaster.api.metadata import NO_OVERRIDE, Metadata
from harbourmaster.evaluation.metric_status import question_hash
from harbourmaster.evaluation.model import Metric, MetricSpec, MetricStatus, ProviderName
from harbourmaster.lifecycle.check_facts import Facts, check_reports, expected_checks, facts_in
from harbourmaster.lifecycle.model import (
    AppVersionStatus,
    Evaluation,
    EvaluationDefinition,
    EvaluationDefinitionSpec,
    EvaluationSpec,
    EvaluationStatus,
    ItemStatus,
    Measurement,
    MetricReference,
    Objective,
    Task,
    TaskSpec,
    TaskStatus,
    Tries,
    Try,
    WorkloadVersionStatus,
)
from helpers.phased import app_version, workload_version

NOW = datetime.fromisoformat("2026-11-21T18:00:30Z")
STARTED = "2026-11-21T18:00:00Z"
FETCHED = "2026-11-21T18:00:25Z"
REFERENCE = MetricReference(name="errors")
QUERY = "sum(rate(errors[1m]))"


def definition(target="<=0.05", *references):
    objectives = [
        Objective(keptn_metric_ref=reference, evaluation_target=target)
        for reference in references or (REFERENCE,)
    ]
    return EvaluationDefinition(
        metadata=Metadata(name="rate"), spec=EvaluationDefinitionSpec(objectives=tuple(objectives))
    )


def metric(value="0.2", updated=FETCHED):
    spec = MetricSpec(provider=ProviderName(name="prom"), query=QUERY, fetch_interval_seconds=10)
    status = MetricStatus(
        value=value, raw_value="MC4y", last_updated=updated, question=question_hash(spec)
    )
    return Metric(metadata=Metadata(name="errors"), spec=spec, status=status)


def evaluation(tries=2, state="Progressing", results=None, retries=5, interval="10s", **more):
    return Evaluation(
        metadata=Metadata(name="pre-eval-rate-1", namespace="prod"),
        spec=EvaluationSpec(evaluation_definition="rate", retries=retries, retry_interval=interval),
        status=EvaluationStatus(
            retry_count=tries,
            overall_status=state,
            start_time=STARTED if tries else "",
            evaluation_status=results or {},
            **more,
        ),
    )


UNMET = {"errors": Measurement(value="0.2", status="Failed", message="value '0.2' did not meet")}


def check_of(state="Progressing", name="pre-eval-rate-1", **facts):
    """The one evaluation of a workload's version."""
    item = ItemStatus(definition_name="rate", status=state, name=name, start_time=STARTED)
    version = workload_version(
        status=WorkloadVersionStatus(pre_deployment_evaluation_task_status=(item,)),
        pre_deployment_evaluations=("rate",),
    )
    facts = {"definitions": {"rate": definition()}, "metrics": {REFERENCE: metric()}, **facts}
    (check,) = check_reports(version, Facts(**facts), NOW)
    return check


def test_an_evaluation_tells_query_value_threshold_and_the_next_try():
    check = check_of(evaluations={"pre-eval-rate-1": evaluation(results=UNMET)})
    assert (check.kind, check.phase, check.name) == (
        "evaluation",
        "WorkloadPreDeployEvaluations",
        "rate",
    )
    assert (check.value, check.threshold, check.message) == (
        "0.2",
        "<=0.05",
        "value '0.2' did not meet",
    )
    assert (check.tries, check.retries, check.since) == (2, 5, STARTED)
    # The second try was ten seconds after the first, the third would have been at 18:00:20.
    assert check.next_try == "2026-11-21T18:00:30Z"
    (objective,) = check.objectives
    assert objective.text == f"{QUERY} → 0.2 (<=0.05)"
    assert (objective.provider, objective.current, objective.updated) == ("prom", "0.2", FETCHED)
    assert objective.fault == ""


def test_what_is_known_of_the_last_try_counts_more_than_what_is_reckoned():
    measured = {"pre-eval-rate-1": NOW - timedelta(seconds=3)}
    check = check_of(evaluations={"pre-eval-rate-1": evaluation(results=UNMET)}, measured=measured)
    assert check.next_try == "2026-11-21T18:00:37Z"


@pytest.mark.parametrize("tries", [2**62, 10**11, -(2**62)])
def test_a_number_of_tries_that_nobody_made_is_no_fault_of_the_others(tries):
    check = check_of(evaluations={"pre-eval-rate-1": evaluation(tries=tries, retries=2**63 - 1)})
    assert not check.next_try


def test_before_the_first_try_it_is_due_and_there_is_no_value():
    check = check_of("Pending", evaluations={"pre-eval-rate-1": evaluation(0, "Pending")})
    assert (check.next_try, check.value, check.tries) == ("2026-11-21T18:00:30Z", "", 0)
    (objective,) = check.objectives
    assert (objective.state, objective.text) == ("Pending", f"{QUERY} → no value (<=0.05)")


def test_after_the_last_try_there_is_none_but_the_verdict():
    check = check_of(evaluations={"pre-eval-rate-1": evaluation(5, results=UNMET, interval="20s")})
    assert check.next_try == ""
    assert check.message == (
        "its last try is done, and it fails at 2026-11-21T18:01:40Z: value '0.2' did not meet"
    )


@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
def test_what_is_over_has_no_next_try(state):
    check = check_of(state, evaluations={"pre-eval-rate-1": evaluation(5, state, UNMET)})
    assert check.next_try == ""
    assert not check.is_open


def test_the_first_objective_that_is_not_met_is_the_one_that_is_shown():
    references = tuple(MetricReference(name=name) for name in ("a", "b", "errors"))
    results = {
        "a": Measurement(value="1", status="Succeeded"),
        "b": Measurement(value="7", status="Failed", message="bad"),
        **UNMET,
    }
    check = check_of(
        definitions={"rate": definition("<2", *references)},
        evaluations={"pre-eval-rate-1": evaluation(results=results)},
    )
    assert (check.value, check.threshold, check.message) == ("7", "<2", "bad")
    assert [objective.name for objective in check.objectives] == ["a", "b", "errors"]


@pytest.mark.parametrize(
    ("unread", "text"),
    [
        ((), "KeptnEvaluationDefinition rate not found; waiting for it to be created"),
        (("KeptnEvaluationDefinition",), ""),
    ],
)
def test_a_definition_that_is_missing_is_told_unless_it_could_not_be_read(unread, text):
    check = check_of("Pending", "", definitions={}, unread=unread)
    assert (check.message, check.object, check.next_try) == (text, "", "")
    assert check.fault == ("definition-missing" if text else "")


@pytest.mark.parametrize("state", ["Succeeded", "Failed"])
@pytest.mark.parametrize("name", ["", "pre-eval-rate-1"])
def test_what_is_over_waits_for_no_definition(state, name):
    # Its object may be gone, or may not be read, as by the dashboard.
    check = check_of(state, name, definitions={})
    assert (check.state, check.message, check.fault) == (state, "", "")


@pytest.mark.parametrize(
    ("state", "message", "fault"),
    [
        ("Progressing", "inconclusive: empty value for: errors", "metric-unavailable"),
        ("Progressing", "value '0.2' did not meet objective '<=0.05'", ""),
        ("Failed", "inconclusive: empty value for: errors", ""),
    ],
)
def test_a_metric_without_a_value_keeps_an_open_evaluation_from_its_result(state, message, fault):
    results = {"errors": Measurement(value="", status="Failed", message=message)}
    tried = evaluation(5 if state == "Failed" else 2, state, results)
    assert check_of(state, evaluations={"pre-eval-rate-1": tried}).fault == fault


@pytest.mark.parametrize(
    ("state", "shown"),
    [("Failed", ("0.2", "<=0.05", "errors")), ("Progressing", ("", "<=0.5", "rate"))],
)
def test_a_definition_that_changes_after_the_end_does_not_change_what_failed(state, shown):
    made = Try(time=STARTED, status="Failed", value="0.2")
    record = {"errors": Tries(target="<=0.05", tries=(made,))}
    evaluations = {"pre-eval-rate-1": evaluation(5, state, UNMET, measurements=record)}
    changed = {"rate": definition("<=0.5", MetricReference(name="rate"))}
    check = check_of(state, evaluations=evaluations, definitions=changed)
    first = check.objectives[0].name
    assert (check.value, check.threshold, first) == shown


def test_the_threshold_of_a_failure_is_that_of_its_time():
    record = {"errors": Tries(target="<=0.05")}
    evaluations = {"pre-eval-rate-1": evaluation(5, "Failed", UNMET, measurements=record)}
    relaxed = {"rate": definition("<=0.5", MetricReference(name="errors"))}
    check = check_of("Failed", evaluations=evaluations, definitions=relaxed)
    assert (check.value, check.threshold) == ("0.2", "<=0.05")
    # It is known also without the definition.
    check = check_of("Failed", evaluations=evaluations, definitions={})
    assert (check.value, check.threshold) == ("0.2", "<=0.05")


def test_results_are_shown_also_where_nothing_says_what_they_had_to_be():
    check = check_of(
        "Failed",
        definitions={},
        unread=("KeptnEvaluationDefinition",),
        evaluations={"pre-eval-rate-1": evaluation(5, "Failed", UNMET)},
    )
    assert (check.value, check.threshold) == ("0.2", "")


@pytest.mark.parametrize(
    ("metrics", "unread", "fault"),
    [
        ({}, (), "KeptnMetric errors not found"),
        ({}, ("KeptnMetric",), ""),
        ({REFERENCE: metric(value="")}, (), "empty value for: errors"),
        (
            {REFERENCE: metric(updated="2026-11-21T17:00:00Z")},
            (),
            "the value of errors is 1h0m30s old, longer than 30s",
        ),
    ],
)
def test_a_metric_without_a_value_that_counts(metrics, unread, fault):
    check = check_of(
        metrics=metrics, unread=unread, evaluations={"pre-eval-rate-1": evaluation(results=UNMET)}
    )
    (objective,) = check.objectives
    assert objective.fault == fault


def test_a_metric_of_another_namespace_is_that_of_its_reference():
    reference = MetricReference(name="errors", namespace="monitoring")
    check = check_of(
        definitions={"rate": definition("<1", reference)}, metrics={reference: metric("0.5")}
    )
    (objective,) = check.objectives
    assert objective.current == "0.5"


@pytest.mark.parametrize(
    ("state", "task", "message", "fault"),
    [
        (
            "Pending",
            None,
            "KeptnTaskDefinition warm not found; waiting for it to be created",
            "definition-missing",
        ),
        ("Succeeded", None, "", ""),
        ("Progressing", {"job_name": "job-1"}, "its Job job-1 runs", ""),
        ("Progressing", {"reason": "X", "message": "its pod waits"}, "its pod waits", "task-stuck"),
        ("Failed", {"job_name": "job-1", "message": "exit code 1"}, "exit code 1", ""),
        ("Failed", {"job_name": "job-1", "reason": "BackoffLimit"}, "BackoffLimit", ""),
    ],
)
def test_a_task_tells_what_its_job_came_to(state, task, message, fault):
    tasks = {}
    if task is not None:
        spec = TaskSpec(task_definition="warm", retries=3)
        status = TaskStatus(status=state, **task)
        tasks["t"] = Task(metadata=Metadata(name="t"), spec=spec, status=status)
    item = ItemStatus(definition_name="warm", name="t" if tasks else "", status=state)
    version = workload_version(
        status=WorkloadVersionStatus(pre_deployment_task_status=(item,)),
        pre_deployment_tasks=("warm",),
    )
    (check,) = check_reports(version, Facts(tasks=tasks), NOW)
    assert (check.kind, check.state, check.message) == ("task", state, message)
    assert check.retries == (3 if tasks else None)
    assert (check.next_try, check.fault) == ("", fault)


def test_a_task_whose_definition_is_there_waits_without_a_word():
    version = workload_version(pre_deployment_tasks=("warm",))
    (check,) = check_reports(version, Facts(task_definitions={"warm"}), NOW)
    assert (check.state, check.message) == ("Pending", "")


def test_the_checks_of_an_app_come_in_its_order_and_those_after_the_deployment_are_left_out():
    gone = ItemStatus(definition_name="gone", status="Succeeded")
    version = app_version(
        status=AppVersionStatus(pre_deployment_task_status=(gone,)),
        pre_deployment_evaluations=("rate",),
        pre_deployment_tasks=("b", "a"),
        post_deployment_tasks=("late",),
        promotion_tasks=("ship",),
    )
    checks = check_reports(version, Facts(), NOW)
    assert [(check.phase, check.name, check.state) for check in checks] == [
        ("AppPreDeployTasks", "b", "Pending"),
        ("AppPreDeployTasks", "a", "Pending"),
        ("AppPreDeployTasks", "gone", "Succeeded"),
        ("AppPreDeployEvaluations", "rate", "Pending"),
    ]


def test_of_two_items_of_one_definition_the_first_counts():
    items = (
        ItemStatus(definition_name="warm", status="Succeeded"),
        ItemStatus(definition_name="warm", status="Failed"),
    )
    version = workload_version(
        status=WorkloadVersionStatus(pre_deployment_task_status=items),
        pre_deployment_tasks=("warm", "warm"),
    )
    (check,) = check_reports(version, Facts(), NOW)
    assert check.state == "Succeeded"


def test_times_that_nobody_can_read_are_none():
    broken = evaluation(results=UNMET)
    broken = replace(broken, status=replace(broken.status, start_time="yesterday"))
    assert check_of(evaluations={"pre-eval-rate-1": broken}).next_try == ""


def test_an_interval_that_nobody_can_read_is_the_one_that_is_used_instead():
    check = check_of(
        evaluations={"pre-eval-rate-1": evaluation(7, results=UNMET, retries=9, interval="?")}
    )
    # Seven tries, five seconds apart.
    assert check.next_try == "2026-11-21T18:00:35Z"


def test_a_pod_names_its_checks_before_there_is_a_version():
    (check,) = expected_checks(("warm",), "task", "WorkloadPreDeployTasks")
    assert (check.name, check.state, check.is_open) == ("warm", "Pending", True)


@pytest.mark.parametrize(("marked", "target"), [({}, "<1"), ({NO_OVERRIDE: "true"}, "<2")])
def test_the_definition_that_counts_is_the_one_that_is_reported(marked, target):
    shared = definition("<2")
    objects = {
        "prod/rate": definition("<1"),
        "home/rate": replace(shared, metadata=replace(shared.metadata, annotations=marked)),
    }
    facts = facts_in("prod", ("prod", "home"), lambda _, key: objects.get(key))
    assert facts.definitions["rate"].spec.objectives[0].evaluation_target == target
    assert (facts.definitions.get("other"), list(facts.tasks)) == (None, [])
