"""Properties of every constraint and of every placement decision."""

from __future__ import annotations

import math
import string
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.placement.application_decisions import decide
from harbourmaster.placement.application_status import settle
from harbourmaster.placement.constraints import (
    PARSERS,
    LabelConstraint,
    MetricConstraint,
    parse_label,
    parse_metric,
)
from harbourmaster.placement.decision import MOST_CANDIDATES, record
from harbourmaster.placement.lexer import ConstraintError
from harbourmaster.placement.model import Condition
from harbourmaster.placement.rules import Rules
from helpers.placing import (
    NOW,
    ago,
    application,
    cluster,
    decide_all,
    decide_on,
    metric,
    start_pass,
)

EDGE = st.sampled_from(string.ascii_letters + string.digits + "_")
INNER = st.text(string.ascii_letters + string.digits + "_-.", max_size=20)
KEYWORDS = (
    *("is", "not", "in", "isnot", "notin", "exists", "notexists"),
    *("gt", "gte", "than", "or", "equal", "less"),
)
PARTS = st.one_of(st.sampled_from(KEYWORDS), EDGE, st.builds("{}{}{}".format, EDGE, INNER, EDGE))
KEYS = st.one_of(PARTS, st.builds("{}/{}".format, PARTS, PARTS))
VALUES = st.one_of(PARTS, st.just(""))
LABELS = st.one_of(
    st.builds(LabelConstraint, KEYS, st.sampled_from(("exists", "not exists")), st.just(())),
    st.builds(LabelConstraint, KEYS, st.sampled_from(("is", "is not")), st.tuples(VALUES)),
    st.builds(
        LabelConstraint,
        KEYS,
        st.sampled_from(("in", "not in")),
        st.lists(VALUES, min_size=1, max_size=4).map(tuple),
    ),
)
BOUNDS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(("+5", "-0.0", "1e3", "007")),
)
OPERATORS = st.sampled_from(
    (
        *("is", "is not", "greater than", "greater than or equal"),
        *("lesser than", "lesser than or equal"),
    )
)
METRICS = st.builds(MetricConstraint, KEYS, OPERATORS, BOUNDS)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.lists(
        st.sampled_from((*KEYWORDS, "=", "==", "!", "<", ">", "(", ")", ",", " ", "\t", "5", "-")),
        max_size=12,
    ).map("".join),
)


@given(LABELS)
def test_a_label_constraint_is_read_back_from_its_canonical_spelling(constraint):
    assert parse_label(constraint.canonical) == constraint


@given(METRICS)
def test_a_metric_constraint_is_read_back_from_its_canonical_spelling(constraint):
    assert parse_metric(constraint.canonical) == constraint


@given(st.sampled_from(sorted(PARSERS)), TEXTS)
def test_every_text_is_a_constraint_or_a_fault_with_a_place(language, text):
    parse, error = PARSERS[language], None
    try:
        parsed = parse(text)
    except ConstraintError as caught:
        error = caught
    if error is None:
        assert parse(parsed.canonical) == parsed
        return
    assert 0 <= error.position <= len(text)
    message, shown, caret = error.with_caret.split("\n")
    assert message == error.message
    assert caret.strip() == "^"
    assert len(caret) <= len(shown) + 1
    assert "\n" not in str(error)


@given(LABELS, st.dictionaries(KEYS, VALUES))
def test_a_constraint_and_its_opposite_never_hold_both(constraint, labels):
    pairs = (("is", "is not"), ("in", "not in"), ("exists", "not exists"))
    opposite = {operator: pair[pair[0] == operator] for pair in pairs for operator in pair}
    negation = msgspec.structs.replace(constraint, operator=opposite[constraint.operator])
    for cluster_labels in (labels, {**labels, constraint.key: (*constraint.values, "")[0]}):
        both = constraint.holds(cluster_labels) + negation.holds(cluster_labels)
        assert both == (not constraint.values or constraint.key in cluster_labels)


