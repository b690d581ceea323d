from __future__ import annotations

import msgspec
import pytest

from harbourmaster.evaluation.aggregation import aggregate
from harbourmaster.evaluation.model import Metric, MetricSpec, Provider
from harbourmaster.evaluation.validation import (
    AGGREGATIONS,
    MAX_ITEMS,
    MAX_SAMPLES,
    PROVIDER_TYPES,
    validate_metric,
    validate_provider,
)
from helpers.schemas import versions

METRIC = {"provider": {"name": "prometheus"}, "query": "up", "fetchIntervalSeconds": 10}
SERVER = "https://prometheus.example.com:9090/prefix"
SECRET = {"secretKeyRef": {"name": "token", "key": "value"}}
TABLE = {"table": "metrics", "comparisonColumn": "name", "valueColumn": "value"}


def object_of(spec, name):
    return {"metadata": {"name": name, "namespace": "market"}, "spec": spec}


def metric_faults(**spec):
    found = msgspec.convert(object_of({**METRIC, **spec}, "load"), Metric)
    return list(map(str, validate_metric(found)))


def range_faults(**fields):
    return metric_faults(range=fields)


def provider_faults(name="prometheus", **spec):
    found = msgspec.convert(object_of(spec, name), Provider)
    return list(map(str, validate_provider(found)))


def provider_errors(**spec):
    return validate_provider(msgspec.convert(object_of(spec, "prometheus"), Provider))


def server_faults(server):
    return provider_faults(targetServer=server)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"range": {}},
        {"range": {"interval": "1h30m"}},
        {"range": {"interval": "5m", "step": "1m", "aggregation": "p90"}},
        {"range": {"interval": "10000s", "step": "1s", "aggregation": "max"}},
        {"range": {"storedResults": 255}},
        {"fetchIntervalSeconds": 1, "query": "{}"},
    ],
)
def test_a_metric_that_can_be_asked_for_has_no_fault(spec):
    assert metric_faults(**spec) == []


@pytest.mark.parametrize("text", ["5mins", "1mins", "five minutes", "5", ""])
def test_c91_an_interval_that_is_no_duration_is_refused(text):
    assert range_faults(interval=text) == [
        (
            f'spec.range.interval: Invalid value: "{text}": "{text}" is not a duration: write for '
            "example 30s, 5m or 1h30m"
        )
    ]


def test_c91_a_step_that_is_no_duration_is_refused():
    (text,) = range_faults(interval="5m", step="1mins", aggregation="p90")
    assert text.startswith('spec.range.step: Invalid value: "1mins": "1mins" is not a duration')


def test_c91_a_step_needs_an_aggregation_and_the_other_way_round():
    assert range_faults(interval="5m", step="1m") == [
        "spec.range.aggregation: Required value: needed with step, to combine its values"
    ]
    assert range_faults(aggregation="p90") == [
        "spec.range.step: Required value: needed with aggregation: the time between values"
    ]


def test_c91_an_unknown_aggregation_is_refused():
    assert range_faults(step="1m", aggregation="p91") == [
        (
            'spec.range.aggregation: Unsupported value: "p91": supported values: "p90", "p95", '
            '"p99", "max", "min", "avg", "median"'
        )
    ]


def test_every_aggregation_that_passes_can_be_made():
    assert [aggregate(name, [1.0]) for name in AGGREGATIONS] == [1.0] * len(AGGREGATIONS)
    schema = versions("keptnmetrics")["v1"]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(schema["properties"]["range"]["properties"]["aggregation"]["enum"]) == set(
        AGGREGATIONS
    )


def test_durations_that_are_none_are_refused():
    assert range_faults(interval="0s", step="-1m", aggregation="max") == [
        'spec.range.interval: Invalid value: "0s": must be longer than 0s',
        'spec.range.step: Invalid value: "-1m": must be longer than 0s',
    ]


def test_s6_a_duration_without_end_is_refused_and_not_repeated():
    (text,) = range_faults(interval="1h" * 100_000)
    assert text.startswith('spec.range.interval: Invalid value: "1h1h')
    assert len(text) < 300


def test_more_steps_than_are_read_are_refused():
    assert range_faults(interval=f"{MAX_SAMPLES + 1}s", step="1s", aggregation="max") == [
        'spec.range.step: Invalid value: "1s": gives 10001 values in 10001s, more than 10000'
    ]


