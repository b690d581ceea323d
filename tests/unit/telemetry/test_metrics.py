"""The names, labels and first values that dashboards rely on."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from harbourmaster.telemetry.api_metrics import RequestCounters
from harbourmaster.telemetry.metrics import create_metrics, set_certificate_expiry
from harbourmaster.webhook.verdict import OUTCOMES

KUPID_TYPES = ("processed", "allowed", "denied", "mutated", "error")
DURATION = "harbourmaster_admission_duration_seconds"


@pytest.fixture
def metrics():
    return create_metrics("1.2.3", OUTCOMES)


def families(metrics):
    text = generate_latest(metrics.registry).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_every_metric_is_there_from_the_start(metrics):
    assert set(families(metrics)) >= {
        "harbourmaster_admission_duration_seconds",
        "harbourmaster_admission_skipped",
        "harbourmaster_admission_patch_operations",
        "harbourmaster_policies",
        "harbourmaster_policies_invalid",
        "harbourmaster_certificate_expiry_seconds",
        "harbourmaster_certificate_reload_errors",
        "harbourmaster_event_loop_lag_seconds",
        "harbourmaster_conversions",
        "harbourmaster_requests_shed",
        "harbourmaster_connections",
        "harbourmaster_connections_evicted",
        "harbourmaster_build_info",
        "kupid_aggr_requests",
        "process_resident_memory_bytes",
        "python_info",
    }


def test_kupid_s_counter_has_its_name_and_all_types_at_zero(metrics):
    """Dashboards of kupid go on (kupid-spec 6.9)."""
    samples = families(metrics)["kupid_aggr_requests"].samples
    assert {(sample.name, sample.labels["type"], sample.value) for sample in samples} == {
        ("kupid_aggr_requests_total", kind, 0.0) for kind in KUPID_TYPES
    }


def test_no_creation_times_are_exposed(metrics):
    assert b"_created" not in generate_latest(metrics.registry)


def test_the_version_is_a_label(metrics):
    assert metrics.registry.get_sample_value("harbourmaster_build_info", {"version": "1.2.3"}) == 1


def test_durations_are_told_apart_from_half_a_millisecond_on(metrics):
    for seconds in (0.0004, 0.0005, 0.0006, 11.0):
        metrics.admission.durations["mutated"].observe(seconds)

    def value(suffix, **labels):
        return metrics.registry.get_sample_value(DURATION + suffix, {"outcome": "mutated"} | labels)

    # A bound counts what is equal to it, and each bucket all that are below it.
    assert [value("_bucket", le=bound) for bound in ("0.0005", "0.001", "10.0", "+Inf")] == [
        2,
        3,
        3,
        4,
    ]
    assert value("_count") == 4
    assert value("_sum") == pytest.approx(11.0015)


@pytest.mark.parametrize(
    ("outcome", "types"),
    [
        ("mutated", {"processed", "allowed", "mutated"}),
        ("unmatched", {"processed", "allowed"}),
        ("unchanged", {"processed"}),
        ("valid", {"processed", "allowed"}),
        ("invalid", {"processed", "denied"}),
        ("denied", {"processed", "denied"}),
        ("gated", {"processed", "allowed", "mutated"}),
        ("skipped", {"processed", "error"}),
        ("malformed", {"processed", "error"}),
    ],
)
def test_an_outcome_counts_as_kupid_would_count_it(metrics, outcome, types):
    """Types are those of kupid (kupid-spec 6.9)."""
    metrics.admission.durations[outcome].observe(0.001)
    samples = families(metrics)["kupid_aggr_requests"].samples
    assert {sample.labels["type"] for sample in samples if sample.value} == types


def test_the_time_to_a_certificate_s_end_shrinks_by_itself(metrics):
    end = datetime.now(UTC) + timedelta(seconds=100)
    set_certificate_expiry(metrics, "leaf", end)
    first = metrics.registry.get_sample_value(
        "harbourmaster_certificate_expiry_seconds", {"role": "leaf"}
    )
    second = metrics.registry.get_sample_value(
        "harbourmaster_certificate_expiry_seconds", {"role": "leaf"}
    )
    assert 99 < second < first < 100


def test_two_processes_worth_of_metrics_share_nothing(metrics):
    metrics.admission.durations["invalid"].observe(0.001)
    separate = create_metrics("2", OUTCOMES)
    assert separate.registry.get_sample_value("kupid_aggr_requests_total", {"type": "denied"}) == 0


def test_requests_are_counted_by_verb_and_code():
    registry = CollectorRegistry()
    calls = RequestCounters(registry)
    calls.note("list", 200, 0.02)
    calls.note("list", 200, 0.2)
    calls.note("watch", 410, 0.001)
    calls.note("watch", 0, 5.0)
    counts = {
        (verb, code): registry.get_sample_value(
            "harbourmaster_api_requests_total", {"verb": verb, "code": code}
        )
        for verb, code in (("list", "200"), ("watch", "410"), ("watch", "none"))
    }
    assert list(counts.values()) == [2, 1, 1]
    assert (
        registry.get_sample_value(
            "harbourmaster_api_request_duration_seconds_sum", {"verb": "watch"}
        )
        == 5.001
    )
    below = {"verb": "list", "le": "0.025"}
    assert (
        registry.get_sample_value("harbourmaster_api_request_duration_seconds_bucket", below) == 1
    )