NAMES = ("m", "n", "o")
VALUES = st.dictionaries(
    st.sampled_from(NAMES),
    st.one_of(st.floats(0, 1), st.sampled_from((0.0, 0.5, 1.0, 1.5, math.nan, "no answer"))),
)
WEIGHTS = st.dictionaries(
    st.sampled_from(NAMES), st.one_of(st.floats(1e-3, 1e3), st.sampled_from((0.0, 1.0, -1.0)))
)
STATES = st.sampled_from(("Online", "Online", "Online", "Offline", "NotReady", "FailingMetrics"))
CLUSTERS = st.lists(
    st.builds(
        lambda weights, state, labels: (weights, {"state": state}, labels),
        WEIGHTS,
        STATES,
        st.sampled_from(({}, {"zone": "a"}, {"zone": "b"})),
    ),
    max_size=5,
)
APPLICATIONS = st.builds(
    application,
    on=st.sampled_from((None, "c0", "c1", "gone")),
    scheduled=st.sampled_from((0, 59, 60, 3600)),
    labels=st.sampled_from((None, ["zone is a"], ["zone in (a, b)"], ["zone IS a"])),
    metrics=st.sampled_from((None, ["m > 0.5"], ["m != 0.5"])),
    migration=st.booleans(),
    generation=st.sampled_from((1, 2)),
    backoff=st.sampled_from((None, {"limit": 0}, {"limit": 1})),
)
RULES = st.fixed_dictionaries(
    {
        "stickiness": st.sampled_from((0.0, 0.1, 10.0)),
        "constraint_value": st.sampled_from(("Raw", "Weighted", "Normalised")),
        "on_metrics_loss": st.sampled_from(("Stay", "Move")),
        "on_unreachable": st.sampled_from(("Stay", "Move")),
    }
)


def objects(clusters, order=None):
    made = [
        cluster(f"c{number}", weights, status=status, labels=labels)
        for number, (weights, status, labels) in enumerate(clusters)
    ]
    return [*(made if order is None else order(made)), *(metric(name) for name in NAMES)]


def outline(decision):
    """All of a decision that does not depend on the order of anything."""
    return (
        decision.outcome,
        sorted(decision.chosen),
        decision.target.name if decision.target else None,
        dict(decision.scores),
        {verdict.target.name: verdict.reason for verdict in decision.verdicts},
    )


@given(APPLICATIONS, CLUSTERS, VALUES, RULES)
def test_a_decision_is_sound_and_the_same_each_time(app, clusters, values, rules):
    decision = decide_on(app, *objects(clusters), rules=rules, **values)
    assert outline(decide_on(app, *objects(clusters), rules=rules, **values)) == outline(decision)
    backwards = objects(clusters, order=reversed)
    assert outline(decide_on(app, *backwards, rules=rules, **values)) == outline(decision)
    suits = {verdict.target.name for verdict in decision.verdicts if not verdict.reason}
    assert set(decision.scores) <= suits
    assert all(math.isfinite(score) for score in decision.scores.values())
    if decision.target is not None:
        assert decision.target.name in suits
        assert decision.target.name in decision.chosen
        assert decision.scores[decision.target.name] == pytest.approx(max(decision.scores.values()))
        assert not decision.target.unready
    assert bool(decision.error) is (not decision.chosen)
    if decision.stays:
        assert list(decision.chosen) == [decision.current]
    states = {f"c{number}": status["state"] for number, (_, status, _) in enumerate(clusters)}
    is_silent = states.get(decision.current) == "Offline" and rules["on_unreachable"] == "Stay"
    if is_silent and not app.spec.constraints.cluster.labels:
        # Only people send it away.
        assert decision.target is None


@given(APPLICATIONS, CLUSTERS, VALUES, RULES)
def test_a_status_settles_and_its_record_is_bounded(app, clusters, values, rules):
    view = start_pass(*objects(clusters), rules=rules, **values)
    before = app.status
    for number in range(3):
        status = settle(app, decide(app, view), view.rules, lambda value: record(value, view))
        if status is app.status:
            break
        assert status.last_decision is not None
        assert len(status.last_decision.candidates) <= MOST_CANDIDATES
        if number == 0 and status.scheduled_to is not None:
            kept = status.scheduled_to.name == (before.scheduled_to and before.scheduled_to.name)
            assert kept or status.scheduled_generation == app.metadata.generation
        app = msgspec.structs.replace(app, status=status)
    else:
        pytest.fail("each pass writes, though nothing has changed")


@given(CLUSTERS, VALUES, st.sampled_from((2.0, 0.25, 1024.0)))
def test_scores_depend_on_the_ratio_of_weights_alone(clusters, values, factor):
    scaled = [
        ({name: weight * factor for name, weight in weights.items()}, status, labels)
        for weights, status, labels in clusters
    ]
    unscaled_decision = decide_on(application(), *objects(clusters), **values)
    scaled_decision = decide_on(application(), *objects(scaled), **values)
    assert scaled_decision.scores == pytest.approx(unscaled_decision.scores)


@given(CLUSTERS, VALUES)
def test_scores_of_weights_that_are_not_negative_are_means(clusters, values):
    good = [
        ({name: abs(weight) for name, weight in weights.items()}, status, labels)
        for weights, status, labels in clusters
    ]
    for on in (None, "c0"):
        decision = decide_on(application(on=on), *objects(good), **values)
        assert decision.scores.keys() <= {f"c{number}" for number in range(len(good))}
        assert all(-1e-9 <= score <= 1 + 1e-9 for score in decision.scores.values())