def test_numbers_that_make_no_sense_are_refused():
    assert metric_faults(fetchIntervalSeconds=-1, range={"storedResults": -1}) == [
        "spec.fetchIntervalSeconds: Invalid value: -1: must be one second or more",
        "spec.range.storedResults: Invalid value: -1: must be 0 to 255",
    ]
    assert len(metric_faults(fetchIntervalSeconds=-1, range={"storedResults": 256})) == 2


def test_an_interval_of_zero_is_the_one_that_keptn_waits():
    found = msgspec.convert(object_of({**METRIC, "fetchIntervalSeconds": 0}, "load"), Metric)
    (fault,) = validate_metric(found)
    assert fault.is_warning
    assert fault.detail.startswith("means 10 seconds, as in Keptn")
    assert found.spec.interval == MetricSpec(fetch_interval_seconds=-60).interval == 10


def test_what_is_asked_and_whom_must_be_said():
    assert metric_faults(provider={}, query=" ") == [
        "spec.provider.name: Required value: name the KeptnMetricsProvider that is asked",
        "spec.query: Required value: must not be empty",
    ]


def test_s20_no_provider_of_another_namespace_can_be_named():
    (text,) = metric_faults(provider={"name": "other/prometheus"})
    assert "an object in the same namespace" in text


def test_a_query_without_end_is_refused_and_not_repeated():
    (text,) = metric_faults(query="u" * 65_537)
    assert text.endswith("has more than 65536 characters")
    assert len(text) < 200


@pytest.mark.parametrize(
    "spec",
    [
        {"targetServer": SERVER},
        {"type": "prometheus", "targetServer": "http://10.0.0.1"},
        {"type": "Thanos", "targetServer": "http://[fd00::1]:9090/"},
        {"type": "elastic", "targetServer": SERVER, "insecureSkipTlsVerify": True},
        {"type": "dynatrace", "targetServer": SERVER, **SECRET},
        {"type": "kafka", "targetServer": SERVER, "kafka": TABLE},
        {"type": "static", "static": {"metrics": {"a": 1, "b": 0.5, "c": "500m", "d": "-1e3"}}},
        {"type": "static", "static": {"metrics": {}}, "targetServer": SERVER},
    ],
)
def test_a_provider_that_can_be_asked_has_no_fault(spec):
    assert provider_faults(**spec) == []


def test_a_provider_without_a_type_is_of_the_type_that_its_name_says():
    assert provider_faults("dql", targetServer=SERVER, **SECRET) == []
    assert provider_faults("static", static={"metrics": {"a": 1}}) == []
    (text,) = provider_faults("mine", targetServer=SERVER)
    missing = 'spec.type: Required value: the name "mine" is not a provider type: give one of '
    assert text.startswith(missing)
    for name, type_, meant in (("thanos", "", "thanos"), ("thanos", "Cortex", "cortex")):
        provider = object_of({"type": type_}, name)
        assert msgspec.convert(provider, Provider).type == meant


def test_every_type_passes_the_schema_and_no_other_type_is_in_it():
    schema = versions("keptnmetricsproviders")["v1"]["schema"]["openAPIV3Schema"]
    pattern = schema["properties"]["spec"]["properties"]["type"]["pattern"]
    assert set(pattern.split("|")) == set(PROVIDER_TYPES)


@pytest.mark.parametrize("type_", ["prometheus-2", "none"])
def test_what_is_nearly_a_type_is_refused(type_):
    (text,) = provider_faults(type=type_, targetServer=SERVER)
    assert text.startswith(f'spec.type: Unsupported value: "{type_}": supported values: "cortex", ')


@pytest.mark.parametrize(
    "server",
    [
        *("//prometheus", "https://", "https:///a", "<url>", "https://<tenant>.example.com"),
        *("file:///etc/passwd", "ftp://example.com", "unix:///run/a.sock", "gopher://example.com"),
        *("https://example.com:0", "https://example.com:65536", "https://example.com:a"),
        *("https://exa mple.com", "https://example.com/\n", "https://[::1", "https://exämple.com"),
        "javascript:alert(1)",
    ],
)
def test_s24_what_is_no_url_of_a_server_is_warned_of(server):
    (fault,) = provider_errors(targetServer=server)
    assert fault.is_warning
    assert str(fault).startswith("spec.targetServer: Invalid value: ")
    assert str(fault).endswith("write for example https://prometheus.example.com:9090")


