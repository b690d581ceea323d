"""Reviews of placement objects; what is wrong with which is tested in ``unit/placement``."""

from __future__ import annotations

import json

import pytest

from harbourmaster.placement.model import API_VERSION, GROUP, KINDS
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import INVALID, VALID, answer
from harbourmaster.webhook.settings import Settings
from harbourmaster.webhook.snapshot import Snapshot

MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
BOUNDS = {"min": 0, "max": 1, "provider": {"name": "a", "metric": "a"}}
STATIC = {"type": "static", "static": {"metrics": {"a": 1}}}
NO_SCORE = {"metrics": [{"name": "a", "weight": 0, "scope": "Global"}]}
SOUND_AND_BAD = {
    "Application": ({"manifests": [MANIFEST]}, {"manifests": []}, "spec.manifests"),
    "Metric": (BOUNDS, {**BOUNDS, "max": 0}, "spec.max"),
    "GlobalMetric": (BOUNDS, {**BOUNDS, "max": 0}, "spec.max"),
    "MetricsProvider": (STATIC, {"type": "kafka"}, "spec.kafka"),
    "GlobalMetricsProvider": (STATIC, {"type": "kafka"}, "spec.kafka"),
    **{
        kind: ({}, NO_SCORE, "spec.metrics")
        for kind in ("Cluster", "Cloud", "GlobalCloud", "Project", "MagnumCluster")
    },
}
EACH = pytest.mark.parametrize("kind", KINDS)


def asked(kind, spec, *, former=None, operation="CREATE", **request):
    metadata = {"name": "a", "namespace": "shop", **request.pop("metadata", {})}

    def made(spec):
        return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}

    if former is not None:
        request["oldObject"] = made(former)
    question = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": GROUP, "version": "v1alpha1", "kind": kind},
            "operation": operation,
            "name": "a",
            "object": made(spec),
            **request,
        },
    }
    body, decision = answer(json.dumps(question).encode(), Engine(Snapshot(), Settings()))
    return json.loads(body)["response"], decision.verdict.outcome


@EACH
def test_what_is_sound_passes_and_what_is_not_is_refused(kind):
    sound, bad, field = SOUND_AND_BAD[kind]
    response, outcome = asked(kind, sound)
    assert (response["allowed"], outcome) == (True, VALID)
    assert "warnings" not in response
    response, outcome = asked(kind, bad)
    assert (response["allowed"], outcome) == (False, INVALID)
    assert response["status"]["message"].startswith(f'{kind}.{GROUP} "a" is invalid: {field}: ')
    assert "\n" not in response["status"]["message"]


@EACH
def test_what_was_as_wrong_before_passes_with_a_warning(kind):
    sound, bad, field = SOUND_AND_BAD[kind]
    response, _ = asked(kind, bad, former=bad, operation="UPDATE")
    assert response["allowed"] is True
    (warning,) = response["warnings"]
    assert field in warning
    assert asked(kind, bad, former=sound, operation="UPDATE")[0]["allowed"] is False


@EACH
def test_finalizers_and_statuses_are_nobody_s_business(kind):
    _, bad, _ = SOUND_AND_BAD[kind]
    ends = {"deletionTimestamp": "2026-11-21T18:00:00Z"}
    assert asked(kind, bad, operation="UPDATE", metadata=ends)[0]["allowed"] is True
    assert asked(kind, bad, operation="UPDATE", subResource="status")[0]["allowed"] is True
    assert asked(kind, bad, operation="DELETE")[0]["allowed"] is True


def test_a_bad_constraint_is_shown_with_a_caret_at_a_terminal_and_as_one_line_elsewhere():
    constraints = {"cluster": {"labels": ["location is DE", "location IS DE"]}}
    response, _ = asked("Application", {"manifests": [MANIFEST], "constraints": constraints})
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == "spec.constraints.cluster.labels[1]"
    said, shown, caret = cause["message"].split("\n")
    assert said in response["status"]["message"]
    assert shown[caret.index("^")] == "I"


def test_the_same_fault_in_another_constraint_is_a_new_one():
    def spec(*labels):
        return {"manifests": [MANIFEST], "constraints": {"cluster": {"labels": labels}}}

    former, more = spec("a IS b"), spec("a IS b", "a IS c")
    assert asked("Application", more, former=former, operation="UPDATE")[0]["allowed"] is False
    assert asked("Application", former, former=more, operation="UPDATE")[0]["allowed"] is True


def test_a_refusal_is_of_a_bounded_size():
    labels = ["a " + "x" * 4000] * 32
    constraints = {"cluster": {"labels": labels, "metrics": labels}}
    spec = {"manifests": [{"kind": "x" * 10_000}] * 600, "constraints": constraints}
    response, _ = asked("Application", spec)
    assert response["allowed"] is False
    assert len(json.dumps(response)) < 300_000
