"""The numeric vectors of krake-spec 6.2, and the numeric cases of 8 (krake-spec 3.5)."""

from __future__ import annotations

import pytest

from helpers.placing import (
    application,
    cloud,
    cloud_for,
    cluster,
    decide_on,
    matching_targets,
    metric,
    reason,
)

MK = {"mk1": {"cost": 10, "green": 1}, "mk2": {"cost": 1, "green": 10}}
C = {"c1": {"m1": 1, "m2": 1.5}, "c2": {"m1": 1.5, "m2": 1}}
AB = {"a": {"m": 1}, "b": {"n": 1}}
WS = {"w1": {"h": 0.9, "s": 1}, "w2": {"h": 0.5, "s": 1}, "none": {}}


def both(m1, two):
    return {"m1": m1, "m2": two}


VECTORS = {
    "v1-s1": (MK, {"cost": 0.9, "green": 0.1}, None, {"mk1": 9.1 / 11, "mk2": 1.9 / 11}, "mk1"),
    "v2": (MK, {"cost": 0.9, "green": 0.1}, "mk1", {"mk1": 9.2 / 11.1, "mk2": 1.9 / 11}, "mk1"),
    "v3": (MK, {"cost": 0.1, "green": 0.9}, "mk1", {"mk1": 2.0 / 11.1, "mk2": 9.1 / 11}, "mk2"),
    "v4": ({"a": {"m": 1}, "b": {"m": 1}}, {"m": 0.75}, None, {"a": 0.75, "b": 0.75}, "a b"),
    "v5": ({"a": {"m": 1}, "b": {"m": 1}}, {"m": 0.75}, "a", {"a": 0.85 / 1.1, "b": 0.75}, "a"),
    "v6": (C, both(0.01, 0.1), None, {"c1": 0.064, "c2": 0.046}, "c1"),
    "v7": (C, both(0.2, 0.01), "c1", {"c1": 0.315 / 2.6, "c2": 0.124}, "c2"),
    "v8": (C, both(0.2, 0.01), None, {"c1": 0.086, "c2": 0.124}, "c2"),
    "v9": (C, both(0.02, 0.01), "c1", {"c1": 0.135 / 2.6, "c2": 0.016}, "c1"),
    "v10": (C, both(0.02, 0.01), None, {"c1": 0.014, "c2": 0.016}, "c2"),
    "v11": (C, both(0.8, 0.7), None, {"c1": 0.74, "c2": 0.76}, "c2"),
    "v12": (C, both(0.7, 0.8), None, {"c1": 0.76, "c2": 0.74}, "c1"),
    "v13": (C, both(0.8, 0.7), "c1", {"c1": 0.75, "c2": 0.76}, "c2"),
    "v14": (C, both(0.01, 0.2), "c2", {"c1": 0.124, "c2": 0.315 / 2.6}, "c1"),
    "v15": (
        {"cur": {"h": 0.99}, "oth": {"h": 1}, "none": {}},
        {"h": 0.4},
        "cur",
        {"cur": 0.496 / 1.09, "oth": 0.4},
        "cur",
    ),
    "v16": (WS, {"h": 0.4, "s": 1}, "none", {"w1": 1.36 / 1.9, "w2": 0.8}, "w2"),
    "v17": ({"a1": {}, "b1": {}}, {}, "a1", {"a1": 0.1, "b1": 0}, "a1"),
    "v18": ({"a1": {}, "w": {"z": 1}}, {"z": 0}, "a1", {"w": 0}, "w"),
    "v19-s2-below": (AB, {"m": 0.5, "n": 0.5454}, "a", {"a": 0.6 / 1.1, "b": 0.5454}, "a"),
    "v19-s3-above": (AB, {"m": 0.5, "n": 0.5455}, "a", {"a": 0.6 / 1.1, "b": 0.5455}, "b"),
    "v19-far": (AB, {"m": 0.5, "n": 0.6}, "a", {"a": 0.6 / 1.1, "b": 0.6}, "b"),
    "v20-s5": (AB, {"m": 1, "n": 1}, "a", {"a": 1, "b": 1}, "a"),
}


@pytest.mark.parametrize(
    ("targets", "values", "on", "scores", "winners"), VECTORS.values(), ids=VECTORS
)
def test_vector(targets, values, on, scores, winners):
    clusters = (cluster(name, weights) for name, weights in targets.items())
    decision = decide_on(application(on=on), *clusters, **values)
    assert decision.scores == pytest.approx(scores, abs=1e-9)
    assert sorted(decision.chosen) == winners.split()
    assert decision.stays is (on == winners)
    assert decision.error == ""


