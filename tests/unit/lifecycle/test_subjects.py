"""Objects are described for events, spans and metrics."""

from __future__ import annotations

import pytest

from harbourmaster.lifecycle.model import Evaluation, EvaluationSpec, TaskContext
from harbourmaster.lifecycle.subjects import phase_of, span_attributes, state_of, subject
from helpers.lifecycle_objects import app_version, evaluation, metadata, task, workload_version


def evaluation_of(workload, check_type):
    spec = EvaluationSpec(evaluation_definition="cpu", workload=workload, check_type=check_type)
    return Evaluation(metadata=metadata("e"), spec=spec)


@pytest.mark.parametrize(
    ("child", "phase"),
    [
        (task(check_type="pre"), "AppPreDeployTasks"),
        (task(check_type="post"), "AppPostDeployTasks"),
        (task(check_type="promotion"), "PromotionTasks"),
        (
            task(check_type="post", context=TaskContext(object_type="Workload")),
            "WorkloadPostDeployTasks",
        ),
        (task(context=TaskContext(workload_name="shop-front")), "WorkloadPreDeployTasks"),
        (task(check_type=""), ""),
        (evaluation_of("", "pre-eval"), "AppPreDeployEvaluations"),
        (evaluation_of("shop-front", "pre-eval"), "WorkloadPreDeployEvaluations"),
        (evaluation_of("shop-front", "post-eval"), "WorkloadPostDeployEvaluations"),
        (evaluation_of("", "odd"), ""),
    ],
)
def test_the_phase_of_a_task_or_evaluation_follows_from_its_check_type(child, phase):
    assert phase_of(child) == phase


def test_an_object_of_no_model_has_nothing_to_say():
    about = subject(object())
    assert (about.app, about.version, about.fields) == ("", "", {})


def test_attributes_of_spans_are_keptns():
    assert span_attributes(workload_version("7", previous="6")) == {
        "keptn.deployment.app.name": "shop",
        "keptn.deployment.workload.name": "shop-front",
        "keptn.deployment.workload.version": "7",
        "keptn.deployment.workload.namespace": "prod",
        "keptn.deployment.workload.status": "Succeeded",
        "keptn.deployment.workload.previousversion": "6",
    }
    assert span_attributes(task())["keptn.deployment.task.type"] == "pre"
    assert span_attributes(evaluation())["keptn.deployment.evaluation.status"] == "Failed"
    assert span_attributes(app_version())["keptn.deployment.app.status"] == "Succeeded"


def test_the_state_of_an_evaluation_is_its_overall_one():
    assert state_of(evaluation(status="Failed")) == "Failed"
    assert state_of(task()) == "Succeeded"
