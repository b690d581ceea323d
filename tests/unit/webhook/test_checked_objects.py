"""Reviews of kinds that are only checked; each validation has tests of its own."""

from __future__ import annotations

import json

import pytest

from harbourmaster.lifecycle.conversion import convert
from harbourmaster.placement.model import GROUP as PLACEMENT
from harbourmaster.placement.model import KINDS
from harbourmaster.webhook.verdict import INVALID, VALID
from helpers.admission import ask, policy_engine
from helpers.objects import review

CODE = {"inline": {"code": "console.log(1)"}}
LIFECYCLE, METRICS = "lifecycle.keptn.sh", "metrics.keptn.sh"
SERVER = "https://prometheus.example.com"
MANIFEST = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
BOUNDS = {"min": 0, "max": 1, "provider": {"name": "a", "metric": "a"}}
STATIC = {"type": "static", "static": {"metrics": {"a": 1}}}
KAFKA = {"type": "kafka", "static": None}
NO_SCORE = {"metrics": [{"name": "a", "weight": 0, "scope": "Global"}]}
LABELLED = ("Cluster", "Cloud", "GlobalCloud", "Project", "MagnumCluster")
SOUND = {
    "KeptnMetric": {"provider": {"name": "a"}, "query": "up", "fetchIntervalSeconds": 10},
    "KeptnMetricsProvider": {"type": "prometheus", "targetServer": SERVER},
    "Analysis": {"timeframe": {"recent": "5m"}, "analysisDefinition": {"name": "a"}},
    "AnalysisDefinition": {"totalScore": {"passPercentage": 90, "warningPercentage": 75}},
    "AnalysisValueTemplate": {"provider": {"name": "a"}, "query": "{{.a}}"},
    "Application": {"manifests": [MANIFEST]},
    **dict.fromkeys(("Metric", "GlobalMetric"), BOUNDS),
    **dict.fromkeys(("MetricsProvider", "GlobalMetricsProvider"), STATIC),
    **{kind: {} for kind in LABELLED},
}
WRONG = {
    "KeptnMetric": ({"fetchIntervalSeconds": -1}, "spec.fetchIntervalSeconds"),
    "KeptnMetricsProvider": ({"targetServer": "https://a:b@c"}, "spec.targetServer"),
    "Analysis": ({"timeframe": {"recent": "-5m"}}, "spec.timeframe.recent"),
    "AnalysisDefinition": (
        {"totalScore": {"passPercentage": 50, "warningPercentage": 75}},
        "spec.totalScore.warningPercentage",
    ),
    "Application": ({"manifests": []}, "spec.manifests"),
    **dict.fromkeys(("Metric", "GlobalMetric"), ({"max": 0}, "spec.max")),
    **dict.fromkeys(("MetricsProvider", "GlobalMetricsProvider"), (KAFKA, "spec.kafka")),
    **dict.fromkeys(LABELLED, (NO_SCORE, "spec.metrics")),
}
EACH = pytest.mark.parametrize("kind", SOUND)
# Of the others, faults are only warned of.
EACH_WRONG = pytest.mark.parametrize("kind", WRONG)


def group_of(kind):
    if kind == "KeptnTaskDefinition":
        return LIFECYCLE
    return PLACEMENT if kind in KINDS else METRICS


def versions_of(kind):
    return ("v1alpha1",) if kind in KINDS else ("v1", "v1beta1", "v1alpha3")


def review_spec(
    spec, kind="KeptnTaskDefinition", *, version=None, former=None, metadata=None, **request
):
    version = version or versions_of(kind)[0]

    def manifest_of(spec):
        return {
            "apiVersion": f"{group_of(kind)}/{version}",
            "kind": kind,
            "metadata": {"name": "seed", "namespace": "market", **(metadata or {})},
            "spec": spec,
        }

    if former is not None:
        request["oldObject"] = manifest_of(former)
    question = review(manifest_of(spec), uid="1-2-3", namespace="market", name="seed", **request)
    answer = ask(question, policy_engine())
    assert answer.response["uid"] == "1-2-3"
    assert "patch" not in answer.response
    return answer.response, answer.verdict.outcome


