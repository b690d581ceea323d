"""The cases of krake-spec 8 about metrics, bounds, weights and providers (krake-spec 3.9)."""

from __future__ import annotations

import pytest

from harbourmaster.placement.application_decisions import decide
from harbourmaster.placement.passes import Pass
from harbourmaster.placement.snapshot import snapshot_of
from helpers.placing import (
    AB,
    NOW,
    ONLINE,
    ago,
    application,
    cluster,
    conditions,
    decide_on,
    is_refused,
    make_object,
    metric,
    reason,
    refs,
    start_pass,
)


def test_m3_m4_a_missing_metric_takes_its_cluster_out():
    decision = decide_on(application(), cluster("x", {"gone": 1}), cluster("y"))
    assert decision.chosen == ["y"]
    assert reason(decision, "x") == "UnknownMetric: there is no GlobalMetric 'gone'"
    assert is_refused(application(), cluster("x", {"gone": 1}))


def test_a_metric_of_the_namespace_that_is_taken_for_a_global_one_is_named():
    spec = {"min": 0, "max": 1, "provider": {"name": "p", "metric": "m"}}
    own = make_object("Metric", "m", spec=spec)
    decision = decide_on(application(), cluster("x", {"m": 1}), cluster("y"), own)
    assert reason(decision, "x").endswith("'m', but a Metric: set scope: Namespaced")


def test_m5_one_bad_metric_is_enough_and_only_it_is_named():
    decision = decide_on(application(), cluster("x", {"gone": 1, "m": 1}), cluster("y"), m=0.9)
    assert decision.chosen == ["y"]
    (target,) = (verdict.target for verdict in decision.verdicts if verdict.target.name == "x")
    assert [name for name, _ in target.measured.faults] == ["gone"]


def test_m6_a_missing_provider_takes_its_clusters_out():
    decision = decide_on(application(), cluster("x", {"m": 1}), cluster("y"), metric("m"))
    assert decision.chosen == ["y"]
    assert reason(decision, "x").startswith("UnknownMetricsProvider: ")


@pytest.mark.parametrize("text", ["HTTP 503", "no answer in 20 s", "2 series", "no data"])
def test_m7_m11_m12_a_provider_that_fails_takes_its_clusters_out(text):
    decision = decide_on(application(), cluster("x", {"m": 1}), cluster("y"), m=text)
    assert decision.chosen == ["y"]
    assert reason(decision, "x") == f"UnreachableMetricsProvider: {text}"


@pytest.mark.parametrize(("value", "scores"), [(1.01, {}), (1.0, {"x": 1.0}), (0.0, {"x": 0.0})])
def test_m8_bounds_belong_to_the_range(value, scores):
    assert decide_on(application(), cluster("x", {"m": 1}), m=value).scores == scores


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_m10_a_value_must_be_finite(value):
    decision = decide_on(application(), cluster("x", {"m": 1}), cluster("y"), m=value)
    assert decision.chosen == ["y"]
    assert reason(decision, "x").startswith("InvalidMetric: ")


@pytest.mark.parametrize(
    ("low", "high"), [(5, 5), (6, 5), (float("nan"), 5), (0, float("inf")), (0, float("nan"))]
)
def test_m13_invalid_bounds_exclude_a_cluster(low, high):
    decision = decide_on(
        application(), cluster("x", {"m": 1}), cluster("y"), metric("m", low=low, high=high), m=5
    )
    assert decision.chosen == ["y"]
    assert "max must be above min" in reason(decision, "x")


def test_the_widest_bounds_are_supported():
    widest = metric("m", low=-1.7e308, high=1.7e308)
    assert decide_on(application(), cluster("x", {"m": 1}), widest, m=0).scores == {"x": 0.5}


def test_m14_a_cluster_is_back_in_the_pass_in_which_its_metrics_are():
    status = {
        "state": "FailingMetrics",
        "conditions": [*conditions(), {"type": "MetricsAvailable", "status": "False"}],
    }
    decision = decide_on(application(), cluster("x", {"m": 1}, status=status), cluster("y"), m=0.5)
    assert decision.chosen == ["x"]


def test_m15_a_cluster_that_has_no_metrics_any_more_is_not_failing():
    decision = decide_on(application(), cluster("x", status={"state": "FailingMetrics"}))
    assert decision.chosen == ["x"]


def test_m16_an_offline_cluster_stays_offline():
    decision = decide_on(application(), cluster("x", {"gone": 1}, status={"state": "Offline"}))
    assert reason(decision, "x") == "it is Offline, not Online"


def test_m17_metrics_are_preferred_over_stickiness():
    decision = decide_on(application(on="y"), cluster("x", {"m": 1}), cluster("y"), m=0)
    assert (decision.outcome, decision.chosen, decision.is_elective) == ("Moved", ["x"], True)


def test_m18_zero_weights_exclude_the_cluster():
    decision = decide_on(application(), cluster("x", {"m": 0, "n": 0}), cluster("y"), m=1, n=1)
    assert decision.chosen == ["y"]
    text = "InvalidMetric: the weights of m, n add up to 0: one must be above 0"
    assert reason(decision, "x") == text


