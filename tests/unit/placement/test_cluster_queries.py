"""Metrics with a value for each cluster: their queries, and the decisions by them."""

from __future__ import annotations

import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.placement.application_decisions import decide
from harbourmaster.placement.backends import decide_cluster
from harbourmaster.placement.cluster_queries import cluster_query, parse_query
from harbourmaster.placement.decision import record
from harbourmaster.placement.model import MetricSource
from helpers.placing import (
    NAMESPACE,
    application,
    cloud,
    cluster,
    decide_on,
    make_object,
    metric,
    reason,
    start_pass,
)

LOAD = 'load{cluster="$(cluster.name)"}'
BY = metric("load", query="sum by (cluster) (load)", by_label="cluster")
LABELS = {"zone": "eu-1", "example.com/row": "7"}
AB = (cluster("a", {"load": 1}), cluster("b", {"load": 1}))


def provider(kind, name="prom", **static):
    spec = {"type": kind, **({"static": {"metrics": static}} if kind == "static" else {})}
    return make_object("GlobalMetricsProvider", name, spec=spec)


def query(text, *, kind="prometheus", by_label="", name="one.x", **labels):
    source = MetricSource(name="prom", metric=text, by_label=by_label)
    metadata = Metadata(name=name, namespace="ns", labels=labels or LABELS)
    return cluster_query("load", source, provider(kind), metadata)


@pytest.mark.parametrize(
    ("text", "replaced"),
    [
        (LOAD, 'load{cluster="one.x"}'),
        ("load{n='$(cluster.namespace)', c=`$(cluster.name)`}", "load{n='ns', c=`one.x`}"),
        ('l{z="$(cluster.labels.zone)"}', 'l{z="eu-1"}'),
        ('l{r="a-$(cluster.labels.example.com/row)-b"}', 'l{r="a-7-b"}'),
        ("load_$(cluster.namespace)", "load_ns"),
        ("load", "load"),
    ],
)
def test_placeholders_are_replaced(text, replaced):
    assert query(text) == replaced


@pytest.mark.parametrize(
    ("text", "shown", "position"),
    [
        ("$(cluster.uid)", "$(cluster.uid)", 1),
        ("a$(Cluster.name)", "$(Cluster.name)", 2),
        ("ab $( cluster.name)", "$( cluster.name)", 4),
        ("$(cluster.name) $(cluster.name", "$(cluster.name", 17),
        ("$()", "$()", 1),
        ("$(cluster.labels.)", "$(cluster.labels.)", 1),
        ("$(cluster.labels.a/b/c)", "$(cluster.labels.a/b/c)", 1),
    ],
)
def test_an_unknown_placeholder_is_named_with_its_position(text, shown, position):
    with pytest.raises(ValueError, match="unknown placeholder") as error:
        parse_query(text)
    assert str(error.value) == (
        f"unknown placeholder '{shown}' at character {position}: "
        "use $(cluster.name), $(cluster.namespace) or $(cluster.labels.KEY)"
    )
    assert str(error.value) in query(text).message


def test_a_cluster_without_the_label_has_no_query():
    text = "'load' cannot be asked for: the cluster has no valid $(cluster.labels.row): "
    assert str(query('l{r="$(cluster.labels.row)"}')) == (
        f"InvalidMetric: {text}add the label to the Cluster"
    )
    assert query('l{r="$(cluster.labels.row)"}', row="").message.startswith(text)
    assert query('l{r="$(cluster.labels.row)"}', row='"} or up{a="').message.startswith(text)


def test_a_value_outside_of_quotes_is_one_word():
    assert query("load_$(cluster.name)", name="one") == "load_one"
    # It would be a difference.
    fault = query("load_$(cluster.labels.zone)")
    assert "'cluster.labels.zone' is outside of quotes" in fault.message


@pytest.mark.parametrize("kind", ["kafka", "static"])
def test_names_of_other_providers_are_no_language(kind):
    assert query("load-$(cluster.labels.zone)", kind=kind) == "load-eu-1"
    fault = query("load", kind=kind, by_label="cluster")
    assert fault.message == (
        "'load' cannot be asked for: byLabel needs a provider of type prometheus: "
        "use $(cluster.name)"
    )


def test_each_cluster_is_ranked_by_its_own_value():
    decision = decide_on(application(), *AB, BY, load={"a": 0.2, "b": 0.9})
    assert decision.scores == {"a": 0.2, "b": 0.9}
    assert decision.chosen == ["b"]


def test_constraints_compare_the_value_of_each_cluster():
    decision = decide_on(application(metrics=["load < 0.5"]), *AB, BY, load={"a": 0.2, "b": 0.9})
    assert decision.chosen == ["a"]
    assert reason(decision, "b").endswith("the value is 0.9")


