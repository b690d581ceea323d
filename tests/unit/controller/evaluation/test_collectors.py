"""The Prometheus metrics of analyses and of queries."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from harbourmaster.api.metadata import Metadata
from harbourmaster.controller.evaluation.collectors import (
    PROVIDER_QUERY_DURATION,
    SHOWN_ANALYSES,
    SHOWN_OBJECTIVES,
    AnalysisCollector,
    AnalysisMetricValues,
    QueryMetrics,
)
from harbourmaster.evaluation.analysis import MeasuredObjective, judge
from harbourmaster.evaluation.model import (
    COMPLETED,
    PROGRESSING,
    Analysis,
    AnalysisObjective,
    AnalysisSpec,
    AnalysisStatus,
    ObjectReference,
    Timeframe,
    TotalScore,
)
from harbourmaster.kube.store import Store

OBJECTIVES = (
    (AnalysisObjective(analysis_value_template_ref=ObjectReference(name="up"), weight=3), "4"),
    (
        AnalysisObjective(
            analysis_value_template_ref=ObjectReference(name="errors", namespace="shared"),
            target={"failure": {"greaterThan": {"fixedValue": 0}}},
            key_objective=True,
        ),
        "0.25",
    ),
    (AnalysisObjective(analysis_value_template_ref=ObjectReference(name="idle"), weight=0), "1"),
)


def analysis(name="release", objectives=OBJECTIVES, state=COMPLETED, to="2026-03-01T12:00:00Z"):
    verdict = judge(
        [(objective, MeasuredObjective("q", value)) for objective, value in objectives],
        TotalScore(pass_percentage=90),
    )
    return Analysis(
        metadata=Metadata(name=name, namespace="prod", uid=f"uid-{name}"),
        spec=AnalysisSpec(analysis_definition=ObjectReference(name="checks", namespace="quality")),
        status=AnalysisStatus(
            timeframe=Timeframe(from_="2026-03-01T11:55:00Z", to=to),
            state=state,
            raw=verdict.raw if state == COMPLETED else "",
        ),
    )


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def lines(store):
    """A function that returns what is exposed; with False, where another leads."""
    metrics = AnalysisCollector(registry := CollectorRegistry())

    def read(*, leads=True):
        metrics.set_source(AnalysisMetricValues(store).read if leads else None)
        return [line for line in generate_latest(registry).decode().splitlines() if line[0] != "#"]

    return read


def test_what_is_shown(store, lines, assert_golden):
    store.put("prod/release", analysis())
    store.put("prod/next", analysis("next", state=PROGRESSING))
    assert_golden(lines())


def test_where_another_leads_nothing_is_shown(store, lines):
    store.put("prod/release", analysis())
    assert lines(leads=False) == []
    assert lines()


def test_results_go_with_their_analysis(store, lines):
    store.put("prod/release", analysis())
    store.remove("prod/release")
    assert lines() == []


def test_an_analysis_of_the_same_name_has_its_own_result(store):
    values = AnalysisMetricValues(store)
    store.put("prod/release", analysis())
    assert list(values.read().percentages.values()) == [75]
    replaced = analysis(objectives=OBJECTIVES[:1])
    replaced = Analysis(
        metadata=Metadata(name="release", namespace="prod", uid="other"),
        spec=replaced.spec,
        status=replaced.status,
    )
    store.put("prod/release", replaced)
    assert list(values.read().percentages.values()) == [100]


def test_only_the_latest_are_shown(store, lines):
    for number in range(SHOWN_ANALYSES + 10):
        to = f"2026-03-01T12:{number // 60:02}:{number % 60:02}Z"
        store.put(f"prod/a{number}", analysis(f"a{number}", OBJECTIVES * 3, to=to))
    shown = lines()
    names = [line for line in shown if line.startswith("keptn_analysis_result")]
    assert len(names) == SHOWN_ANALYSES
    assert not any('name="a9"' in line for line in shown)
    assert len(shown) - len(names) <= SHOWN_OBJECTIVES


@pytest.mark.claim("O26")
def test_a_namespace_with_many_displaces_no_other(store, lines):
    store.put("prod/release", analysis())
    loud = analysis(to="2026-03-02T12:00:00Z")
    for number in range(SHOWN_ANALYSES):
        metadata = Metadata(name=f"a{number}", namespace="loud", uid=f"loud-{number}")
        store.put(metadata.key, Analysis(metadata=metadata, spec=loud.spec, status=loud.status))
    assert any('namespace="prod"' in line for line in lines())


def test_a_status_that_is_not_ours_is_no_result(store, lines):
    foreign = analysis()
    status = AnalysisStatus(timeframe=foreign.status.timeframe, state=COMPLETED, raw="{")
    store.put("prod/release", Analysis(metadata=foreign.metadata, status=status))
    assert lines() == []


@pytest.fixture
def registry():
    return CollectorRegistry()


def test_their_time_is_measured_by_provider(registry):
    metrics = QueryMetrics(registry)
    metrics.count_answer("static", "Answered", 0.02)
    metrics.count_answer("static", "TimedOut", 20.0)

    def value(suffix, **labels):
        name = f"{PROVIDER_QUERY_DURATION}_{suffix}"
        return registry.get_sample_value(name, {"provider": "static", **labels})

    assert value("sum") == 20.02
    assert (value("bucket", le="0.025"), value("bucket", le="20.0")) == (1, 2)
