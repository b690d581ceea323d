from __future__ import annotations

import msgspec
import pytest

from harbourmaster.placement.application_decisions import decide
from harbourmaster.placement.decision import LONGEST_TEXT, MOST_CANDIDATES, MOST_TERMS, record
from helpers.placing import ago, application, cluster, metric, start_pass

AB = (cluster("a", {"m": 2}), cluster("b", {"n": 1}))


def make_record(app, *clusters, rules=None, **values):
    view = start_pass(*clusters, rules=rules, **values)
    return record(decide(app, view), view)


def test_a_record_has_each_term_of_each_score():
    decision_record = make_record(application(on="a"), *AB, metric("m", high=10), m=1, n=0.9)
    first, two = decision_record.candidates
    assert (first.cluster, first.matched, first.stickiness) == ("b", True, 0)
    assert first.score == pytest.approx(0.9)
    (term,) = first.terms
    assert (term.metric, term.weight, term.value, term.normalised) == ("n", 1, 0.9, 0.9)
    assert (two.cluster, two.stickiness) == ("a", 0.1)
    assert two.score == pytest.approx((0.1 + 0.2) / 2.1)
    assert two.terms[0].value == 1
    assert (decision_record.chosen, decision_record.runner_up.cluster) == ("b", "a")
    assert (decision_record.considered, decision_record.matched) == (2, 2)


def test_a_record_says_who_was_filtered_by_what():
    decision_record = make_record(
        application(labels=["x is y"]),
        cluster("good", labels={"x": "y"}),
        cluster("other", labels={"x": "z"}),
        cluster("offline", status={"state": "Offline"}),
    )
    assert {candidate.cluster: candidate.reason for candidate in decision_record.candidates} == {
        "good": "",
        "offline": "it is Offline, not Online",
        "other": "label constraint 'x is y': the label is 'z'",
    }
    assert (decision_record.considered, decision_record.matched) == (3, 1)
    assert decision_record.reason == "'good' is the only suitable one"


def crossing(decision_record):
    """Return the text and the bound of the first change that would move the application."""
    text = decision_record.would_change[0]
    return text, float(text.split("; ")[0].rsplit(" ", 1)[1])


@pytest.mark.parametrize(
    ("on", "values"),
    [
        (None, {"m": 0.5, "n": 0.4}),
        ("a", {"m": 0.5, "n": 0.4}),
        ("b", {"m": 0.9, "n": 0.1}),
        ("a", {"m": 0.1, "n": 0.9}),
    ],
)
def test_the_recorded_change_changes_the_decision(on, values):
    """The other cluster wins beyond the recorded bound, and not before it."""
    decision_record = make_record(application(on=on), *AB, **values)
    text, bound = crossing(decision_record)
    name = "m" if "'m'" in text else "n"
    step = 0.001 if "above" in text else -0.001
    assert text.startswith(f"'{decision_record.runner_up.cluster}' if ")
    assert f"it is {values[name]}" in text
    beyond = make_record(application(on=on), *AB, **{**values, name: bound + step})
    before = make_record(application(on=on), *AB, **{**values, name: bound - step})
    assert beyond.chosen == decision_record.runner_up.cluster
    assert before.chosen == decision_record.chosen


def test_a_metric_of_both_counts_for_both():
    clusters = (cluster("a", {"m": 3, "n": 1}), cluster("b", {"m": 1, "n": 3}))
    values = {"m": 0.8, "n": 0.6}
    decision_record = make_record(application(), *clusters, **values)
    text, bound = crossing(decision_record)
    name = "m" if "'m'" in text else "n"
    step = 0.001 if "above" in text else -0.001
    assert make_record(application(), *clusters, **{**values, name: bound + step}).chosen == "b"
    assert make_record(application(), *clusters, **{**values, name: bound - step}).chosen == "a"


def test_a_hold_off_is_recorded():
    decision_record = make_record(application(on="a", scheduled=5), *AB, m=0.1, n=0.9)
    assert decision_record.chosen == "a"
    assert decision_record.would_change == (
        f"another time: it must not move again until {ago(-55)}",
    )


def test_a_limit_is_recorded():
    rules = {"moves_per_application": 1}
    app = application(on="a", status={"recentMoves": [ago(9)]})
    decision_record = make_record(app, *AB, rules=rules, m=0.1, n=0.9)
    assert (decision_record.chosen, decision_record.runner_up.cluster) == ("a", "b")
    text = "a later pass: 'b' has the best score, 0.9, but it moved 1 times in the last hour"
    assert decision_record.would_change == (text,)


def test_nothing_that_suits_says_what_is_in_the_way():
    decision_record = make_record(application(labels=["x is y"]), cluster("a"))
    assert decision_record.outcome == "NoSuitableTarget"
    assert decision_record.chosen == ""
    assert decision_record.would_change == (
        "'a' if not: label constraint 'x is y': the label is missing",
    )


def test_a_record_is_bounded():
    weights = {f"m{number}": 1 for number in range(60)}
    clusters = [cluster(f"c{number:03}", weights) for number in range(200)]
    clusters += [cluster(f"out-{number}", labels={"x": "y" * 63}) for number in range(50)]
    values = dict.fromkeys(weights, 0.5)
    decision_record = make_record(application(on="c150", metrics=["m1 > 0"]), *clusters, **values)
    assert len(decision_record.candidates) == MOST_CANDIDATES
    assert decision_record.candidates[0].cluster == "c150"
    assert all(len(candidate.terms) == MOST_TERMS for candidate in decision_record.candidates)
    assert (decision_record.considered, decision_record.matched) == (250, 200)
    assert len(msgspec.json.encode(decision_record)) < 40_000


def test_texts_are_cut():
    decision_record = make_record(
        application(labels=[f"x in ({', '.join(['v' * 60] * 40)})"]), cluster("a")
    )
    assert len(decision_record.reason) == LONGEST_TEXT
    assert len(decision_record.candidates[0].reason) == LONGEST_TEXT
    assert all(len(text) <= LONGEST_TEXT for text in decision_record.would_change)


def test_a_change_is_told_in_values_of_the_metric():
    decision_record = make_record(application(), *AB, metric("n", low=-10, high=10), m=0.5, n=-2)
    assert decision_record.chosen == "a"
    assert decision_record.would_change[0] == "'b' if 'm' were below 0.4; it is 0.5"
    assert decision_record.would_change[1] == "'b' if 'n' were above 0; it is -2"


def test_without_a_target_nothing_is_chosen():
    decision_record = make_record(application(on="a", labels=["x is y"]), cluster("a"))
    assert (decision_record.outcome, decision_record.chosen) == ("NoSuitableTarget", "")


def test_a_metric_that_counts_the_same_for_both_changes_nothing():
    clusters = (cluster("a", {"m": 1, "n": 1}), cluster("b", {"m": 1, "o": 1}))
    decision_record = make_record(application(), *clusters, m=0.5, n=0.8, o=0.6)
    assert decision_record.would_change == (
        "'b' if 'n' were below 0.6; it is 0.8",
        "'b' if 'o' were above 0.8; it is 0.6",
    )


def test_weights_that_stickiness_undoes_are_recorded():
    clusters = (cluster("a", {"m": -0.1}), cluster("b", {"n": 1}))
    decision_record = make_record(application(on="a"), *clusters, m=0.5, n=0)
    assert (decision_record.chosen, decision_record.runner_up.cluster) == ("a", "b")
