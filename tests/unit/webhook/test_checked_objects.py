from __future__ import annotations

import json

import pytest

from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import INVALID, VALID, answer
from harbourmaster.webhook.settings import Settings
from harbourmaster.webhook.snapshot import Snapshot

CODE = {"inline": {"code": "console.log(1)"}}
LIFECYCLE, METRICS = "lifecycle.keptn.sh", "metrics.keptn.sh"
SERVER = "https://prometheus.example.com"
GOOD = {
    "KeptnMetric": {"provider": {"name": "a"}, "query": "up", "fetchIntervalSeconds": 10},
    "KeptnMetricsProvider": {"type": "prometheus", "targetServer": SERVER},
    "Analysis": {"timeframe": {"recent": "5m"}, "analysisDefinition": {"name": "a"}},
    "AnalysisDefinition": {"totalScore": {"passPercentage": 90, "warningPercentage": 75}},
    "AnalysisValueTemplate": {"provider": {"name": "a"}, "query": "{{.a}}"},
}
BAD = {
    "KeptnMetric": ({"fetchIntervalSeconds": 0}, "spec.fetchIntervalSeconds"),
    "KeptnMetricsProvider": ({"targetServer": "file:///etc"}, "spec.targetServer"),
    "Analysis": ({"timeframe": {"recent": "-5m"}}, "spec.timeframe.recent"),
    "AnalysisDefinition": (
        {"totalScore": {"passPercentage": 50, "warningPercentage": 75}},
        "spec.totalScore.warningPercentage",
    ),
    "AnalysisValueTemplate": ({"query": "{{"}, "spec.query"),
}
OF_METRICS = pytest.mark.parametrize("kind", list(GOOD))


def keptn_object(spec, group, kind, version, **metadata):
    return {
        "apiVersion": f"{group}/{version}",
        "kind": kind,
        "metadata": {"name": "seed", "namespace": "market", **metadata},
        "spec": spec,
    }


def asked(
    spec,
    kind="KeptnTaskDefinition",
    *,
    version="v1",
    operation="CREATE",
    metadata=None,
    former=None,
    **request,
):
    group = METRICS if kind in GOOD else LIFECYCLE
    obj = keptn_object(spec, group, kind, version, **(metadata or {}))
    if former is not None:
        request["oldObject"] = keptn_object(former, group, kind, version)
    question = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1-2-3",
            "kind": {"group": group, "version": version, "kind": kind},
            "operation": operation,
            "name": "seed",
            "namespace": "market",
            "object": obj,
            **request,
        },
    }
    body, decision = answer(json.dumps(question).encode(), Engine(Snapshot(), Settings()))
    response = json.loads(body)["response"]
    assert response["uid"] == "1-2-3"
    assert "patch" not in response
    return response, decision.verdict.outcome


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_what_can_run_passes(operation):
    response, outcome = asked({"deno": CODE}, operation=operation)
    assert (response["allowed"], outcome) == (True, VALID)
    assert "warnings" not in response


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_c68_what_cannot_is_refused_as_the_api_server_refuses_its_own(operation):
    response, outcome = asked({"deno": CODE, "python": CODE}, operation=operation)
    cause = (
        'Invalid value: "python, deno": forbidden: only one of container, python and deno may be '
        "defined"
    )
    assert (response["allowed"], outcome) == (False, INVALID)
    assert response["status"] == {
        "metadata": {},
        "code": 422,
        "reason": "Invalid",
        "message": (f'KeptnTaskDefinition.lifecycle.keptn.sh "seed" is invalid: spec: {cause}'),
        "details": {
            "name": "seed",
            "group": "lifecycle.keptn.sh",
            "kind": "KeptnTaskDefinition",
            "causes": [{"reason": "FieldValueInvalid", "message": cause, "field": "spec"}],
        },
    }


@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_older_versions_are_judged_by_what_v1_has(version):
    assert asked({"python": CODE}, version=version)[0]["allowed"] is True
    assert asked({"function": CODE}, version=version)[0]["allowed"] is False


