"""Manifests with the faults that Keptn's published ones have: Keptn accepts them, and so do we."""

from __future__ import annotations

import pytest

from harbourmaster.webhook.verdict import INVALID, VALID
from helpers.admission import ask, policy_engine
from helpers.objects import review

METRICS, LIFECYCLE = "metrics.keptn.sh", "lifecycle.keptn.sh"
PROMETHEUS = {"type": "prometheus", "targetServer": "http://prometheus.example.com:9090"}
DYNATRACE = {"type": "dynatrace", "secretKeyRef": {"name": "dynatrace", "key": "token"}}
METRIC = {"provider": {"name": "prometheus"}, "query": "up", "fetchIntervalSeconds": 10}
TEMPLATE = {"provider": {"name": "prometheus"}, "query": "up"}
SCORE = {"passPercentage": 90, "warningPercentage": 75}


def provider(**more):
    return ("KeptnMetricsProvider", {**PROMETHEUS, **more})


def task(**runtime):
    return ("KeptnTaskDefinition", runtime)


def definition(name):
    objectives = [{"analysisValueTemplateRef": {"name": name}, "weight": 1}]
    return ("AnalysisDefinition", {"objectives": objectives, "totalScore": SCORE})


def template(query):
    return ("AnalysisValueTemplate", {**TEMPLATE, "query": query})


PUBLISHED = {
    "prometheus-placeholder": (provider(targetServer="<address>"), "spec.targetServer"),
    "server-without-scheme": (provider(targetServer="metrics.shop:9090"), "spec.targetServer"),
    "elastic-placeholder": (provider(type="elastic", targetServer="<server>"), "spec.targetServer"),
    "hpa-placeholder": (provider(targetServer="<where-it-is>"), "spec.targetServer"),
    "keda-placeholder": (provider(targetServer="https://<where>"), "spec.targetServer"),
    **{
        f"two-types-{index}": (provider(**DYNATRACE | {"type": types}), "spec.type")
        for index, types in enumerate(("dynatrace | dql", "dynatrace|dql", "dql or dynatrace"))
    },
    "types-as-provider-name": (
        ("AnalysisValueTemplate", {**TEMPLATE, "provider": {"name": "datadog | dql"}}),
        "spec.provider.name",
    ),
    **{
        f"secret-in-camel-case-{version}": (
            provider(secretKeyRef={"name": "logIn", "key": "token"}),
            "spec.secretKeyRef.name",
        )
        for version in ("v1", "v1beta1", "v1alpha3")
    },
    "type-by-name-in-v1alpha2": (
        provider(type="", secretKeyRef={"name": "logIn", "key": "token"}),
        "spec.type",
    ),
    "secret-with-underscore": (
        task(deno={"inline": {"code": "1"}, "secureParameters": {"secret": "chat_token"}}),
        "spec.deno.secureParameters.secret",
    ),
    "deno-in-unknown-field": (task(deno={"inlineRef": {"code": "1"}}), "spec.deno"),
    "python-in-unknown-field": (task(python={"inlineRef": {"code": "1"}}), "spec.python"),
    "python-libraries": (task(python={"parameters": {"map": {"a": "b"}}}), "spec.python"),
}
"""One for each published manifest that was refused and is accepted now.

Where it has unknown fields, kubectl refuses it first, unless its validation is switched off.
"""
BY_KEPTN = {
    "nothing": ("KeptnTaskDefinition", {}),
    "function-of-v1alpha1": ("KeptnTaskDefinition", {"function": {"inline": {"code": "1"}}}),
}
"""Published manifests that Keptn's webhook refuses as well: no runtime is left of their spec."""
TRIED = {
    "template-with-underscore": (
        definition("latency_p95"),
        "spec.objectives[0].analysisValueTemplateRef.name",
    ),
    "interval-of-zero": (
        ("KeptnMetric", {**METRIC, "fetchIntervalSeconds": 0}),
        "spec.fetchIntervalSeconds",
    ),
    "no-provider": (("KeptnMetric", {**METRIC, "provider": {"name": "a_b"}}), "spec.provider.name"),
    "condition-in-query": (template("up{{if .a}}{a='1'}{{end}}"), "spec.query"),
    "empty-query": (template(""), "spec.query"),
    "no-type": (provider(type="prometheus-2"), "spec.type"),
    "no-credentials": (provider(type="datadog"), "spec.secretKeyRef"),
    "server-with-query": (
        provider(targetServer="https://metrics.example.com?a=b"),
        "spec.targetServer",
    ),
    "recursive-function": (task(deno={"functionRef": {"name": "seed"}}), "spec.deno.functionRef"),
    "account-with-underscore": (
        ("KeptnTaskDefinition", {"container": {}, "serviceAccount": {"name": "a_b"}}),
        "spec.serviceAccount.name",
    ),
}
REFUSED = {
    "credentials-in-url": (provider(targetServer="https://a:b@c"), "spec.targetServer"),
    "credentials-without-scheme": (provider(targetServer="a:b@c"), "spec.targetServer"),
    "interval-below-zero": (
        ("KeptnMetric", {**METRIC, "fetchIntervalSeconds": -1}),
        "spec.fetchIntervalSeconds",
    ),
    "endless-query": (template("x" * 65_537), "spec"),
    "two-runtimes": (task(deno={"inline": {"code": "1"}}, python={}), "spec"),
    "negative-retries": (
        ("KeptnTaskDefinition", {"container": {}, "retries": -1}),
        "spec.retries",
    ),
}