def test_every_kind_of_placement_has_a_case():
    assert set(KINDS) <= WRONG.keys() == SOUND.keys() - {"AnalysisValueTemplate"}


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_what_can_run_passes(operation):
    response, outcome = review_spec({"deno": CODE}, operation=operation)
    assert (response["allowed"], outcome) == (True, VALID)
    assert "warnings" not in response


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_c68_what_cannot_is_refused_as_the_api_server_refuses_its_own(operation):
    response, outcome = review_spec({"deno": CODE, "python": CODE}, operation=operation)
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
    assert review_spec({"python": CODE}, version=version)[0]["allowed"] is True
    assert review_spec({"function": CODE}, version=version)[0]["allowed"] is False


def test_a_deletion_without_object_passes():
    response, _ = review_spec({}, operation="DELETE", object=None)
    assert response["allowed"] is True
    assert "warnings" not in response


def test_what_the_schema_would_refuse_passes_with_a_warning():
    response, _ = review_spec({"deno": 5})
    assert response["allowed"] is True
    (warning,) = response["warnings"]
    assert "KeptnTaskDefinition: spec.deno" in warning


@EACH
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_what_is_sound_passes(kind, operation):
    versions = versions_of(kind)
    assert versions
    for version in versions:
        response, outcome = review_spec(SOUND[kind], kind, version=version, operation=operation)
        assert (response["allowed"], outcome) == (True, VALID)
        assert "warnings" not in response


@EACH_WRONG
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
def test_what_is_not_is_refused(kind, operation):
    wrong, field = WRONG[kind]
    sound = SOUND[kind]
    response, outcome = review_spec({**sound, **wrong}, kind, operation=operation, former=sound)
    assert (response["allowed"], outcome) == (False, INVALID)
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert status["message"].startswith(f'{kind}.{group_of(kind)} "seed" is invalid: {field}: ')
    assert "\n" not in status["message"]
    assert [cause["field"] for cause in status["details"]["causes"]] == [field]


@EACH_WRONG
def test_what_was_as_wrong_before_may_be_labelled(kind):
    wrong, field = WRONG[kind]
    spec = {**SOUND[kind], **wrong}
    response, outcome = review_spec(spec, kind, operation="UPDATE", former=spec)
    assert (response["allowed"], outcome) == (True, VALID)
    (warning,) = response["warnings"]
    assert field in warning
    assert field in response["auditAnnotations"]["object-invalid"]
    # It is no way in.
    assert review_spec(spec, kind, former=spec)[0]["allowed"] is False


@EACH_WRONG
@pytest.mark.parametrize(
    "request_",
    [
        {"operation": "UPDATE", "metadata": {"deletionTimestamp": "2026-11-21T18:00:00Z"}},
        {"operation": "UPDATE", "subResource": "status"},
        {"operation": "DELETE"},
    ],
    ids=["finalizers", "status", "deletion"],
)
def test_finalizers_statuses_and_deletions_are_not_judged(kind, request_):
    response, _ = review_spec({**SOUND[kind], **WRONG[kind][0]}, kind, **request_)
    assert response["allowed"] is True
    assert "warnings" not in response


def test_what_becomes_wrong_otherwise_is_refused():
    kind = "KeptnMetric"
    former = {**SOUND[kind], "fetchIntervalSeconds": -1}
    both = {**former, "range": {"interval": "5mins"}}
    assert review_spec(both, kind, operation="UPDATE", former=former)[0]["allowed"] is False
    negative = {**SOUND[kind], "fetchIntervalSeconds": -2}
    assert review_spec(negative, kind, operation="UPDATE", former=former)[0]["allowed"] is False
    assert review_spec(former, kind, operation="UPDATE", former=both)[0]["allowed"] is True