def test_m19_zero_weights_move_no_application():
    decision = decide_on(application(on="x"), cluster("x", {"m": 0}), cluster("y"), m=1)
    assert decision.stays
    assert decision.scores == {}


@pytest.mark.parametrize("weight", [1e308, float("inf"), float("nan")])
def test_weights_that_cannot_be_added_take_the_cluster_out(weight):
    decision = decide_on(
        application(), cluster("x", {"m": weight, "n": weight}), cluster("y"), m=1, n=1
    )
    assert decision.chosen == ["y"]


def test_m20_a_global_object_has_no_namespaced_metrics():
    spec = {"metrics": refs({"/m": 1})}
    view = start_pass(make_object("GlobalCloud", "g", spec=spec), metric("/m"), m=1)
    (target,) = view.clouds("")
    assert target.measured.fault.startswith("InvalidMetric: ")


@pytest.mark.parametrize(("rule", "stays"), [("Stay", True), ("Move", False)])
def test_m21_missing_metrics_move_applications_only_if_set(rule, stays):
    decision = decide_on(
        application(on="x"),
        *(cluster("x", {"m": 1}), cluster("y"), cluster("z", {"n": 1})),
        rules={"on_metrics_loss": rule},
        m="no answer",
        n="no answer",
    )
    assert decision.stays is stays
    assert list(decision.chosen) == (["x"] if stays else ["y"])
    assert not decision.is_elective
    assert reason(decision, "x") == "UnreachableMetricsProvider: no answer"


@pytest.mark.parametrize("change", [{"labels": ["a is b"]}, {"resources": ["a.b"]}])
def test_applications_without_metrics_leave_a_cluster_that_does_not_match(change):
    good = cluster("y", labels={"a": "b"}, spec={"customResources": ["a.b"]})
    decision = decide_on(application(on="x", **change), cluster("x", {"m": 1}), good, m="no answer")
    assert decision.chosen == ["y"]


def test_applications_without_metrics_leave_a_cluster_that_is_being_deleted():
    gone = cluster("x", {"m": 1}, deletionTimestamp=ago(1))
    assert decide_on(application(on="x"), gone, cluster("y"), m="no answer").chosen == ["y"]


def test_applications_stay_if_a_metric_constraint_cannot_be_evaluated():
    app = application(on="x", metrics=["m > 0.5"])
    decision = decide_on(app, cluster("x", {"m": 1}), cluster("y", {"n": 1}), m="no answer", n=1)
    assert decision.stays


def test_metrics_of_a_namespace_and_global_ones_are_two():
    app = application()
    objects = (
        cluster("x", {"m": 1}),
        make_object("Cluster", "y", spec={"metrics": refs({"/m": 1})}, status=ONLINE),
    )
    readings = {("", "m"): 0.2, ("ns", "m"): 0.8}
    decision = decide(app, Pass(snapshot_of([*objects, metric("m"), metric("/m")], readings), NOW))
    assert decision.scores == {"x": 0.2, "y": 0.8}


def test_static_values_stand_in_their_provider():
    static = {"type": "static", "static": {"metrics": {"m": 0.25}}}
    provider = make_object("GlobalMetricsProvider", "prom", spec=static)
    objects = (cluster("x", {"m": 1}), cluster("y", {"n": 1}), metric("m"), metric("n"), provider)
    decision = decide_on(application(), *objects)
    assert decision.scores == {"x": 0.25}
    assert reason(decision, "y") == "InvalidMetric: 'prom' has no value 'n'"


@pytest.mark.parametrize(
    "spec", [{"type": "prometheus", "static": {"metrics": {"m": 1}}}, {"type": "static"}]
)
def test_a_provider_that_was_not_asked_yet_has_no_value(spec):
    provider = make_object("GlobalMetricsProvider", "prom", spec=spec)
    decision = decide_on(application(), cluster("x", {"m": 1}), metric("m"), provider)
    assert reason(decision, "x") == "UnreachableMetricsProvider: there is no value of 'm' yet"


def test_m22_one_reading_serves_constraints_and_ranking_of_all():
    view = start_pass(*AB, m=0.1, n=0.9)
    decision = decide(application("one", metrics=["n > 0.5"]), view)
    two = decide(application("two"), view)
    assert decision.scores == {"b": 0.9}
    assert two.scores == {"a": 0.1, "b": 0.9}


@pytest.mark.parametrize(
    ("name", "kind"), [("m", "GlobalMetricsProvider"), ("/m", "MetricsProvider")]
)
def test_a_missing_provider_is_named_by_its_kind(name, kind):
    decision = decide_on(application(), cluster("x", {name: 1}), metric(name))
    text = f"UnknownMetricsProvider: there is no {kind} 'prom', which has 'm'"
    assert reason(decision, "x") == text
    decision = decide_on(application(), cluster("x", {name: 1}))
    text = f"UnknownMetric: there is no {kind.removesuffix('sProvider')} 'm'"
    assert reason(decision, "x") == text