def review_spec(kind, spec, operation="CREATE"):
    group = LIFECYCLE if kind == "KeptnTaskDefinition" else METRICS
    document = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {"name": "seed", "namespace": "market"},
        "spec": spec,
    }
    question = review(document, namespace="market", name="seed", operation=operation)
    answer = ask(question, policy_engine())
    return answer.response, answer.verdict.outcome


def test_there_is_one_for_each_published_manifest_that_was_refused():
    assert len(PUBLISHED) == 17


@pytest.mark.parametrize("case", BY_KEPTN.values(), ids=BY_KEPTN.keys())
def test_what_keptn_refuses_is_refused_in_the_same_words(case):
    response, outcome = review_spec(*case)
    assert (response["allowed"], outcome) == (False, INVALID)
    (cause,) = response["status"]["details"]["causes"]
    assert cause["field"] == "spec"
    assert "either container, python or deno has to be defined" in cause["message"]


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize("case", {**PUBLISHED, **TRIED}.values(), ids={**PUBLISHED, **TRIED}.keys())
def test_it_passes_with_a_warning_at_the_field(case, operation):
    (kind, spec), field = case
    response, outcome = review_spec(kind, spec, operation)
    assert (response["allowed"], outcome) == (True, VALID)
    assert response["warnings"][0].startswith(f"harbourmaster: {field}")
    assert field in response["auditAnnotations"]["object-invalid"]


@pytest.mark.parametrize(
    "query", ["up{a='{{ .a }}'}", '{{index . "a-b"}}', "{{- $.a | print -}}", "up{{/* why */}}"]
)
def test_simple_actions_of_templates_pass_without_a_warning(query):
    response, _ = review_spec(*template(query))
    assert response["allowed"] is True
    assert "warnings" not in response


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED.keys())
def test_what_would_harm_is_refused_as_before(case):
    (kind, spec), field = case
    response, outcome = review_spec(kind, spec)
    assert (response["allowed"], outcome) == (False, INVALID)
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [field]


def test_a_refusal_names_only_what_must_be_corrected():
    response, _ = review_spec(*provider(type="none", targetServer="https://a:b@c"))
    assert [cause["field"] for cause in response["status"]["details"]["causes"]] == [
        "spec.targetServer"
    ]
    assert "spec.type" not in response["status"]["message"]


def test_warnings_are_of_a_bounded_number():
    objectives = [{"analysisValueTemplateRef": {"name": "a_b"}}] * 1000
    spec = {"objectives": objectives, "totalScore": SCORE}
    response, _ = review_spec("AnalysisDefinition", spec)
    assert response["allowed"] is True
    assert 1 < len(response["warnings"]) < 20
