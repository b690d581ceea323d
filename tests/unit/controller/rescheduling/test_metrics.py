"""The rescheduler's metrics: names, labels, and what a scrape reads of them."""

from __future__ import annotations

import re

import pytest
from prometheus_client import CollectorRegistry, disable_created_metrics, generate_latest

from harbourmaster.controller.rescheduling.notices import DRY_RUN_LABEL, PREFIX, ReschedulingMetrics

NAMES = {
    "unschedulable_critical_pods": (),
    "unschedulable_critical_pods_total": ("k8s_app",),
    "plans_total": ("tier", "result"),
    "evictions_total": ("result", "tier"),
    "deleted_pods_total": (),
    "pdb_violations_total": (),
    "grace_shortened_total": (),
    "reservations": (),
    "stale_taints_removed_total": (),
    "plan_duration_seconds": (),
    "time_to_bind_seconds": (),
    "nodes_evaluated": (),
    "budget_remaining": ("kind",),
    "circuit_open": (),
    "is_leader": (),
    "fit_mismatch_total": (),
}
"""The metrics of rescheduler-spec 7, each with its labels before the common one."""


@pytest.fixture
def registry():
    # As the maker of the controller's other metrics has done by then.
    disable_created_metrics()
    return CollectorRegistry()


@pytest.fixture
def metrics(registry):
    return ReschedulingMetrics(registry)


def change(metric):
    """Give a child of any kind of metric a value."""
    if hasattr(metric, "observe"):
        metric.observe(1)
    else:
        metric.inc()


def test_there_is_an_attribute_for_each_name_and_no_other(metrics):
    assert vars(metrics).keys() == NAMES.keys()


@pytest.mark.parametrize(("name", "labels"), NAMES.items(), ids=NAMES)
def test_each_is_scraped_by_its_name_with_the_dry_run_last(registry, metrics, name, labels):
    change(getattr(metrics, name).labels(*labels, "true"))
    # Histograms have several samples; their count is as good as any.
    suffix = "_count" if name.endswith("_seconds") else ""
    given = {**dict(zip(labels, labels, strict=True)), DRY_RUN_LABEL: "true"}
    assert registry.get_sample_value(f"{PREFIX}{name}{suffix}", given) == 1


def test_a_gauge_and_a_counter_of_almost_one_name_are_both_there(registry, metrics):
    metrics.unschedulable_critical_pods.labels("false").set(2)
    metrics.unschedulable_critical_pods_total.labels("kube-dns", "false").inc(3)
    text = generate_latest(registry).decode()
    name = f"{PREFIX}unschedulable_critical_pods"
    assert re.findall(rf"^# TYPE {name}\w* \w+$", text, re.MULTILINE) == [
        f"# TYPE {name} gauge",
        f"# TYPE {name}_total counter",
    ]
    assert f'{name}{{dry_run="false"}} 2.0\n' in text
    assert f'{name}_total{{dry_run="false",k8s_app="kube-dns"}} 3.0\n' in text


@pytest.mark.parametrize(
    "name", [name for name, labels in NAMES.items() if name.endswith("_total") and not labels]
)
def test_a_counter_begins_at_0_so_that_its_first_rise_is_seen(registry, metrics, name):
    assert getattr(metrics, name)
    assert registry.get_sample_value(f"{PREFIX}{name}", {DRY_RUN_LABEL: "false"}) == 0
