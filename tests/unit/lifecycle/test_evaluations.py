"""Phases have their evaluations (keptn-spec 3.10)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.evaluation.objectives import Progress, Result
from harbourmaster.lifecycle.evaluations import (
    POST,
    PRE,
    evaluation_for,
    failure_text,
    record_tries,
)
from harbourmaster.lifecycle.model import (
    Evaluation,
    EvaluationDefinition,
    EvaluationDefinitionSpec,
    EvaluationSpec,
    EvaluationStatus,
    Measurement,
)
from helpers.phased import app_version, workload_version

APP = app_version()
WORKLOAD = workload_version()


def definition(name="checks", **spec):
    return EvaluationDefinition(
        # Labels and annotations are not handed on, unlike those of tasks.
        metadata=Metadata(name=name, namespace="keptn-system", labels={"a": "b"}),
        spec=EvaluationDefinitionSpec(**spec),
    )


def test_an_app_has_its_evaluations():
    made = evaluation_for(APP, definition(retries=2, retry_interval="3s"), PRE)
    name = made["metadata"]["name"]
    assert made == {
        "apiVersion": "lifecycle.keptn.sh/v1",
        "kind": "KeptnEvaluation",
        "metadata": {
            "name": name,
            "namespace": "prod",
            "ownerReferences": [
                {
                    "apiVersion": "lifecycle.keptn.sh/v1",
                    "kind": "KeptnAppVersion",
                    "name": "shop-1.0-6b86b273",
                    "uid": "uid-shop-1.0-6b86b273",
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": {
            "appName": "shop",
            "appVersion": "1.0",
            "workload": "",
            "workloadVersion": "",
            "evaluationDefinition": "checks",
            "checkType": "pre-eval",
            "retries": 2,
            "retryInterval": "3s",
        },
    }
    start, _, digits = name.rpartition("-")
    assert start == "pre-eval-checks"
    assert 10000 <= int(digits) <= 99999


def test_a_workload_has_its_evaluations():
    made = evaluation_for(WORKLOAD, definition(), POST)
    assert made["metadata"]["name"].startswith("post-eval-checks-")
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("KeptnWorkloadVersion", "uid-shop-cart-2.0")
    assert made["spec"] == {
        "appName": "shop",
        "workload": "shop-cart",
        "workloadVersion": "2.0",
        "evaluationDefinition": "checks",
        "checkType": "post-eval",
        "retries": 10,
        "retryInterval": "5s",
    }


def test_zero_retries_are_written():
    assert evaluation_for(APP, definition(retries=0), PRE)["spec"]["retries"] == 0


@pytest.mark.parametrize(
    ("interval", "written"),
    [("5m", "5m0s"), ("90s", "1m30s"), ("", "5s"), ("0", "0s"), ("0 days", "0 days")],
)
def test_the_interval_is_written_as_go_prints_it(interval, written):
    made = evaluation_for(APP, definition(retry_interval=interval), PRE)
    assert made["spec"]["retryInterval"] == written


def test_the_name_follows_from_what_it_is_for():
    def name(parent=APP, checks="checks", check_type=PRE, previous=""):
        return evaluation_for(parent, definition(checks), check_type, previous)["metadata"]["name"]

    assert name() == name()
    first = name()
    names = {first, name(previous=first), name(WORKLOAD), name(check_type=POST), name(checks="b")}
    assert len(names) == 5


def test_a_long_name_stays_a_valid_one():
    made = evaluation_for(APP, definition("x" * 253), PRE)
    assert len(made["metadata"]["name"]) <= 253
    assert made["spec"]["evaluationDefinition"] == "x" * 253


def test_a_failure_names_what_was_not_met():
    failed = Evaluation(
        metadata=Metadata(name="pre-eval-checks-12345", namespace="prod"),
        spec=EvaluationSpec(evaluation_definition="checks"),
        status=EvaluationStatus(
            evaluation_status={
                "cpus": Measurement(
                    value="3", status="Failed", message="value '3' did not meet objective '>5'"
                ),
                "errors": Measurement(value="0", status="Succeeded", message="met"),
            }
        ),
    )
    text = "evaluation failed\ncpus: value '3' did not meet objective '>5'"
    assert failure_text(failed) == text


def test_records_of_many_objectives_are_bounded_together():
    results = {f"metric-{number}": Result("1" * 500, "Failed", "x" * 500) for number in range(256)}
    measured = dict.fromkeys(results, ">" + "1" * 500)
    status = EvaluationStatus()
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    for tries in range(1, 31):
        after = Progress(tries, results, "Progressing", measured)
        status = EvaluationStatus(measurements=record_tries(status, after, now))
    assert {len(record.tries) for record in status.measurements.values()} == {1}
    assert {len(record.target) for record in status.measurements.values()} == {128}


def test_records_of_an_objective_that_is_gone_are_dropped():
    now = datetime(2026, 3, 1, 12, tzinfo=UTC)
    results = {"cpus": Result("1", "Failed"), "errors": Result("1", "Failed")}
    after = Progress(1, results, "Progressing", dict.fromkeys(results, ">5"))
    status = EvaluationStatus(measurements=record_tries(EvaluationStatus(), after, now))
    after = Progress(2, {"cpus": results["cpus"]}, "Progressing", {"cpus": ">5"})
    records = record_tries(status, after, now)
    assert {key: len(record.tries) for key, record in records.items()} == {"cpus": 2}