@pytest.mark.parametrize("server", ["prometheus.example.com", "prometheus:9090/prefix", "[::1]:1"])
def test_a_server_without_a_scheme_is_warned_of(server):
    (fault,) = provider_errors(targetServer=server)
    assert fault.is_warning
    assert fault.detail.startswith("has no scheme: https is used with secretKeyRef, http without")


def test_credentials_in_a_url_are_refused_and_not_repeated():
    (text,) = server_faults("https://me:geheim@prometheus.example.com")
    assert text == (
        'spec.targetServer: Invalid value: "https://...@prometheus.example.com": must not '
        "contain credentials: put them into a Secret, named by secretKeyRef"
    )
    no_url = ("ftp://me:geheim@example.com", "https://geheim@", "a:geheim@<host>", "geheim\\@a")
    no_scheme = ("me:geheim@example.com", "geheim@example.com:9090", "https:/a:geheim@example.com")
    for server in (*no_url, *no_scheme, "a:geheim://@b"):
        (fault,) = provider_errors(targetServer=server)
        assert not fault.is_warning
        assert "geheim" not in str(fault)


def test_a_token_in_a_query_is_not_repeated():
    (fault,) = provider_errors(targetServer=f"{SERVER}?api-token=geheim")
    assert str(fault).count("?...") == 1
    assert "geheim" not in str(fault)


@pytest.mark.parametrize("rest", ["?tenant=a", "#a", "/?"])
def test_a_url_that_nothing_can_be_added_to_is_refused(rest):
    (text,) = server_faults(SERVER + rest)
    assert text.endswith("must not have a query or a fragment")


def test_a_server_must_be_given_unless_values_are():
    (text,) = provider_faults()
    assert text.startswith("spec.targetServer: Required value: the URL of the provider")
    (text,) = provider_faults(type="static", static={}, targetServer="nowhere")
    assert text.startswith('spec.targetServer: Invalid value: "nowhere"')


@pytest.mark.parametrize("type_", ["datadog", "dql", "dynatrace"])
def test_who_answers_nobody_without_credentials_needs_a_secret(type_):
    assert provider_faults(type=type_, targetServer=SERVER) == [
        f"spec.secretKeyRef: Required value: {type_} requires credentials: name a Secret"
    ]


def test_a_secret_is_named_in_full_and_lies_in_the_same_namespace():
    assert provider_faults(targetServer=SERVER, secretKeyRef={}) == [
        "spec.secretKeyRef.name: Required value: name a Secret of the same namespace",
        "spec.secretKeyRef.key: Required value: name a key of the Secret",
    ]
    (text,) = provider_faults(
        targetServer=SERVER, secretKeyRef={"name": "kube-system/token", "key": "a"}
    )
    assert "an object in the same namespace" in text


def test_kafka_needs_its_table_and_nobody_else_has_one():
    assert provider_faults(type="kafka", targetServer=SERVER) == [
        "spec.kafka: Required value: name the table that has the values"
    ]
    assert provider_faults(type="kafka", targetServer=SERVER, kafka={"table": "metrics"}) == [
        "spec.kafka.comparisonColumn: Required value: name the column that has the query",
        "spec.kafka.valueColumn: Required value: name the column that has the value",
    ]
    assert provider_faults(targetServer=SERVER, kafka=TABLE) == [
        "spec.kafka: Forbidden: it belongs to the type kafka"
    ]


def test_static_needs_its_values_and_nobody_else_has_any():
    assert provider_faults(type="static") == ["spec.static: Required value: give the values"]
    assert provider_faults(targetServer=SERVER, static={}) == [
        "spec.static: Forbidden: it belongs to the type static"
    ]


@pytest.mark.parametrize("value", ["much", "NaN", "Inf", "", "1 2", "1e999", "0x1"])
def test_s26_static_values_are_numbers(value):
    (text,) = provider_faults(type="static", static={"metrics": {"a": value}})
    assert text.startswith(f'spec.static.metrics[a]: Invalid value: "{value}": ')


def test_more_static_values_than_can_be_judged_at_once_are_refused():
    values = dict.fromkeys(map(str, range(MAX_ITEMS + 1)), 1)
    assert provider_faults(type="static", static={"metrics": values}) == [
        "spec.static.metrics: Invalid value: 1001: must have at most 1000 values"
    ]