def test_a_static_value_of_any_other_type_is_refused():
    spec = {"type": "static", "static": {"metrics": {"a": {"b": 1}}}}
    response, outcome = review_spec(spec, "KeptnMetricsProvider")
    assert (response["allowed"], outcome) == (False, INVALID)
    assert "spec.static.metrics: Invalid value: expected " in response["status"]["message"]
    response, _ = review_spec(spec, "KeptnMetricsProvider", operation="UPDATE", former=spec)
    assert response["allowed"] is True
    former = SOUND["KeptnMetricsProvider"]
    response, _ = review_spec(spec, "KeptnMetricsProvider", operation="UPDATE", former=former)
    assert response["allowed"] is False


def test_a_refusal_is_of_a_bounded_size():
    target = {"failure": {"lessThan": {"fixedValue": "x" * 100_000}}}
    objectives = [{"analysisValueTemplateRef": {"name": "a"}, "target": target}] * 40
    spec = {**SOUND["AnalysisDefinition"], "objectives": objectives}
    response, _ = review_spec(spec, "AnalysisDefinition")
    assert response["allowed"] is False
    assert len(json.dumps(response)) < 300_000
    response, _ = review_spec(spec, "AnalysisDefinition", operation="UPDATE", former=spec)
    assert response["allowed"] is True
    assert len(json.dumps(response)) < 20_000


def test_a_bad_constraint_is_shown_with_a_caret_at_a_terminal_and_as_one_line_elsewhere():
    constraints = {"cluster": {"labels": ["location is DE", "location IS DE"]}}
    response, _ = review_spec({"manifests": [MANIFEST], "constraints": constraints}, "Application")
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == "spec.constraints.cluster.labels[1]"
    said, shown, caret = cause["message"].split("\n")
    assert said in response["status"]["message"]
    assert shown[caret.index("^")] == "I"


def test_the_same_fault_in_another_constraint_is_a_new_one():
    def spec(*labels):
        return {"manifests": [MANIFEST], "constraints": {"cluster": {"labels": labels}}}

    former, more = spec("a IS b"), spec("a IS b", "a IS c")
    assert (
        review_spec(more, "Application", former=former, operation="UPDATE")[0]["allowed"] is False
    )
    assert review_spec(former, "Application", former=more, operation="UPDATE")[0]["allowed"] is True


def test_a_refusal_of_a_placement_object_is_of_a_bounded_size():
    labels = ["a " + "x" * 4000] * 32
    constraints = {"cluster": {"labels": labels, "metrics": labels}}
    spec = {"manifests": [{"kind": "x" * 10_000}] * 600, "constraints": constraints}
    response, _ = review_spec(spec, "Application")
    assert response["allowed"] is False
    assert len(json.dumps(response)) < 300_000


def test_checks_of_an_application_need_deployment_gates():
    spec = {"manifests": [MANIFEST], "checks": {"preDeployment": {"tasks": ["a"]}}}
    assert "warnings" not in review_spec(spec, "Application")[0]
    manifest = {
        "apiVersion": f"{PLACEMENT}/v1alpha1",
        "kind": "Application",
        "metadata": {"name": "seed", "namespace": "market"},
        "spec": spec,
    }
    engine = policy_engine(features=("policies", "waits"))
    response = ask(review(manifest, namespace="market"), engine).response
    assert response["allowed"]
    (text,) = response["warnings"]
    assert text == (
        "harbourmaster: spec.checks: Forbidden: need the controllers of deployment gates: enable "
        "gates in the webhook's features and lifecycle in the controller's controllers, or remove "
        "spec.checks"
    )