def test_a_cluster_without_a_value_is_no_candidate_and_others_are():
    decision = decide_on(application(), *AB, BY, load={"a": "no series", "b": 0.1})
    assert reason(decision, "a") == "UnreachableMetricsProvider: no series"
    assert decision.chosen == ["b"]
    missing = decide_on(application(), *AB, BY, provider("prometheus"), load={"b": 0.1})
    assert reason(missing, "a").endswith("there is no value of 'load' yet")


def test_one_cluster_without_a_label_is_no_fault_of_others():
    labelled = metric("load", query='l{z="$(cluster.labels.zone)"}')
    clusters = (cluster("a", {"load": 1}), cluster("b", {"load": 1}, labels={"zone": "z"}))
    decision = decide_on(application(), *clusters, labelled, load={"a": 0.9, "b": 0.1})
    assert "no valid $(cluster.labels.zone)" in reason(decision, "a")
    assert decision.chosen == ["b"]


def test_static_values_have_names_of_clusters():
    static = provider("static", "fixed", **{"load-a": 0.3, "load-b": 0.6})
    named = metric("load", provider="fixed", query="load-$(cluster.name)")
    decision = decide_on(application(), *AB, cluster("c", {"load": 1}), named, static)
    assert decision.scores == {"a": 0.3, "b": 0.6}
    assert reason(decision, "c") == "InvalidMetric: 'fixed' has no value 'load-c'"


def test_a_namespaced_metric_has_the_value_of_each_cluster():
    clusters = (cluster("a", {"/load": 1}), cluster("b", {"/load": 1}))
    decision = decide_on(
        application(), *clusters, metric("/load", query=LOAD), load={"a": 0.8, "b": 0}
    )
    assert decision.scores == {"a": 0.8, "b": 0}


def test_an_inherited_metric_is_that_of_the_inheriting_cluster():
    spec = {"cloudRef": {"kind": "Cloud", "name": "os"}, "inheritMetrics": True}
    clusters = (cluster("a", spec=spec), cluster("b", spec=spec))
    decision = decide_on(
        application(), *clusters, cloud("os", {"load": 1}), BY, load={"a": 0.1, "b": 1}
    )
    assert decision.scores == {"a": 0.1, "b": 1}


def test_an_inherited_label_counts_as_for_constraints():
    static = provider("static", "fixed", **{"load-north": 0.3})
    named = metric("load", provider="fixed", query="load-$(cluster.labels.region)")
    spec = {"cloudRef": {"kind": "Cloud", "name": "os"}, "inheritLabels": True}
    region = cloud("os", labels={"region": "north"})
    decision = decide_on(application(), cluster("a", {"load": 1}, spec=spec), region, named, static)
    assert decision.scores == {"a": 0.3}


@pytest.mark.parametrize("source", [BY, metric("load", query=LOAD)], ids=["label", "query"])
def test_clouds_have_no_metric_of_clusters(source):
    wanted = cluster("wanted", status={}, spec={"kubeconfigSecretRef": None})
    view = start_pass(cloud("os", {"load": 1}), cloud("plain"), source, load={"os": 1})
    decision = decide_cluster(wanted, view)
    # They are compared as those without metrics are, so that their clusters can inherit them.
    assert set(decision.chosen) == {"os", "plain"}
    told = {candidate.cluster: candidate.reason for candidate in record(decision, view).candidates}
    assert told["plain"] == ""
    assert told["os"] == (
        "InvalidMetric: 'load' cannot be asked for: "
        "clusters have a value each, but clouds and projects have none"
    )


def test_the_record_has_the_value_of_each_and_says_whose_would_have_mattered():
    view = start_pass(*AB, BY, load={"a": 0.6, "b": 0.4})
    decision_record = record(decide(application(), view), view)
    values = {
        candidate.cluster: candidate.terms[0].value for candidate in decision_record.candidates
    }
    assert values == {"a": 0.6, "b": 0.4}
    assert sorted(decision_record.would_change) == [
        "'b' if 'load' of 'a' were below 0.4; it is 0.6",
        "'b' if 'load' of 'b' were above 0.6; it is 0.4",
    ]


def test_clusters_of_the_same_name_in_other_namespaces_have_values_of_their_own():
    namesake = cluster("a", {"load": 1}, namespace="other")
    view = start_pass(*AB, namesake, BY, load={"a": 0.6, "b": 0.4})
    assert view.clusters(NAMESPACE)[0].measured.weighted == 0.6
    assert view.clusters("other")[0].measured.fault