@pytest.mark.parametrize(
    ("stickiness", "values", "score"),
    [(0, {"m": 0.5, "n": 0.5}, 0.5), (10, {"m": 0, "n": 0.9}, 10 / 11)],
    ids=["v21-s9", "v22"],
)
def test_vector_with_another_stickiness(stickiness, values, score):
    clusters = (cluster(name, weights) for name, weights in AB.items())
    decision = decide_on(application(on="a"), *clusters, rules={"stickiness": stickiness}, **values)
    assert decision.scores == pytest.approx({"a": score, "b": values["n"]})
    assert decision.chosen == ("a",)
    assert decision.stays


@pytest.mark.parametrize(
    ("weights", "low", "high", "value", "score"),
    [
        ({"heat": 0.45}, 0, 5, 0.9, 0.18),
        ({"heat": 2}, -10, 10, 0, 0.5),
        ({"heat": 1}, 0, 1, 1, 1),
        ({"heat": 1}, 0, 5, 0, 0),
    ],
    ids=["v23", "v24", "v25-top", "v25-bottom"],
)
def test_vector_with_other_bounds(weights, low, high, value, score):
    decision = decide_on(
        application(),
        cluster("n", weights),
        cluster("plain"),
        metric("heat", low=low, high=high),
        heat=value,
    )
    assert decision.scores == pytest.approx({"n": score})
    assert decision.chosen == ["n"]


def test_vector_v25():
    decision = decide_on(
        application(),
        *(cluster("n", {"e": 1}), cluster("n2", {"f": 1})),
        *(metric("e"), metric("f", high=5)),
        e=1,
        f=0,
    )
    assert decision.scores == {"n": 1, "n2": 0}
    assert decision.chosen == ["n"]


INHERITING = {"cloudRef": {"kind": "Cloud", "name": "os"}, "inheritMetrics": True}


@pytest.mark.parametrize(
    ("weights", "score"),
    # Of a metric that is both own and inherited the own weight counts (krake-spec 8, case S8).
    [({}, 0.9), ({"cost": 8, "green": 1}, (0.9 * 8 + 0.1) / 9)],
    ids=["v26", "v27-s8"],
)
def test_vector_of_inherited_metrics(weights, score):
    decision = decide_on(
        application(),
        cluster("i", weights, spec=INHERITING),
        cloud("os", {"cost": 2}),
        cost=0.9,
        green=0.1,
    )
    assert decision.scores == pytest.approx({"i": score}, abs=1e-9)
    assert decision.chosen == ["i"]


def test_vector_v28():
    clusters = (cluster("n", {"cost": -1}), cluster("p", {"green": 1}))
    decision = decide_on(application(), *clusters, cost=0.9, green=0.1)
    assert decision.scores == pytest.approx({"n": 0.9, "p": 0.1})
    assert decision.chosen == ["n"]


@pytest.mark.parametrize(("value", "scores"), [(2, {"n": 0.4}), (4, {})], ids=["m9-two", "m9-four"])
def test_vector_v29(value, scores):
    limited = metric("m", high=5, allowed=[1, 2, 3])
    decision = decide_on(application(), cluster("n", {"m": 1}), limited, m=value)
    assert decision.scores == pytest.approx(scores)
    assert matching_targets(decision) == list(scores)
    if not scores:
        fault = "the value 4 of 'm' is not one of the allowed values"
        assert reason(decision, "n") == f"InvalidMetric: {fault}"


def test_vector_v30_k8():
    clouds = (cloud("os1", {"cost": 1, "green": 10}), cloud("os2", {"cost": 10, "green": 1}))
    wanted = cluster("wanted", status={}, spec={"kubeconfigSecretRef": None})
    decision = cloud_for(wanted, *clouds, cost=0.9, green=0.1)
    assert decision.scores == pytest.approx({"os1": 1.9 / 11, "os2": 9.1 / 11})
    assert decision.chosen == ["os2"]


@pytest.mark.parametrize(
    ("weight", "value", "matches"),
    [
        (1, "Raw", {"> 5": False, ">= 5": True, "is 5": True}),
        (12, "Raw", {"> 5": False, ">= 5": True}),
        (1, "Weighted", {"> 5": False, ">= 5": False}),
        (6, "Weighted", {"> 5": False}),
        (10, "Weighted", {"> 5": False, ">= 5": True, "is 5": True}),
        (12, "Weighted", {"> 5": True}),
        (12, "Normalised", {"> 5": False, "> 0.4": True, "is 0.5": True}),
    ],
)
def test_c16_c17_what_a_metric_constraint_compares(weight, value, matches):
    results = {}
    for text in matches:
        answer = decide_on(
            application(metrics=[f"load {text}"]),
            cluster("c", {"load": weight}),
            metric("load", high=10),
            rules={"constraint_value": value},
            load=5,
        )
        results[text] = matching_targets(answer) == ["c"]
    assert results == matches
