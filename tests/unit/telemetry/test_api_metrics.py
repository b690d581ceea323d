from __future__ import annotations

from prometheus_client import CollectorRegistry

from harbourmaster.telemetry.api_metrics import RequestCounters


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
