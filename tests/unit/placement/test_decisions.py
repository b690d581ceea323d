"""The cases of krake-spec 8 about constraints, candidates and ties, by their numbers."""

from __future__ import annotations

from collections import Counter

import pytest

from harbourmaster.placement.application_decisions import decide
from harbourmaster.placement.passes import Pass
from harbourmaster.placement.rules import Rules
from harbourmaster.placement.snapshot import snapshot_of
from helpers.placing import (
    AB,
    NOW,
    ONLINE,
    ago,
    application,
    cloud,
    cluster,
    conditions,
    decide_on,
    decided_all,
    is_refused,
    make_object,
    matching_targets,
    metric,
    reason,
    refs,
    world,
)

# Constraints


@pytest.mark.parametrize("text", ["location is not DE", "location not in (DE)"])
def test_c1_c2_a_cluster_without_the_label_never_matches(text):
    assert is_refused(application(labels=[text]), cluster("a"))
    assert not is_refused(application(labels=[text]), cluster("a", labels={"location": "SK"}))


@pytest.mark.parametrize("value", [None, []])
def test_c3_c4_no_constraints_are_no_restriction(value):
    app = application(labels=value, metrics=value, resources=value)
    assert decide_on(app, cluster("a")).chosen == ["a"]


def test_c3_c4_constraints_may_be_missing_at_each_level():
    for spec in ({}, {"constraints": None}, {"constraints": {"cluster": None}}):
        assert decide_on(make_object("Application", "app", spec=spec), cluster("a")).chosen == ["a"]


def test_c5_all_constraints_must_hold():
    app = application(labels=["a is b", "c is d"])
    labels = {"a": "b", "c": "x"}
    assert is_refused(app, cluster("one", labels=labels))
    assert decide_on(app, cluster("one", labels={**labels, "c": "d"})).chosen == ["one"]


def test_c6_a_keyword_may_be_a_value():
    decision = decide_on(
        application(labels=["location is not"]), cluster("a", labels={"location": "not"})
    )
    assert decision.chosen == ["a"]


def test_c7_a_list_with_commas_at_its_end():
    app = application(labels=["location in (DE, SK,,)"])
    clusters = [cluster(name, labels={"location": name}) for name in ("DE", "SK", "FR")]
    assert matching_targets(decide_on(app, *clusters)) == ["DE", "SK"]


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("labels", "location IS DE"),
        ("labels", "location is 'DE'"),
        ("metrics", "load > abc"),
        ("resources", "shirts"),
    ],
    ids=["c8", "c9", "c14", "custom resource"],
)
def test_an_invalid_constraint_is_a_decision_not_an_exception(field, text):
    decision = decide_on(application(**{field: [text]}), cluster("a"))
    assert decision.outcome == "InvalidConstraint"
    assert decision.error.startswith("InvalidConstraint: spec.constraints.cluster.")
    assert "[0]: " in decision.error
    assert decision.chosen == ()


def test_c15_a_metric_that_the_cluster_lacks_is_not_unequal():
    app = application(metrics=["other != 5"])
    assert is_refused(app, cluster("a", {"load": 1}), load=0.5, other=0.5)


def test_c18_a_cluster_without_metrics_fails_a_metric_constraint_alone():
    app = application(metrics=["load > 0.4"])
    decision = decide_on(app, cluster("plain"), cluster("good", {"load": 1}), load=0.5)
    assert decision.chosen == ["good"]
    assert reason(decision, "plain") == (
        "metric constraint 'load greater than 0.4': the metric is missing"
    )


def test_c19_labels_come_before_metrics():
    app = application(labels=["a is b"], metrics=["load > 5"])
    decision = decide_on(app, cluster("plain"))
    assert decision.outcome == "NoSuitableTarget"
    assert reason(decision, "plain").startswith("label constraint 'a is b'")


def test_c20_custom_resources_are_compared_whole():
    """They are compared as text (krake-spec 2.3)."""
    app = application(resources=["a.b"])
    assert is_refused(app, cluster("one", spec={"customResources": ["a.b.c"]}))
    assert decide_on(app, cluster("one", spec={"customResources": ["a.b"]})).chosen == ["one"]