def definition_with(*targets, **spec):
    objectives = [
        {"keptnMetricRef": {"name": f"metric-{index}"}, "evaluationTarget": target}
        for index, target in enumerate(targets)
    ]
    return {
        "apiVersion": f"{LIFECYCLE}/v1",
        "kind": "KeptnEvaluationDefinition",
        "metadata": {"name": "ready", "namespace": "shop"},
        "spec": {"objectives": objectives, **spec},
    }


def asked_about_targets(*targets, spec=None, former=None, **request):
    document = review(definition_with(*targets, **(spec or {})), namespace="shop", **request)
    if former is not None:
        document["request"]["oldObject"] = definition_with(former)
    return ask(document, policy_engine()).response


def test_a_target_that_cannot_be_parsed_is_refused():
    response = asked_about_targets(">5", "about 5")
    assert not response["allowed"]
    text = (
        'spec.objectives[1].evaluationTarget: Invalid value: "about 5": invalid operator in '
        "objective 'about 5': write one of !=, <, <=, ==, >, >= before a number"
    )
    assert response["status"]["message"].endswith(text)
    for wrong, meant in (("=> 5", ">=5"), (">95%", ">95"), ("<= 5 %,>1%", "<=5,>1")):
        message = asked_about_targets(wrong)["status"]["message"]
        assert message.endswith(f"did you mean '{meant}'?")


def test_a_stored_target_that_cannot_be_parsed_may_stay_and_not_come():
    response = asked_about_targets(">95%", former=">95%", operation="UPDATE")
    assert response["allowed"]
    assert "did you mean '>95'?" in response["warnings"][0]
    assert asked_about_targets(">5", ">95%", former=">95%", operation="UPDATE")["allowed"]
    assert not asked_about_targets(">95%", former=">95", operation="UPDATE")["allowed"]
    assert not asked_about_targets(">96%", former=">95%", operation="UPDATE")["allowed"]


def test_an_interval_that_cannot_be_used_is_told_with_what_is_used():
    response = asked_about_targets(">5", spec={"retryInterval": "0.5"})
    assert response["allowed"]
    (text,) = response["warnings"]
    assert text == (
        'harbourmaster: spec.retryInterval: Invalid value: "0.5": it is not a duration, so 5s is '
        "used: write for example 30s, 5m or 1h30m"
    )
    (text,) = asked_about_targets(">5", spec={"retryInterval": "100ms"})["warnings"]
    assert text.endswith('Invalid value: "100ms": it is shorter than 1s, so 1s is used')
    assert "warnings" not in asked_about_targets(">5", spec={"retryInterval": "1s"})


def test_targets_that_can_be_parsed_are_told_nothing():
    assert "warnings" not in asked_about_targets(">5", ">=1,<2")
    assert "warnings" not in asked_about_targets("about 5", operation="DELETE")


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha3", "v1"])
def test_checks_of_an_older_app_are_told_in_any_version(version):
    spec = {"version": "0.1.0", "workloads": [], "preDeploymentTasks": ["migrate", "warm-up"]}
    metadata = {"name": "shop", "namespace": "shop"}
    document = {"apiVersion": f"{LIFECYCLE}/v1alpha3", "kind": "KeptnApp", "metadata": metadata}
    document = convert(document | {"spec": spec}, f"{LIFECYCLE}/{version}")
    response = ask(review(document, namespace="shop"), policy_engine()).response
    assert response["allowed"]
    (text,) = response["warnings"]
    assert text == (
        'harbourmaster: spec.preDeploymentTasks: Invalid value: "migrate, warm-up": these run only '
        "while there is no KeptnAppContext of that name: move them to one, with apiVersion "
        "lifecycle.keptn.sh/v1"
    )


def test_an_app_without_checks_gives_no_warning():
    document = {
        "apiVersion": f"{LIFECYCLE}/v1",
        "kind": "KeptnApp",
        "metadata": {"name": "shop", "namespace": "shop"},
        "spec": {"version": "0.1.0"},
    }
    assert "warnings" not in ask(review(document, namespace="shop"), policy_engine()).response
