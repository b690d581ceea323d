"""The Grafana dashboards are valid and use only metrics and labels that exist."""

from __future__ import annotations

import itertools
import json
import re

import pytest

from harbourmaster.telemetry.metrics import create_metrics
from helpers import grafana
from helpers.grafana import DASHBOARDS, FOLDER, panels_of
from helpers.manifests import objects, of_kind, one
from manual.families import FAMILIES, labels_of, shown_name

DATA_SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Grafana shows a unit that it does not know as a word after the number.
UNITS = {"none", "s", "reqps", "ops", "percent", "percentunit", "bytes", "x"}
# Labels that Prometheus adds by the ServiceMonitor.
OF_TARGETS = {"pod", "namespace", "instance", "job"}
SUFFIX = re.compile("_(bucket|count|sum)$")
CONFIG_MAP_BYTES = 1024 * 1024
COLUMNS = 24
# The share of reviews that may miss the latency objective.
OBJECTIVE = 0.0005
# Metrics that no panel shows: one is always 1, the other is of policies from files.
NOT_SHOWN = {
    "keptn_lifecycle_active_total",
    "harbourmaster_bad_documents",
    # An alert has it.
    "harbourmaster_held_stage_excess_unavailable_pods",
}
DASHBOARD = pytest.mark.parametrize("name", DASHBOARDS)


def queries(name):
    return [target["expr"] for panel in panels_of(name) for target in panel["targets"]]


@pytest.fixture(scope="module")
def labels_by_metric():
    """The labels of each metric, by the name that Prometheus gives it."""
    labels = {}
    for families in FAMILIES.values():
        for family in families():
            labels.setdefault(shown_name(family), set()).update(labels_of(family))
    of_process = {
        shown_name(family): set()
        for family in create_metrics("1").registry.collect()
        if family.name.startswith("process_")
    }
    assert of_process
    return labels | of_process


@pytest.fixture(scope="module")
def recorded_series():
    groups = one(objects("default", "monitoring"), "PrometheusRule")["spec"]["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


@DASHBOARD
def test_every_query_uses_existing_metrics_and_labels(name, labels_by_metric, recorded_series):
    expressions = queries(name)
    assert expressions
    for query in expressions:
        asked = {SUFFIX.sub("", metric) for metric in grafana.metrics_of(query)}
        assert asked, query
        assert asked - recorded_series <= labels_by_metric.keys(), query
        labels = set().union(*(labels_by_metric[metric] for metric in asked - recorded_series))
        assert grafana.labels_of(query) <= labels | OF_TARGETS | {"le"}, query


@DASHBOARD
def test_a_legend_uses_labels_that_remain_after_grouping(name):
    panels = panels_of(name)
    assert panels
    for panel in panels:
        for target in panel["targets"]:
            wanted = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            grouped = grafana.labels_of(target["expr"]) | OF_TARGETS
            assert wanted <= grouped, target["expr"]
            assert len(panel["targets"]) == 1 or target["legendFormat"], panel["title"]


def test_every_metric_is_shown_or_listed_as_not_shown(labels_by_metric):
    asked = {
        SUFFIX.sub("", metric)
        for name in DASHBOARDS
        for query in queries(name)
        for metric in grafana.metrics_of(query)
    }
    ours = {metric for metric in labels_by_metric if not metric.startswith("process_")}
    assert ours - asked == NOT_SHOWN


def test_bucket_bounds_are_written_as_the_metrics_expose_them():
    """Prometheus compares labels as text."""
    bounds = {
        (sample.name, sample.labels["le"])
        for families in FAMILIES.values()
        for family in families()
        for sample in family.samples
        if "le" in sample.labels
    }
    bucket = re.compile(r'(\w+_bucket){[^}]*\ble="([^"]+)"')
    asked = {bound for name in DASHBOARDS for bound in bucket.findall(" ".join(queries(name)))}
    assert asked
    assert asked <= bounds


def test_the_error_budget_equals_that_of_the_alerts():
    groups = one(objects("default", "monitoring"), "PrometheusRule")["spec"]["groups"]
    assert f"14.4 * {OBJECTIVE}" in json.dumps(groups)
    assert any(query.endswith(f") / {OBJECTIVE}") for query in queries("admission"))


@DASHBOARD
def test_grafana_can_read_it(name):
    dashboard = json.loads((FOLDER / f"{name}.json").read_text())
    assert dashboard["uid"] == f"harbourmaster-{name}"
    assert len(dashboard["uid"]) <= 40
    assert dashboard["schemaVersion"] >= 36
    assert "id" not in dashboard
    source, namespace = dashboard["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == (
        "datasource",
        "datasource",
        "prometheus",
    )
    assert (namespace["name"], namespace["datasource"]) == ("namespace", DATA_SOURCE)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in dashboard["panels"]:
        assert panel["type"] in {"stat", "timeseries", "table"}
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["datasource"] == DATA_SOURCE
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        assert [target["refId"] for target in panel["targets"]] == [
            chr(ord("A") + at) for at in range(len(panel["targets"]))
        ]
        assert all(target["datasource"] == DATA_SOURCE for target in panel["targets"])
        steps = panel["fieldConfig"]["defaults"].get("thresholds", {}).get("steps", [])
        values = [step["value"] for step in steps]
        assert values[:1] in ([], [None])
        assert values[1:] == sorted(values[1:])


@DASHBOARD
def test_no_panel_hides_another(name):
    places = [panel["gridPos"] for panel in panels_of(name)]
    assert len(places) > 1
    assert all(place["x"] + place["w"] <= COLUMNS for place in places)
    for one_place, other_place in itertools.combinations(places, 2):
        assert (
            one_place["x"] + one_place["w"] <= other_place["x"]
            or other_place["x"] + other_place["w"] <= one_place["x"]
            or one_place["y"] + one_place["h"] <= other_place["y"]
            or other_place["y"] + other_place["h"] <= one_place["y"]
        )


def test_each_dashboard_is_in_a_config_map_for_the_sidecar():
    config_maps = [
        config_map
        for config_map in of_kind(objects("default", "monitoring"), "ConfigMap")
        if config_map["metadata"]["labels"].get("grafana_dashboard") == "1"
    ]
    assert {obj["metadata"]["name"] for obj in config_maps} == {
        f"harbourmaster-dashboard-{name}" for name in DASHBOARDS
    }
    for obj in config_maps:
        assert obj["metadata"]["annotations"] == {"grafana_folder": "Harbourmaster"}
        ((file, content),) = obj["data"].items()
        assert (FOLDER / file).read_text() == content
        assert len(content.encode()) < CONFIG_MAP_BYTES