def test_custom_resources_are_declared_or_discovered():
    app = application(resources=["shirts.example.com"])
    status = {**ONLINE, "customResources": ["shirts.example.com"]}
    assert decide_on(app, cluster("one", status=status)).chosen == ["one"]
    assert is_refused(app, cluster("one", status=status, spec={"discoverCustomResources": False}))


# Candidates


def test_m1_only_clusters_of_the_same_namespace_count():
    assert is_refused(application(), cluster("a", namespace="other"))
    assert decide_on(application(), cluster("a", namespace="other")).error == (
        "NoSuitableTarget: there is no cluster in its namespace, and others do not count"
    )


@pytest.mark.parametrize(
    "unready",
    [
        *(
            cluster("x", status={"state": state})
            for state in ("Offline", "Connecting", "Unhealthy", "NotReady", "Pending")
        ),
        cluster("x", status={}),
        cluster("x", status={}, spec={"kubeconfigSecretRef": None}),
        cluster("x", deletionTimestamp=ago(1)),
        cluster("x", spec={"unschedulable": True}),
        cluster("x", status={"conditions": conditions(reachable="False")}),
        cluster("x", status={"conditions": conditions(reachable="Unknown")}),
        cluster("x", status={"conditions": conditions(nodes="False")}),
        cluster("x", status={"state": "Online", "conditions": conditions(nodes="False")}),
        cluster("x", status={"state": "Connecting", "conditions": conditions()}),
    ],
)
def test_m2_a_cluster_that_is_not_ready_gets_nothing(unready):
    decision = decide_on(application(), unready, cluster("y"))
    assert decision.chosen == ["y"]
    assert reason(decision, "x")
    assert is_refused(application(), unready)


@pytest.mark.parametrize("state", [{}, {"state": "Online"}, {"state": "FailingMetrics"}])
def test_a_cluster_whose_conditions_are_good_is_ready(state):
    ready = cluster("x", status={**state, "conditions": conditions()})
    assert decide_on(application(), ready).chosen == ["x"]


# Inheritance

CLOUD = {"kind": "Cloud", "name": "os"}


def test_labels_of_the_cloud_win():
    """A cluster inherits from its cloud (krake-spec 3.8)."""
    spec = {"cloudRef": CLOUD, "inheritLabels": True}
    there = cloud("os", labels={"a": "cloud", "b": "cloud"})
    app = application(labels=["a is cloud", "b is cloud", "c is own"])
    decision = decide_on(app, cluster("x", spec=spec, labels={"a": "own", "c": "own"}), there)
    assert decision.chosen == ["x"]


@pytest.mark.parametrize("kind", ["Cloud", "GlobalCloud"])
def test_a_cluster_inherits_what_its_constraints_name(kind):
    wanted = {"labels": ["location is DE"], "metrics": ["cost > 0.5"]}
    inheriting = cluster(
        "x",
        spec={"constraints": {"cloud": wanted}},
        status={**ONLINE, "scheduledTo": {"kind": kind, "name": "os"}},
    )
    weights = {"cost": 1, "green": 1}
    there = cloud("os", weights, kind=kind, labels={"location": "DE", "other": "x"})
    app = application(labels=["location is DE"], metrics=["cost > 0.5"])
    decision = decide_on(app, inheriting, there, cost=0.9, green=0.1)
    assert decision.scores == {"x": 0.9}
    assert is_refused(application(labels=["other is x"]), inheriting, there, cost=0.9, green=0.1)


def test_a_missing_cloud_gives_nothing():
    spec = {"cloudRef": CLOUD, "inheritMetrics": True, "inheritLabels": True}
    assert decide_on(application(), cluster("x", spec=spec)).chosen == ["x"]


# Stickiness and ties


def test_s6_equal_clusters_share_the_applications():
    clusters = [cluster(name) for name in "abc"]
    apps = [application(f"app-{number}") for number in range(999)]
    decisions = decided_all(apps, *clusters)
    assert all(list(decision.chosen) == ["a", "b", "c"] for decision in decisions)
    counts = Counter(decision.target.name for decision in decisions)
    assert all(250 < counts[name] < 420 for name in "abc")


def test_s6_the_draw_is_the_same_each_time_and_another_by_its_seed():
    clusters = [cluster(name) for name in "abc"]
    draws = {
        seed: {decide_on(application(), *clusters, rules={"seed": seed}).target.name for _ in "12"}
        for seed in map(str, range(30))
    }
    assert all(len(draw) == 1 for draw in draws.values())
    assert set.union(*draws.values()) == {"a", "b", "c"}


