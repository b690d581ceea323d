"""Validation of all kinds of metrics.keptn.sh; the fixture has the full text of each message."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest
import yaml

from harbourmaster.evaluation.criteria import decode_target
from harbourmaster.evaluation.metric_status import aggregate
from harbourmaster.evaluation.model import (
    Analysis,
    AnalysisDefinition,
    AnalysisValueTemplate,
    Metric,
    MetricSpec,
    Provider,
)
from harbourmaster.evaluation.validation import (
    AGGREGATIONS,
    MAX_ITEMS,
    PROVIDER_TYPES,
    validate_analysis,
    validate_definition,
    validate_metric,
    validate_provider,
    validate_template,
)
from helpers.schemas import versions
from helpers.virtual_time import lines

CASES = yaml.safe_load(
    (Path(__file__).parents[2] / "fixtures/evaluation/validation.yaml").read_text()
)
SERVER = "https://prometheus.example.com:9090/prefix"
KINDS = {
    "metric": (Metric, validate_metric),
    "provider": (Provider, validate_provider),
    "analysis": (Analysis, validate_analysis),
    "definition": (AnalysisDefinition, validate_definition),
    "template": (AnalysisValueTemplate, validate_template),
}
BASES = {
    "metric": {"provider": {"name": "prometheus"}, "query": "up", "fetchIntervalSeconds": 10},
    "provider": {"targetServer": SERVER},
    "analysis": {"analysisDefinition": {"name": "quality"}},
    "definition": {"totalScore": {"passPercentage": 90, "warningPercentage": 75}},
    "template": {"provider": {"name": "prometheus"}},
}


def validate(kind, spec, name="prometheus"):
    """Return the errors of the base object whose spec has the fields of ``spec``."""
    spec = {key: value for key, value in {**BASES[kind], **spec}.items() if value is not None}
    type_, check = KINDS[kind]
    obj = {"metadata": {"name": name, "namespace": "market"}, "spec": spec}
    return check(msgspec.convert(obj, type_))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['kind']}: {case['title']}")
def test_each_error_has_its_message(case):
    errors = validate(case["kind"], case["spec"], case.get("name", "prometheus"))
    messages = [f"{'warning: ' if error.is_warning else ''}{error}" for error in errors]
    assert messages == case["messages"]


def test_every_aggregation_that_passes_can_be_computed():
    assert [aggregate(name, [1.0]) for name in AGGREGATIONS] == [1.0] * len(AGGREGATIONS)
    schema = versions("keptnmetrics")["v1"]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(schema["properties"]["range"]["properties"]["aggregation"]["enum"]) == set(
        AGGREGATIONS
    )


def test_every_type_passes_the_schema_and_no_other_type_is_in_it():
    schema = versions("keptnmetricsproviders")["v1"]["schema"]["openAPIV3Schema"]
    pattern = schema["properties"]["spec"]["properties"]["type"]["pattern"]
    assert set(pattern.split("|")) == set(PROVIDER_TYPES)


@pytest.mark.parametrize(
    ("name", "type_", "effective"), [("thanos", "", "thanos"), ("thanos", "Cortex", "cortex")]
)
def test_a_provider_without_a_type_has_the_type_of_its_name(name, type_, effective):
    """Keptn documents it, but refuses it (keptn-spec 1.6)."""
    provider = {"metadata": {"name": name, "namespace": "market"}, "spec": {"type": type_}}
    assert msgspec.convert(provider, Provider).type == effective


@pytest.mark.parametrize("seconds", [0, -60])
def test_the_default_interval_is_that_of_keptn(seconds):
    assert MetricSpec(fetch_interval_seconds=seconds).interval == 10


@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("metric", {"query": "u" * 65_537}),
        ("metric", {"range": {"interval": "1h" * 100_000}}),
        ("template", {"query": "u" * 65_537}),
    ],
)
def test_s6_a_text_without_limit_is_refused_and_not_repeated(kind, spec):
    (error,) = validate(kind, spec)
    assert not error.is_warning
    assert len(str(error)) < 300


@pytest.mark.parametrize(
    "server",
    [
        *("//prometheus", "https://", "https:///a", "<url>", "https://<tenant>.example.com"),
        *("file:///etc/passwd", "ftp://example.com", "unix:///run/a.sock", "gopher://example.com"),
        *("https://example.com:0", "https://example.com:65536", "https://example.com:a"),
        *("https://exa mple.com", "https://example.com/\n", "https://[::1", "https://exämple.com"),
        *("javascript:alert(1)", "prometheus.example.com", "prometheus:9090/prefix", "[::1]:1"),
    ],
)
def test_s24_an_invalid_server_url_is_warned_of(server):
    (error,) = validate("provider", {"targetServer": server})
    assert (error.path, error.kind, error.is_warning) == (
        "spec.targetServer",
        "Invalid value",
        True,
    )


@pytest.mark.parametrize(
    "server",
    [
        *("ftp://me:geheim@example.com", "https://geheim@", "a:geheim@<host>", "geheim\\@a"),
        *("me:geheim@example.com", "geheim@example.com:9090", "https:/a:geheim@example.com"),
        "a:geheim://@b",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(server):
    (error,) = validate("provider", {"targetServer": server})
    assert not error.is_warning
    assert "geheim" not in str(error)


def test_a_token_in_a_query_is_not_repeated():
    (error,) = validate("provider", {"targetServer": f"{SERVER}?api-token=geheim"})
    assert str(error).count("?...") == 1
    assert "geheim" not in str(error)


def test_more_items_than_the_limit_are_refused():
    values = dict.fromkeys(map(str, range(MAX_ITEMS + 1)), 1)
    static = {"type": "static", "static": {"metrics": values}}
    objective = {"analysisValueTemplateRef": {"name": "latency"}}
    assert validate("definition", {"objectives": [objective] * MAX_ITEMS}) == []
    too_many = {"objectives": [objective] * (MAX_ITEMS + 1)}
    assert list(map(str, validate("provider", static) + validate("definition", too_many))) == [
        "spec.static.metrics: Invalid value: 1001: must have at most 1000 values",
        "spec.objectives: Invalid value: 1001: must have at most 1000 objectives",
    ]


@pytest.mark.parametrize(
    "target",
    [
        None,
        {},
        {"failure": {"lessThan": {"fixedValue": 5}}},
        {"warning": {"inRange": {"lowBound": "500m", "highBound": 1}}},
        {"failure": {"notInRange": {"lowBound": -1, "highBound": "0.5"}}, "warning": None},
        {"failure": {"equalTo": {"fixedValue": "1.5Gi"}, "lessThan": None}},
    ],
)
def test_a_target_without_errors_can_be_decoded(target):
    objective = {"analysisValueTemplateRef": {"name": "latency"}, "target": target}
    assert validate("definition", {"objectives": [objective]}) == []
    decode_target(target)


BRACES = ["{{", "{{.a", "{{-", "{{ -", "}}", "{{.a}}"]


@pytest.mark.parametrize("part", BRACES)
def test_s7_four_times_as_many_braces_are_about_four_times_the_work(part):
    small, large = (
        lines(lambda count=count: validate("template", {"query": (part * count)[:count]}))
        for count in (16_384, 65_536)
    )
    # Quadratic would be 16 times.
    assert large < 6 * small


@pytest.mark.full
@pytest.mark.parametrize("part", BRACES)
def test_s7_a_query_of_braces_costs_no_time(part):
    start = time.perf_counter()
    validate("template", {"query": (part * 65_536)[:65_536]})
    assert time.perf_counter() - start < 1