def test_a_deletion_is_never_judged():
    response, _ = asked({}, operation="DELETE", object=None)
    assert response["allowed"] is True
    assert "warnings" not in response
    assert asked({}, operation="DELETE")[0]["allowed"] is True


def test_what_is_being_deleted_loses_its_finalizers():
    ends = {"deletionTimestamp": "2026-11-21T18:00:00Z"}
    assert asked({}, operation="UPDATE", metadata=ends)[0]["allowed"] is True


def test_a_status_is_not_judged():
    assert asked({}, operation="UPDATE", subResource="status")[0]["allowed"] is True


def test_what_the_schema_would_refuse_passes_with_a_warning():
    response, _ = asked({"deno": 5})
    assert response["allowed"] is True
    (warning,) = response["warnings"]
    assert "KeptnTaskDefinition: spec.deno" in warning


@OF_METRICS
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_kind_of_metrics_that_is_sound_passes(kind, operation):
    for version in ("v1", "v1beta1", "v1alpha3"):
        response, outcome = asked(GOOD[kind], kind, version=version, operation=operation)
        assert (response["allowed"], outcome) == (True, VALID)
        assert "warnings" not in response


@OF_METRICS
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_a_kind_of_metrics_that_is_not_is_refused(kind, operation):
    wrong, field = BAD[kind]
    response, outcome = asked({**GOOD[kind], **wrong}, kind, operation=operation, former=GOOD[kind])
    assert (response["allowed"], outcome) == (False, INVALID)
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(f'{kind}.{METRICS} "seed" is invalid: {field}: ')
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]


@OF_METRICS
def test_what_was_as_wrong_before_may_be_labelled(kind):
    wrong, field = BAD[kind]
    spec = {**GOOD[kind], **wrong}
    response, outcome = asked(spec, kind, operation="UPDATE", former=spec)
    assert (response["allowed"], outcome) == (True, VALID)
    (warning,) = response["warnings"]
    assert field in warning
    assert field in response["auditAnnotations"]["object-invalid"]
    # It is no way in.
    assert asked(spec, kind, former=spec)[0]["allowed"] is False


def test_what_becomes_wrong_otherwise_is_refused():
    kind = "KeptnMetric"
    former = {**GOOD[kind], "fetchIntervalSeconds": 0}
    both = {**former, "range": {"interval": "5mins"}}
    assert asked(both, kind, operation="UPDATE", former=former)[0]["allowed"] is False
    other = {**GOOD[kind], "fetchIntervalSeconds": -1}
    assert asked(other, kind, operation="UPDATE", former=former)[0]["allowed"] is False
    assert asked(former, kind, operation="UPDATE", former=both)[0]["allowed"] is True


def test_a_static_value_of_any_other_type_is_refused():
    spec = {"type": "static", "static": {"metrics": {"a": {"b": 1}}}}
    response, outcome = asked(spec, "KeptnMetricsProvider")
    assert (response["allowed"], outcome) == (False, INVALID)
    assert "spec.static.metrics: Invalid value: expected " in response["status"]["message"]
    response, _ = asked(spec, "KeptnMetricsProvider", operation="UPDATE", former=spec)
    assert response["allowed"] is True
    former = GOOD["KeptnMetricsProvider"]
    response, _ = asked(spec, "KeptnMetricsProvider", operation="UPDATE", former=former)
    assert response["allowed"] is False


def test_a_refusal_is_of_a_bounded_size():
    target = {"failure": {"lessThan": {"fixedValue": "x" * 100_000}}}
    objectives = [{"analysisValueTemplateRef": {"name": "a"}, "target": target}] * 40
    spec = {**GOOD["AnalysisDefinition"], "objectives": objectives}
    response, _ = asked(spec, "AnalysisDefinition")
    assert response["allowed"] is False
    assert len(json.dumps(response)) < 300_000
    response, _ = asked(spec, "AnalysisDefinition", operation="UPDATE", former=spec)
    assert response["allowed"] is True
    assert len(json.dumps(response)) < 20_000