def test_s7_a_cluster_of_another_namespace_or_uid_is_another_one():
    for reference in ({"name": "a", "namespace": "other"}, {"name": "a", "uid": "before"}):
        app = application(status={"scheduledTo": reference, "scheduledTime": ago(3600)})
        decision = decide_on(app, *AB, m=0.5, n=0.5)
        assert decision.scores == {"a": 0.5, "b": 0.5}
        assert list(decision.chosen) == ["a", "b"]


# What is not decided


@pytest.mark.parametrize(
    ("app", "text"),
    [
        (application(deletionTimestamp=ago(1)), "it is being deleted"),
        (application(status={"nextRetryTime": ago(-5)}), "the next try is at"),
    ],
    ids=["r17 deleted", "r15 waits"],
)
def test_some_are_not_decided_about(app, text):
    decision = decide_on(app, *AB, m=0.1, n=0.9)
    assert decision.outcome == "Waiting"
    assert decision.error.startswith(text)
    assert decision.target is None
    assert decision.stays is (app.status.scheduled_to is not None)
    assert list(decision.chosen) == (["a"] if decision.stays else [])


def test_a_world_is_not_changed_by_decisions():
    before, after = (world(*AB, m=0.1, n=0.9) for _ in "12")
    decide(application(on="a"), Pass(after, NOW))
    assert before == after


def test_a_weight_that_stickiness_undoes_is_left_as_it_is():
    decision = decide_on(
        application(on="a"), cluster("a", {"m": -0.1}), cluster("b", {"n": 1}), m=0.5, n=0
    )
    assert decision.scores == {"a": 0.5, "b": 0}


def test_a_cluster_without_a_kubeconfig_says_so():
    for status in ({}, {"state": "Pending"}):
        decision = decide_on(
            application(), cluster("x", status=status, spec={"kubeconfigSecretRef": None})
        )
        assert reason(decision, "x") == "it has no kubeconfig yet"
    assert (
        reason(decide_on(application(), cluster("x", status={})), "x")
        == "it is Pending, not Online"
    )


def test_the_most_frequent_reasons_come_first():
    states = ("Offline", "Offline", "NotReady", "Unhealthy", "Connecting")
    clusters = [
        cluster(f"c{number}", status={"state": state}) for number, state in enumerate(states)
    ]
    decision = decide_on(application(), *clusters)
    assert decision.error.startswith(
        "NoSuitableTarget: no suitable cluster among 5: 2 times it is Offline, not Online; 1 times "
    )
    assert decision.error.endswith("; 1 more reasons")


def test_reasons_say_what_was_found():
    decision = decide_on(application(metrics=["m > 0.5"]), cluster("x", {"m": 1}), m=0.25)
    text = "metric constraint 'm greater than 0.5': the value is 0.25"
    assert reason(decision, "x") == text
    bare = [{"type": "Reachable", "status": "False"}]
    decision = decide_on(application(), cluster("x", status={"conditions": bare}))
    assert reason(decision, "x") == "it is not reachable"
    told = [{**bare[0], "reason": "NoAnswer", "message": "timed out"}]
    decision = decide_on(application(), cluster("x", status={"conditions": told}))
    assert reason(decision, "x") == "it is not reachable: timed out"


def test_of_two_metrics_of_one_name_a_constraint_means_the_own_one():
    spec = {"cloudRef": CLOUD, "inheritMetrics": True}
    spec["metrics"] = refs({"/m": 1})
    refused_cluster = cluster("x", spec=spec)
    objects = (refused_cluster, cloud("os", {"m": 1}), metric("m"), metric("/m"))
    readings = {("", "m"): 0.2, ("ns", "m"): 0.8}
    for text, matches in (("m > 0.5", ["x"]), ("m < 0.5", [])):
        view = Pass(snapshot_of(objects, readings), NOW)
        assert matching_targets(decide(application(metrics=[text]), view)) == matches


def test_the_defaults_are_those_of_krake():
    """Only those that concern decisions (krake-spec 6.1)."""
    rules = Rules()
    assert (rules.reschedule_after, rules.stickiness) == (60, 0.1)
