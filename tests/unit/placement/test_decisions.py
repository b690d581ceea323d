"""The cases of krake-spec 8 about candidates, scores and moves, by their numbers."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from harbourmaster.placement.decisions import decide
from harbourmaster.placement.passes import Pass
from harbourmaster.placement.snapshot import snapshot_of
from helpers.placing import (
    NOW,
    ONLINE,
    ago,
    application,
    cloud,
    cluster,
    decided,
    decided_all,
    made,
    matched,
    metric,
    reason,
    refs,
    seen,
    world,
)

AB = (cluster("a", {"m": 1}), cluster("b", {"n": 1}))


def refused(app, *clusters, **values):
    """Whether nothing suits; the decision must say so."""
    found = decided(app, *clusters, **values)
    return found.outcome == "NoSuitableTarget" and found.error.startswith("NoSuitableTarget: ")


# Constraints


@pytest.mark.parametrize("text", ["location is not DE", "location not in (DE)"])
def test_c1_c2_a_cluster_without_the_label_never_matches(text):
    assert refused(application(labels=[text]), cluster("a"))
    assert not refused(application(labels=[text]), cluster("a", labels={"location": "SK"}))


@pytest.mark.parametrize("value", [None, []])
def test_c3_c4_no_constraints_are_no_restriction(value):
    app = application(labels=value, metrics=value, resources=value)
    assert decided(app, cluster("a")).chosen == ["a"]


def test_c3_c4_constraints_may_be_missing_at_each_level():
    for spec in ({}, {"constraints": None}, {"constraints": {"cluster": None}}):
        assert decided(made("Application", "app", spec=spec), cluster("a")).chosen == ["a"]


def test_c5_all_constraints_must_hold():
    app = application(labels=["a is b", "c is d"])
    labels = {"a": "b", "c": "x"}
    assert refused(app, cluster("one", labels=labels))
    assert decided(app, cluster("one", labels={**labels, "c": "d"})).chosen == ["one"]


def test_c6_a_keyword_may_be_a_value():
    found = decided(
        application(labels=["location is not"]), cluster("a", labels={"location": "not"})
    )
    assert found.chosen == ["a"]


def test_c7_a_list_with_commas_at_its_end():
    app = application(labels=["location in (DE, SK,,)"])
    clusters = [cluster(name, labels={"location": name}) for name in ("DE", "SK", "FR")]
    assert matched(decided(app, *clusters)) == ["DE", "SK"]


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
    found = decided(application(**{field: [text]}), cluster("a"))
    assert found.outcome == "InvalidConstraint"
    assert found.error.startswith("InvalidConstraint: spec.constraints.cluster.")
    assert "[0]: " in found.error
    assert found.chosen == ()


def test_c15_a_metric_that_the_cluster_lacks_is_not_unequal():
    app = application(metrics=["other != 5"])
    assert refused(app, cluster("a", {"load": 1}), load=0.5, other=0.5)


def test_c18_a_cluster_without_metrics_fails_a_metric_constraint_alone():
    app = application(metrics=["load > 0.4"])
    found = decided(app, cluster("plain"), cluster("good", {"load": 1}), load=0.5)
    assert found.chosen == ["good"]
    assert reason(found, "plain") == (
        "metric constraint 'load greater than 0.4': the metric is missing"
    )


def test_c19_labels_come_before_metrics():
    app = application(labels=["a is b"], metrics=["load > 5"])
    found = decided(app, cluster("plain"))
    assert found.outcome == "NoSuitableTarget"
    assert reason(found, "plain").startswith("label constraint 'a is b'")


def test_c20_custom_resources_are_compared_whole():
    app = application(resources=["a.b"])
    assert refused(app, cluster("one", spec={"customResources": ["a.b.c"]}))
    assert decided(app, cluster("one", spec={"customResources": ["a.b"]})).chosen == ["one"]


def test_custom_resources_are_declared_or_discovered():
    app = application(resources=["shirts.example.com"])
    status = {**ONLINE, "customResources": ["shirts.example.com"]}
    assert decided(app, cluster("one", status=status)).chosen == ["one"]
    assert refused(app, cluster("one", status=status, spec={"discoverCustomResources": False}))


# Candidates and metrics


def test_m1_only_clusters_of_the_same_namespace_count():
    assert refused(application(), cluster("a", namespace="other"))
    assert decided(application(), cluster("a", namespace="other")).error == (
        "NoSuitableTarget: there is no cluster"
    )


def conditions(reachable="True", nodes="True"):
    found = [("Reachable", reachable), ("NodesReady", nodes)]
    return [{"type": name, "status": status, "reason": "Why"} for name, status in found]


@pytest.mark.parametrize(
    "found",
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
def test_m2_a_cluster_that_is_not_ready_gets_nothing(found):
    decision = decided(application(), found, cluster("y"))
    assert decision.chosen == ["y"]
    assert reason(decision, "x")
    assert refused(application(), found)


@pytest.mark.parametrize("state", [{}, {"state": "Online"}, {"state": "FailingMetrics"}])
def test_a_cluster_whose_conditions_are_good_is_ready(state):
    found = cluster("x", status={**state, "conditions": conditions()})
    assert decided(application(), found).chosen == ["x"]


def test_m3_m4_a_missing_metric_takes_its_cluster_out():
    found = decided(application(), cluster("x", {"gone": 1}), cluster("y"))
    assert found.chosen == ["y"]
    assert reason(found, "x") == "UnknownMetric: there is no GlobalMetric 'gone'"
    assert refused(application(), cluster("x", {"gone": 1}))


def test_m5_one_bad_metric_is_enough_and_only_it_is_named():
    found = decided(application(), cluster("x", {"gone": 1, "m": 1}), cluster("y"), m=0.9)
    assert found.chosen == ["y"]
    (target,) = (each.target for each in found.verdicts if each.target.name == "x")
    assert [name for name, _ in target.measured.faults] == ["gone"]


def test_m6_a_missing_provider_takes_its_clusters_out():
    found = decided(application(), cluster("x", {"m": 1}), cluster("y"), metric("m"))
    assert found.chosen == ["y"]
    assert reason(found, "x").startswith("UnknownMetricsProvider: ")


@pytest.mark.parametrize("text", ["HTTP 503", "no answer in 20 s", "2 series", "no data"])
def test_m7_m11_m12_a_provider_that_fails_takes_its_clusters_out(text):
    found = decided(application(), cluster("x", {"m": 1}), cluster("y"), m=text)
    assert found.chosen == ["y"]
    assert reason(found, "x") == f"UnreachableMetricsProvider: {text}"


@pytest.mark.parametrize(("value", "scores"), [(1.01, {}), (1.0, {"x": 1.0}), (0.0, {"x": 0.0})])
def test_m8_bounds_belong_to_the_range(value, scores):
    assert decided(application(), cluster("x", {"m": 1}), m=value).scores == scores


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_m10_a_value_must_be_finite(value):
    found = decided(application(), cluster("x", {"m": 1}), cluster("y"), m=value)
    assert found.chosen == ["y"]
    assert reason(found, "x").startswith("InvalidMetric: ")


@pytest.mark.parametrize(
    ("low", "high"), [(5, 5), (6, 5), (float("nan"), 5), (0, float("inf")), (0, float("nan"))]
)
def test_m13_invalid_bounds_exclude_a_cluster(low, high):
    found = decided(
        application(), cluster("x", {"m": 1}), cluster("y"), metric("m", low=low, high=high), m=5
    )
    assert found.chosen == ["y"]
    assert "max must be above min" in reason(found, "x")


def test_the_widest_bounds_are_supported():
    widest = metric("m", low=-1.7e308, high=1.7e308)
    assert decided(application(), cluster("x", {"m": 1}), widest, m=0).scores == {"x": 0.5}


def test_m14_a_cluster_is_back_in_the_pass_in_which_its_metrics_are():
    status = {
        "state": "FailingMetrics",
        "conditions": [*conditions(), {"type": "MetricsAvailable", "status": "False"}],
    }
    found = decided(application(), cluster("x", {"m": 1}, status=status), cluster("y"), m=0.5)
    assert found.chosen == ["x"]


def test_m15_a_cluster_that_has_no_metrics_any_more_is_not_failing():
    found = decided(application(), cluster("x", status={"state": "FailingMetrics"}))
    assert found.chosen == ["x"]


def test_m16_an_offline_cluster_stays_offline():
    found = decided(application(), cluster("x", {"gone": 1}, status={"state": "Offline"}))
    assert reason(found, "x") == "it is Offline, not Online"


def test_m17_metrics_are_preferred_over_stickiness():
    found = decided(application(on="y"), cluster("x", {"m": 1}), cluster("y"), m=0)
    assert (found.outcome, found.chosen, found.is_elective) == ("Moved", ["x"], True)


def test_m18_zero_weights_exclude_the_cluster():
    found = decided(application(), cluster("x", {"m": 0, "n": 0}), cluster("y"), m=1, n=1)
    assert found.chosen == ["y"]
    text = "InvalidMetric: the weights of m, n add up to 0: one must be above 0"
    assert reason(found, "x") == text


def test_m19_zero_weights_move_no_application():
    found = decided(application(on="x"), cluster("x", {"m": 0}), cluster("y"), m=1)
    assert found.stays
    assert found.scores == {}


@pytest.mark.parametrize("weight", [1e308, float("inf"), float("nan")])
def test_weights_that_cannot_be_added_take_the_cluster_out(weight):
    found = decided(application(), cluster("x", {"m": weight, "n": weight}), cluster("y"), m=1, n=1)
    assert found.chosen == ["y"]


def test_m20_a_global_object_has_no_namespaced_metrics():
    spec = {"metrics": refs({"/m": 1})}
    found = seen(made("GlobalCloud", "g", spec=spec), metric("/m"), m=1)
    (target,) = found.clouds("")
    assert target.measured.fault.startswith("InvalidMetric: ")


@pytest.mark.parametrize(("rule", "stays"), [("Stay", True), ("Move", False)])
def test_m21_missing_metrics_move_applications_only_if_set(rule, stays):
    found = decided(
        application(on="x"),
        *(cluster("x", {"m": 1}), cluster("y"), cluster("z", {"n": 1})),
        rules={"on_metrics_loss": rule},
        m="no answer",
        n="no answer",
    )
    assert found.stays is stays
    assert list(found.chosen) == (["x"] if stays else ["y"])
    assert not found.is_elective
    assert reason(found, "x") == "UnreachableMetricsProvider: no answer"


@pytest.mark.parametrize("change", [{"labels": ["a is b"]}, {"resources": ["a.b"]}])
def test_applications_without_metrics_leave_a_cluster_that_does_not_match(change):
    good = cluster("y", labels={"a": "b"}, spec={"customResources": ["a.b"]})
    found = decided(application(on="x", **change), cluster("x", {"m": 1}), good, m="no answer")
    assert found.chosen == ["y"]


def test_applications_without_metrics_leave_a_cluster_that_is_being_deleted():
    gone = cluster("x", {"m": 1}, deletionTimestamp=ago(1))
    assert decided(application(on="x"), gone, cluster("y"), m="no answer").chosen == ["y"]


def test_applications_stay_if_a_metric_constraint_cannot_be_evaluated():
    app = application(on="x", metrics=["m > 0.5"])
    found = decided(app, cluster("x", {"m": 1}), cluster("y", {"n": 1}), m="no answer", n=1)
    assert found.stays


def test_metrics_of_a_namespace_and_global_ones_are_two():
    app = application()
    objects = (
        cluster("x", {"m": 1}),
        made("Cluster", "y", spec={"metrics": refs({"/m": 1})}, status=ONLINE),
    )
    readings = {("", "m"): 0.2, ("ns", "m"): 0.8}
    found = decide(app, Pass(snapshot_of([*objects, metric("m"), metric("/m")], readings), NOW))
    assert found.scores == {"x": 0.2, "y": 0.8}


def test_static_values_stand_in_their_provider():
    static = {"type": "static", "static": {"metrics": {"m": 0.25}}}
    provider = made("GlobalMetricsProvider", "prom", spec=static)
    objects = (cluster("x", {"m": 1}), cluster("y", {"n": 1}), metric("m"), metric("n"), provider)
    found = decided(application(), *objects)
    assert found.scores == {"x": 0.25}
    assert reason(found, "y") == "InvalidMetric: 'prom' has no value 'n'"


@pytest.mark.parametrize(
    "spec", [{"type": "prometheus", "static": {"metrics": {"m": 1}}}, {"type": "static"}]
)
def test_a_provider_that_was_not_asked_yet_has_no_value(spec):
    provider = made("GlobalMetricsProvider", "prom", spec=spec)
    found = decided(application(), cluster("x", {"m": 1}), metric("m"), provider)
    assert reason(found, "x") == "UnreachableMetricsProvider: there is no value of 'm' yet"


# Inheritance

CLOUD = {"kind": "Cloud", "name": "os"}


def test_labels_of_the_cloud_win():
    spec = {"cloudRef": CLOUD, "inheritLabels": True}
    there = cloud("os", labels={"a": "cloud", "b": "cloud"})
    app = application(labels=["a is cloud", "b is cloud", "c is own"])
    found = decided(app, cluster("x", spec=spec, labels={"a": "own", "c": "own"}), there)
    assert found.chosen == ["x"]


@pytest.mark.parametrize("kind", ["Cloud", "GlobalCloud"])
def test_a_cluster_inherits_what_its_constraints_name(kind):
    wanted = {"labels": ["location is DE"], "metrics": ["cost > 0.5"]}
    found = cluster(
        "x",
        spec={"constraints": {"cloud": wanted}},
        status={**ONLINE, "scheduledTo": {"kind": kind, "name": "os"}},
    )
    weights = {"cost": 1, "green": 1}
    there = cloud("os", weights, kind=kind, labels={"location": "DE", "other": "x"})
    app = application(labels=["location is DE"], metrics=["cost > 0.5"])
    decision = decided(app, found, there, cost=0.9, green=0.1)
    assert decision.scores == {"x": 0.9}
    assert refused(application(labels=["other is x"]), found, there, cost=0.9, green=0.1)


def test_a_missing_cloud_gives_nothing():
    spec = {"cloudRef": CLOUD, "inheritMetrics": True, "inheritLabels": True}
    assert decided(application(), cluster("x", spec=spec)).chosen == ["x"]


# Stickiness and ties


def test_s6_equal_clusters_share_the_applications():
    clusters = [cluster(name) for name in "abc"]
    apps = [application(f"app-{number}") for number in range(999)]
    found = decided_all(apps, *clusters)
    assert all(list(each.chosen) == ["a", "b", "c"] for each in found)
    counts = Counter(each.target.name for each in found)
    assert all(250 < counts[name] < 420 for name in "abc")


def test_s6_the_draw_is_the_same_each_time_and_another_by_its_seed():
    clusters = [cluster(name) for name in "abc"]
    draws = {
        seed: {decided(application(), *clusters, rules={"seed": seed}).target.name for _ in "12"}
        for seed in map(str, range(30))
    }
    assert all(len(each) == 1 for each in draws.values())
    assert set.union(*draws.values()) == {"a", "b", "c"}


def test_s7_a_cluster_of_another_namespace_or_uid_is_another_one():
    for reference in ({"name": "a", "namespace": "other"}, {"name": "a", "uid": "before"}):
        app = application(status={"scheduledTo": reference, "scheduledTime": ago(3600)})
        found = decided(app, *AB, m=0.5, n=0.5)
        assert found.scores == {"a": 0.5, "b": 0.5}
        assert list(found.chosen) == ["a", "b"]


# Moves


@pytest.mark.parametrize(("seconds", "on"), [(59, "a"), (60, "b"), (61, "b")])
def test_r1_r2_an_application_moves_to_a_better_cluster_after_the_hold_off(seconds, on):
    found = decided(application(on="a", scheduled=seconds), *AB, m=0.1, n=0.9)
    assert list(found.chosen) == [on]
    if on == "a":
        assert found.scores == {}
        assert found.reason == f"it must not move again until {ago(-1)}"
    else:
        assert found.scores == pytest.approx({"a": 0.2 / 1.1, "b": 0.9})


MOVE = {"on_unreachable": "Move"}


def reached(status, reason):
    return {"type": "Reachable", "status": status, "reason": reason, "message": "why"}


NO_ANSWER = {"state": "Offline", "conditions": [reached("False", "NoAnswer")]}
NODE_NOT_READY = {
    "state": "NotReady",
    "conditions": [
        reached("True", "Answers"),
        {"type": "NodesReady", "status": "False", "reason": "NodeNotReady", "message": "node n"},
    ],
}


@pytest.mark.parametrize("status", [{"state": "Offline"}, NO_ANSWER])
def test_an_unreachable_cluster_keeps_its_applications(status):
    found = decided(application(on="a"), cluster("a", status=status), cluster("b"))
    assert found.stays
    assert found.outcome == "Stayed"
    assert found.reason.startswith("'a' is excluded (it is ")
    assert found.reason.endswith("; it stays there (placement.onUnreachable: Stay)")
    assert decided(application(), cluster("a", status=status), cluster("b")).chosen == ["b"]


@pytest.mark.parametrize("status", [{"state": "Offline"}, NO_ANSWER])
def test_r3_an_unreachable_cluster_is_left_at_once_where_that_is_set(status):
    clusters = (cluster("a", status=status), cluster("b"))
    found = decided(application(on="a", scheduled=5), *clusters, rules=MOVE)
    assert (found.outcome, found.chosen, found.is_elective) == ("Moved", ["b"], False)
    assert found.reason.startswith("'a' is excluded (it is ")


@pytest.mark.parametrize("rules", [{}, MOVE])
@pytest.mark.parametrize(
    "status",
    [
        {"state": "Offline", "conditions": [reached("False", "InvalidCredentials")]},
        {"state": "Connecting", "conditions": [reached("Unknown", "Connecting")]},
        {"state": "Connecting"},
        {"state": "Pending"},
        {},
    ],
)
def test_only_silence_is_a_failover_whatever_the_setting(rules, status):
    clusters = (cluster("a", status=status), cluster("b"))
    assert decided(application(on="a"), *clusters, rules=rules).stays
    assert decided(application(), *clusters, rules=rules).chosen == ["b"]


@pytest.mark.parametrize("rules", [{}, MOVE])
@pytest.mark.parametrize(
    "change",
    [{"spec": {"unschedulable": True}}, {"deletionTimestamp": ago(1)}, {"labels": {"x": "z"}}],
)
def test_people_can_send_applications_away_from_an_unreachable_cluster(rules, change):
    app = application(on="a", labels=["x is y"])
    silent = cluster("a", **{"status": NO_ANSWER, "labels": {"x": "y"}, **change})
    found = decided(app, silent, cluster("b", labels={"x": "y"}), rules=rules)
    assert (found.outcome, found.chosen) == ("Moved", ["b"])


@pytest.mark.parametrize("rules", [{}, MOVE])
@pytest.mark.parametrize("status", [{"state": "NotReady"}, {"state": "Unhealthy"}, NODE_NOT_READY])
def test_nodes_that_are_not_ready_stop_new_placements_only(rules, status):
    sick = cluster("a", {"m": 1}, status=status)
    found = decided(application(on="a"), sick, cluster("b", {"n": 1}), rules=rules, m=0.5, n=0.5)
    assert found.stays
    assert found.scores == pytest.approx({"a": 0.6 / 1.1, "b": 0.5})
    alone = decided(application(on="a"), sick, rules=rules, m=0.5)
    assert (alone.outcome, alone.stays) == ("Stayed", True)
    new = decided(application(), sick, cluster("b", {"n": 1}), rules=rules, m=0.9, n=0.1)
    assert new.chosen == ["b"]
    assert reason(new, "a").startswith("it")


def test_unready_nodes_do_not_prevent_moves():
    sick = cluster("a", {"m": 1}, status=NODE_NOT_READY)
    better = decided(application(on="a"), sick, cluster("b", {"n": 1}), m=0.1, n=0.9)
    assert (better.outcome, better.chosen, better.is_elective) == ("Moved", ["b"], True)
    limited = application(on="a", metrics=["n > 0.5"])
    found = decided(limited, sick, cluster("b", {"n": 1}), m=0.9, n=0.6)
    assert (found.outcome, found.chosen, found.is_elective) == ("Moved", ["b"], False)


CLAIM = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
STATEFUL = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "db"},
    "spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}}]},
}
RECREATE = {"placement.harbourmaster.dev/migration-volumes": "Recreate"}


@pytest.mark.parametrize("manifest", [CLAIM, STATEFUL], ids=["claim", "template"])
def test_no_metric_and_no_outage_moves_an_application_with_volumes(manifest):
    app = application(on="a", manifests=[manifest])
    better = decided(app, *AB, m=0.1, n=0.9)
    assert (better.outcome, better.stays) == ("Stayed", True)
    assert better.scores == pytest.approx({"a": 0.2 / 1.1, "b": 0.9})
    kind = manifest["kind"]
    assert better.reason == (
        f"'b' has the best score, 0.9, but a move would lose the volumes of its {kind}: to allow "
        "it, set the annotation placement.harbourmaster.dev/migration-volumes to Recreate"
    )
    limited = application(on="a", manifests=[manifest], metrics=["n > 0.5"])
    assert decided(limited, *AB, m=0.1, n=0.9).stays
    lost = {"on_metrics_loss": "Move"}
    assert decided(app, *AB, rules=lost, m="no answer", n=0.9).stays
    silent = (cluster("a", status=NO_ANSWER), cluster("b"))
    assert decided(app, *silent, rules=MOVE).stays


@pytest.mark.parametrize("manifest", [CLAIM, STATEFUL], ids=["claim", "template"])
def test_an_application_with_volumes_moves_where_that_is_allowed_or_wanted(manifest):
    allowed = application(on="a", manifests=[manifest], annotations=RECREATE)
    assert decided(allowed, *AB, m=0.1, n=0.9).chosen == ["b"]
    silent = (cluster("a", status=NO_ANSWER), cluster("b"))
    assert decided(allowed, *silent, rules=MOVE).chosen == ["b"]
    wanted = application(on="a", manifests=[manifest], labels=["x is y"])
    assert decided(wanted, cluster("a"), cluster("b", labels={"x": "y"})).chosen == ["b"]
    assert decided(application(manifests=[manifest]), *AB, m=0.1, n=0.9).chosen == ["b"]


@pytest.mark.parametrize(
    "manifest",
    [
        {**STATEFUL, "spec": {}},
        {**STATEFUL, "spec": {"volumeClaimTemplates": []}},
        {**STATEFUL, "spec": "nonsense"},
        {**STATEFUL, "apiVersion": "example.com/v1"},
        {**CLAIM, "apiVersion": "example.com/v1"},
        {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}, "spec": [1]},
        {"kind": 5, "spec": None},
        {},
    ],
)
def test_manifests_without_volumes_may_move(manifest):
    app = application(on="a", manifests=[manifest])
    assert decided(app, *AB, m=0.1, n=0.9).chosen == ["b"]


def test_r4_a_cluster_that_does_not_match_any_more_is_left_at_once():
    app = application(on="a", scheduled=5, labels=["x is y"], generation=2)
    found = decided(app, cluster("a"), cluster("b", labels={"x": "y"}))
    assert found.chosen == ["b"]


def test_a_deleted_cluster_is_left_at_once():
    found = decided(application(on="gone", scheduled=5), cluster("b"))
    assert found.chosen == ["b"]
    assert found.reason.startswith("'gone' is excluded (it no longer exists)")


def test_r9_an_application_that_may_not_move_stays():
    found = decided(application(on="a", migration=False), *AB, m=0.1, n=0.9)
    assert found.stays
    assert list(found.chosen) == ["a"]


def test_r10_an_application_that_may_not_move_is_placed():
    assert decided(application(migration=False), *AB, m=0.1, n=0.9).chosen == ["b"]


@pytest.mark.parametrize("clusters", [[], [cluster("a", status={"state": "Offline"})]])
def test_r12_an_application_that_may_not_move_stays_on_a_missing_cluster(clusters):
    found = decided(application(on="a", migration=False), *clusters, cluster("b"))
    assert found.stays
    assert list(found.chosen) == ["a"]


def test_r13_after_a_failed_move_the_application_stays_for_a_while():
    app = application(on="a", status={"suspendedUntil": ago(-100)})
    assert decided(app, *AB, m=0.1, n=0.9).stays
    later = NOW + timedelta(seconds=100)
    assert decided(app, *AB, now=later, m=0.1, n=0.9).chosen == ["b"]


@pytest.mark.parametrize(("rule", "on"), [(True, "a"), (False, "b")])
def test_the_hold_off_may_leave_out_changed_applications(rule, on):
    app = application(on="a", scheduled=5, generation=2)
    found = decided(app, *AB, rules={"hold_off_on_update": rule}, m=0.1, n=0.9)
    assert list(found.chosen) == [on]
    same = application(on="a", scheduled=5)
    assert decided(same, *AB, rules={"hold_off_on_update": rule}, m=0.1, n=0.9).stays


@pytest.mark.parametrize("time", ["", "nonsense", ago(-86400)])
def test_an_invalid_time_of_the_last_move_is_ignored(time):
    app = application(on="a", status={"scheduledTime": time})
    assert decided(app, *AB, m=0.1, n=0.9).chosen == ["b"]


def test_r21_one_bad_application_is_the_only_one():
    apps = [application(f"app-{number}") for number in range(99)]
    poison = application("poison", metrics=["load > abc"])
    found = decided_all([*apps[:50], poison, *apps[50:]], cluster("a"))
    assert [each.outcome for each in found].count("Placed") == 99
    assert found[50].outcome == "InvalidConstraint"


# Limits


def test_only_so_many_move_to_one_cluster_in_a_pass():
    apps = [application(f"app-{number}", on="a") for number in range(8)]
    found = decided_all(apps, *AB, rules={"moves_per_target": 3}, m=0.1, n=0.9)
    assert [each.outcome for each in found] == ["Moved"] * 3 + ["Stayed"] * 5
    assert found[3].reason.endswith("but this pass allows no more moves there")
    free = decided_all(apps, *AB, rules={"moves_per_target": 0}, m=0.1, n=0.9)
    assert [each.outcome for each in free] == ["Moved"] * 8


def test_who_must_move_moves_whatever_the_limit_and_counts():
    clusters = (
        cluster("a", status={"state": "Offline"}),
        cluster("b", {"n": 1}),
        cluster("c", {"m": 1}),
    )
    apps = [application(f"app-{number}", on="a") for number in range(5)]
    apps += [application("late", on="c")]
    found = decided_all(apps, *clusters, rules={"moves_per_target": 2, **MOVE}, m=0.1, n=0.9)
    assert [each.outcome for each in found] == ["Moved"] * 5 + ["Stayed"]


def test_first_placements_are_no_moves():
    apps = [application(f"app-{number}") for number in range(5)]
    found = decided_all(apps, cluster("a"), rules={"moves_per_target": 2})
    assert {each.outcome for each in found} == {"Placed"}


def test_a_tie_of_full_and_open_clusters_goes_to_the_open_ones():
    clusters = (cluster("a", {"m": 1}), cluster("b", {"n": 1}), cluster("c", {"n": 1}))
    apps = [application(f"app-{number}", on="a") for number in range(6)]
    found = decided_all(apps, *clusters, rules={"moves_per_target": 3}, m=0.1, n=0.9)
    assert Counter(each.target.name for each in found) == {"b": 3, "c": 3}


@pytest.mark.parametrize(
    ("moves", "limit", "outcome"),
    [([10, 20], 2, "Stayed"), ([10, 3601], 2, "Moved"), ([10, 20], 0, "Moved"), ([10], 2, "Moved")],
)
def test_an_application_moves_only_so_often_in_an_hour(moves, limit, outcome):
    app = application(on="a", status={"recentMoves": [ago(each) for each in moves]})
    found = decided(app, *AB, rules={"moves_per_application": limit}, m=0.1, n=0.9)
    assert found.outcome == outcome


def test_an_application_that_has_moved_too_often_still_leaves_what_is_gone():
    app = application(on="gone", status={"recentMoves": [ago(10)] * 5})
    assert decided(app, *AB, rules={"moves_per_application": 1}, m=0.1, n=0.9).outcome == "Moved"


# What is not decided


@pytest.mark.parametrize(
    ("app", "text"),
    [
        (application(deletionTimestamp=ago(1)), "it is being deleted"),
        (application(status={"phase": "Failed"}), "it has failed"),
        (application(on="a", status={"phase": "Failed"}), "it has failed"),
        (application(status={"nextRetryTime": ago(-5)}), "the next try is at"),
    ],
    ids=["r17 deleted", "r16 failed", "r16 failed later", "r15 waits"],
)
def test_some_are_not_decided_about(app, text):
    found = decided(app, *AB, m=0.1, n=0.9)
    assert found.outcome == "Waiting"
    assert found.error.startswith(text)
    assert found.target is None
    assert found.stays is (app.status.scheduled_to is not None)
    assert list(found.chosen) == (["a"] if found.stays else [])


def test_m22_one_reading_serves_constraints_and_ranking_of_all():
    view = seen(*AB, m=0.1, n=0.9)
    one = decide(application("one", metrics=["n > 0.5"]), view)
    two = decide(application("two"), view)
    assert one.scores == {"b": 0.9}
    assert two.scores == {"a": 0.1, "b": 0.9}


def test_a_world_is_not_changed_by_decisions():
    before, after = (world(*AB, m=0.1, n=0.9) for _ in "12")
    decide(application(on="a"), Pass(after, NOW))
    assert before == after


def test_a_weight_that_stickiness_undoes_is_left_as_it_is():
    found = decided(
        application(on="a"), cluster("a", {"m": -0.1}), cluster("b", {"n": 1}), m=0.5, n=0
    )
    assert found.scores == {"a": 0.5, "b": 0}


@pytest.mark.parametrize(
    ("name", "kind"), [("m", "GlobalMetricsProvider"), ("/m", "MetricsProvider")]
)
def test_a_missing_provider_is_named_by_its_kind(name, kind):
    found = decided(application(), cluster("x", {name: 1}), metric(name))
    text = f"UnknownMetricsProvider: there is no {kind} 'prom', which has 'm'"
    assert reason(found, "x") == text
    found = decided(application(), cluster("x", {name: 1}))
    text = f"UnknownMetric: there is no {kind.removesuffix('sProvider')} 'm'"
    assert reason(found, "x") == text


def test_a_cluster_without_a_kubeconfig_says_so():
    for status in ({}, {"state": "Pending"}):
        found = decided(
            application(), cluster("x", status=status, spec={"kubeconfigSecretRef": None})
        )
        assert reason(found, "x") == "it has no kubeconfig yet"
    assert (
        reason(decided(application(), cluster("x", status={})), "x") == "it is Pending, not Online"
    )


def test_the_most_frequent_reasons_come_first():
    states = ("Offline", "Offline", "NotReady", "Unhealthy", "Connecting")
    clusters = [
        cluster(f"c{number}", status={"state": state}) for number, state in enumerate(states)
    ]
    found = decided(application(), *clusters)
    assert found.error.startswith(
        "NoSuitableTarget: no suitable cluster among 5: 2 times it is Offline, not Online; 1 times "
    )
    assert found.error.endswith("; 1 more reasons")


def test_reasons_say_what_was_found():
    found = decided(application(metrics=["m > 0.5"]), cluster("x", {"m": 1}), m=0.25)
    text = "metric constraint 'm greater than 0.5': the value is 0.25"
    assert reason(found, "x") == text
    bare = [{"type": "Reachable", "status": "False"}]
    found = decided(application(), cluster("x", status={"conditions": bare}))
    assert reason(found, "x") == "it is not reachable"
    told = [{**bare[0], "reason": "NoAnswer", "message": "timed out"}]
    found = decided(application(), cluster("x", status={"conditions": told}))
    assert reason(found, "x") == "it is not reachable: timed out"


def test_of_two_metrics_of_one_name_a_constraint_means_the_own_one():
    spec = {"cloudRef": CLOUD, "inheritMetrics": True}
    spec["metrics"] = refs({"/m": 1})
    found = cluster("x", spec=spec)
    objects = (found, cloud("os", {"m": 1}), metric("m"), metric("/m"))
    readings = {("", "m"): 0.2, ("ns", "m"): 0.8}
    for text, matches in (("m > 0.5", ["x"]), ("m < 0.5", [])):
        view = Pass(snapshot_of(objects, readings), NOW)
        assert matched(decide(application(metrics=[text]), view)) == matches