@given(CLUSTERS, VALUES, st.sampled_from((0.1, 1.0, 10.0)))
def test_stickiness_only_ever_keeps(clusters, values, stickiness):
    """An app that stays without stickiness stays with it too, if no weight is negative."""
    good = [
        ({name: abs(weight) for name, weight in weights.items()}, status, labels)
        for weights, status, labels in clusters
    ]
    without, with_it = (
        decide_on(application(on="c0"), *objects(good), rules={"stickiness": weight}, **values)
        for weight in (0.0, stickiness)
    )
    assert with_it.stays or not without.stays


@given(CLUSTERS, VALUES, st.integers(1, 3), st.integers(1, 12))
def test_no_more_move_by_choice_than_the_limit_says(clusters, values, limit, number):
    apps = [application(f"app-{index}", on=f"c{index % 5}") for index in range(number)]
    view = start_pass(*objects(clusters), rules={"moves_per_target": limit}, **values)
    arrivals = [decision.target.name for decision in decide_all(apps, view) if decision.is_elective]
    assert max((arrivals.count(name) for name in arrivals), default=0) <= limit


SILENCE = st.integers(0, 600)


@given(CLUSTERS, VALUES, SILENCE, st.sampled_from((0, 1, 300, 600)))
def test_a_silent_cluster_is_left_neither_early_nor_unnoticed(clusters, values, seconds, limit):
    since = {"type": "Reachable", "status": "False", "reason": "NoAnswer"}
    conditions = [{**since, "lastTransitionTime": ago(seconds)}]
    silent = cluster("silent", status={"state": "Offline", "conditions": conditions})
    rules = {"on_unreachable": "Move", "offline_after_seconds": limit}
    app = application(on="silent")
    decision = decide_on(app, *objects(clusters), silent, rules=rules, **values)
    if seconds < limit:
        assert decision.stays
        assert decision.until == NOW + timedelta(seconds=limit - seconds)
    else:
        assert (decision.target is None) is (decision.outcome == "NoSuitableTarget")


@given(CLUSTERS, VALUES, st.integers(0, 3), st.integers(0, 4), st.integers(1, 12))
def test_no_more_are_made_to_leave_than_the_limits_say(clusters, values, limit, total, number):
    rules = {"forced_moves_per_cluster": limit, "forced_moves_total": total}
    away = [cluster(name, spec={"unschedulable": True}) for name in ("x", "y")]
    apps = [application(f"app-{index}", on="xyz"[index % 3]) for index in range(number)]
    view = start_pass(*objects(clusters), *away, rules=rules, **values)
    decisions = decide_all(apps, view)
    left = [decision.current for decision in decisions if decision.target is not None]
    assert max((left.count(name) for name in "xyz"), default=0) <= (limit or number)
    assert len(left) <= (total or number)
    waits = [decision for decision in decisions if decision.outcome == "MoveLimited"]
    assert all(wait.stays for wait in waits)
    assert not waits or len(left) >= min(limit or number, total or number)


def failing(app):
    """The application as its deployer leaves it where it never gets ready."""
    deployed = Condition(type="Deployed", status="True", observed_generation=1)
    known = [condition for condition in app.status.conditions if condition.type != "Deployed"]
    status = msgspec.structs.replace(app.status, conditions=(*known, deployed))
    return msgspec.structs.replace(app, status=status)


@given(CLUSTERS, st.lists(VALUES, min_size=1, max_size=4), RULES)
def test_an_application_that_fails_everywhere_never_moves_in_a_circle(clusters, worlds, rules):
    app, now, left = application(), NOW, set()
    for step in range(3 * len(clusters) + 3):
        values = worlds[step % len(worlds)]
        view = start_pass(*objects(clusters), now=now, rules=rules, **values)
        decision = decide(app, view)
        status = settle(app, decision, view.rules, lambda value, seen=view: record(value, seen))
        app = failing(msgspec.structs.replace(app, status=status))
        if decision.target is not None:
            assert decision.target.name not in left
        if decision.failed is not None:
            left.add(decision.failed.name)
            assert decision.failed in status.failed_clusters
        now += timedelta(seconds=601)
    assert len(left) <= max(len(clusters) - 1, 0)


def test_the_defaults_are_kept():
    rules = Rules()
    assert (rules.reschedule_after, rules.stickiness) == (60, 0.1)
    assert (rules.constraint_value, rules.on_metrics_loss) == ("Raw", "Stay")
    assert NOW.tzinfo is not None
