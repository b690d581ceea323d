"""Keptn's metrics: names, labels, and how many series there may be (keptn-spec 5.5)."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from harbourmaster.controller.lifecycle import metrics as module
from harbourmaster.controller.lifecycle.metrics import (
    APP,
    TASK,
    WORKLOAD,
    GaugeValues,
    LifecycleMetrics,
)
from harbourmaster.telemetry.cloud_events import CLOUD_EVENT_OUTCOMES

SHOP = ("shop", "1", "prod")
ENDED = (*SHOP, "Succeeded")
ANCHOR = (APP, "prod/shop-1")


class Source:
    def __init__(self):
        self.gone = set()
        self.asked = 0
        self.shown = GaugeValues(
            active={APP: {SHOP: 1}, WORKLOAD: {("shop", "front", "7", "prod"): 0}},
            intervals={APP: {(*SHOP, "0"): 12.5}},
            durations={APP: {(*SHOP, "0"): 60.0}},
            gated_pods=3,
            waiting_pods={"blocked": 2},
        )

    def read_gauges(self):
        return self.shown

    def exists(self, anchor):
        self.asked += 1
        return anchor not in self.gone


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return LifecycleMetrics(registry)


def lines(registry, start):
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if line.startswith(start)]


def test_counters_and_histograms_have_keptns_names_and_labels(registry, metrics):
    metrics.count_finished(APP, ENDED, 60.0, ANCHOR)
    metrics.count_finished(APP, ENDED, 7.0, ANCHOR)
    labels = (
        'keptn_deployment_app_name="shop",keptn_deployment_app_namespace="prod",'
        'keptn_deployment_app_status="Succeeded",keptn_deployment_app_version="1",'
        'otel_scope_name="keptn/task"'
    )
    (count,) = lines(registry, "keptn_app_count_total{")
    assert sorted_labels(count) == (labels, "2.0")
    (total,) = lines(registry, "keptn_app_duration_seconds_sum")
    assert sorted_labels(total) == (labels, "67.0")
    buckets = lines(registry, "keptn_app_duration_seconds_bucket")
    assert [sorted_labels(bucket)[1] for bucket in buckets if 'le="10.0"' in bucket] == ["1.0"]


def sorted_labels(line):
    name, _, value = line.rpartition(" ")
    inside = name[name.index("{") + 1 : -1]
    return ",".join(sorted(inside.split(","))), value


def test_the_state_of_now_is_shown_by_who_leads(registry, metrics):
    assert lines(registry, "keptn_app_active{") == []
    metrics.lead(Source())
    (active,) = lines(registry, "keptn_app_active{")
    assert active.endswith(" 1.0")
    assert lines(registry, "keptn_deployment_active{")[0].endswith(" 0.0")
    assert lines(registry, "keptn_app_deploymentinterval{")[0].endswith(" 12.5")
    assert lines(registry, "keptn_app_deploymentduration{")[0].endswith(" 60.0")
    assert lines(registry, "harbourmaster_gated_pods") == ["harbourmaster_gated_pods 3.0"]
    assert lines(registry, "harbourmaster_pods_waiting") == [
        'harbourmaster_pods_waiting_for_objects{state="pending"} 0.0',
        'harbourmaster_pods_waiting_for_objects{state="blocked"} 2.0',
    ]
    metrics.lead(None)
    assert lines(registry, "keptn_app_active{") == []


def test_the_process_counts_itself_once(registry, metrics):
    assert lines(registry, "keptn_lifecycle_active_total") == [
        'keptn_lifecycle_active_total{otel_scope_name="keptn/task"} 1.0'
    ]


def test_what_becomes_of_cloud_events_is_there_from_the_start(registry, metrics):
    metrics.count_cloud_event("sent")
    series = lines(registry, "harbourmaster_cloud_events_total{")
    assert len(series) == len(CLOUD_EVENT_OUTCOMES)
    assert 'harbourmaster_cloud_events_total{outcome="sent"} 1.0' in series


def test_series_go_with_their_object(registry, metrics):
    source = Source()
    metrics.lead(source)
    metrics.count_finished(APP, ENDED, 1.0, ANCHOR)
    metrics.count_finished(APP, ("other", "1", "prod", "Failed"), 1.0, (APP, "prod/other-1"))
    assert len(lines(registry, "keptn_app_count_total{")) == 2
    source.gone.add(ANCHOR)
    (left,) = lines(registry, "keptn_app_count_total{")
    assert 'app_name="other"' in left
    assert not [line for line in lines(registry, "keptn_app_duration") if '"shop"' in line]


def test_series_of_deleted_objects_go_without_a_scrape_too(metrics):
    source = Source()
    metrics.lead(source)
    for number in range(1000):
        anchor = (APP, f"prod/{number}")
        metrics.count_finished(APP, (str(number), "1", "prod", "Failed"), 1.0, anchor)
        source.gone.add(anchor)
    assert len(metrics._finished[APP]) <= module._SPARE + 1


def test_a_further_series_is_as_cheap_beyond_the_limit_as_below_it(metrics):
    source = Source()
    metrics.lead(source)
    for number in range(3000):
        anchor = (APP, f"prod/{number}")
        metrics.count_finished(APP, (str(number), "1", "prod", "Failed"), 1.0, anchor)
    assert len(metrics._finished[APP]) <= module._LIMIT + module._SPARE
    assert source.asked < 50 * 3000


def test_a_series_of_two_objects_goes_with_the_last(registry, metrics):
    source = Source()
    metrics.lead(source)
    labels = ("shop", "1", "", "", "entry", "pre", "Succeeded")
    metrics.count_finished(TASK, labels, 1.0, (APP, "a/shop-1"))
    metrics.count_finished(TASK, labels, 1.0, (APP, "b/shop-1"))
    source.gone.add((APP, "a/shop-1"))
    (line,) = lines(registry, "keptn_task_count_total{")
    assert line.endswith(" 2.0")
    source.gone.add((APP, "b/shop-1"))
    assert lines(registry, "keptn_task_count_total{") == []


@pytest.mark.claim("O26")
def test_a_namespace_with_many_series_loses_its_own(registry, metrics, monkeypatch):
    monkeypatch.setattr(module, "_LIMIT", 5)
    metrics.count_finished(APP, ENDED, 1.0, ANCHOR)
    for number in range(20):
        labels = (str(number), "1", "loud", "Failed")
        metrics.count_finished(APP, labels, 1.0, (APP, f"loud/{number}"))
    series = lines(registry, "keptn_app_count_total{")
    assert len(series) == 5
    assert 'keptn_deployment_app_name="shop"' in series[0]
    assert 'keptn_deployment_app_name="16"' in series[1]


@pytest.mark.claim("O26")
def test_namespaces_share_the_histograms(registry, metrics, monkeypatch):
    monkeypatch.setattr(module, "_HISTOGRAMS", 3)
    metrics.count_finished(APP, ENDED, 1.0, ANCHOR)
    for number in range(20):
        metrics.count_finished(
            APP, (str(number), "1", "loud", "Failed"), 1.0, (APP, f"loud/{number}")
        )
    series = lines(registry, "keptn_app_duration_seconds_count{")
    assert [line.split('app_name="')[1].split('"')[0] for line in series] == ["19", "shop", "18"]


def test_those_of_objects_that_are_gone_go_first(registry, metrics, monkeypatch):
    monkeypatch.setattr(module, "_LIMIT", 3)
    source = Source()
    metrics.lead(source)
    for number in range(3):
        metrics.count_finished(APP, (str(number), "1", "prod", "Failed"), 1.0, (APP, str(number)))
    source.gone.add((APP, "2"))
    metrics.count_finished(APP, ENDED, 1.0, ANCHOR)
    names = [
        line.split('app_name="')[1].split('"')[0]
        for line in lines(registry, "keptn_app_count_total{")
    ]
    assert names == ["0", "1", "shop"]


def test_a_clock_that_goes_back_is_no_negative_duration(registry, metrics):
    metrics.count_finished(APP, ENDED, -5.0, ANCHOR)
    assert lines(registry, "keptn_app_duration_seconds_sum")[0].endswith(" 0.0")
