"""Questions to metric providers, counted without naming anybody."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from harbourmaster.controller.evaluation.collectors import (
    PROVIDER_QUERIES,
    PROVIDER_QUERY_DURATION,
    QueryMetrics,
)


@pytest.fixture
def registry():
    return CollectorRegistry()


def test_questions_are_counted_by_provider_and_outcome(registry):
    metrics = QueryMetrics(registry)
    metrics.count_answer("prometheus", "Answered", 0.02)
    metrics.count_answer("prometheus", "Answered", 0.02)
    metrics.count_answer("prometheus", "TimedOut", 20.0)

    def count(**labels):
        return registry.get_sample_value(PROVIDER_QUERIES, labels)

    assert count(provider="prometheus", outcome="Answered") == 2
    assert count(provider="prometheus", outcome="TimedOut") == 1
    assert count(provider="static", outcome="Answered") is None


def test_their_time_is_measured_by_provider(registry):
    metrics = QueryMetrics(registry)
    metrics.count_answer("static", "Answered", 0.02)
    metrics.count_answer("static", "TimedOut", 20.0)

    def value(suffix, **labels):
        name = f"{PROVIDER_QUERY_DURATION}_{suffix}"
        return registry.get_sample_value(name, {"provider": "static", **labels})

    assert value("sum") == 20.02
    assert (value("bucket", le="0.025"), value("bucket", le="20.0")) == (1, 2)
