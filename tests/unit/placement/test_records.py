from __future__ import annotations

import msgspec
import pytest

from harbourmaster.placement.decisions import decide
from harbourmaster.placement.records import LONGEST_TEXT, MOST_CANDIDATES, MOST_TERMS, record
from helpers.placing import ago, application, cluster, metric, seen

AB = (cluster("a", {"m": 2}), cluster("b", {"n": 1}))


def recorded(app, *clusters, rules=None, **values):
    view = seen(*clusters, rules=rules, **values)
    return record(decide(app, view), view)


def test_a_record_has_each_term_of_each_score():
    found = recorded(application(on="a"), *AB, metric("m", high=10), m=1, n=0.9)
    one, two = found.candidates
    assert (one.cluster, one.matched, one.stickiness) == ("b", True, 0)
    assert one.score == pytest.approx(0.9)
    (term,) = one.terms
    assert (term.metric, term.weight, term.value, term.normalised) == ("n", 1, 0.9, 0.9)
    assert (two.cluster, two.stickiness) == ("a", 0.1)
    assert two.score == pytest.approx((0.1 + 0.2) / 2.1)
    assert two.terms[0].value == 1
    assert (found.chosen, found.runner_up.cluster) == ("b", "a")
    assert (found.considered, found.matched) == (2, 2)


def test_a_record_says_who_was_filtered_by_what():
    found = recorded(
        application(labels=["x is y"]),
        cluster("good", labels={"x": "y"}),
        cluster("other", labels={"x": "z"}),
        cluster("offline", status={"state": "Offline"}),
    )
    assert {candidate.cluster: candidate.reason for candidate in found.candidates} == {
        "good": "",
        "offline": "it is Offline, not Online",
        "other": "label constraint 'x is y': the label is 'z'",
    }
    assert (found.considered, found.matched) == (3, 1)
    assert found.reason == "'good' is the only suitable one"


def crossing(found):
    """The metric, the side and the bound of the first change."""
    text = found.would_change[0]
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
    """Beyond the bound that it names the other one wins, before it not."""
    found = recorded(application(on=on), *AB, **values)
    text, bound = crossing(found)
    name = "m" if "'m'" in text else "n"
    step = 0.001 if "above" in text else -0.001
    assert text.startswith(f"'{found.runner_up.cluster}' if ")
    assert f"it is {values[name]}" in text
    beyond = recorded(application(on=on), *AB, **{**values, name: bound + step})
    before = recorded(application(on=on), *AB, **{**values, name: bound - step})
    assert beyond.chosen == found.runner_up.cluster
    assert before.chosen == found.chosen


def test_a_metric_of_both_counts_for_both():
    clusters = (cluster("a", {"m": 3, "n": 1}), cluster("b", {"m": 1, "n": 3}))
    values = {"m": 0.8, "n": 0.6}
    found = recorded(application(), *clusters, **values)
    text, bound = crossing(found)
    name = "m" if "'m'" in text else "n"
    step = 0.001 if "above" in text else -0.001
    assert recorded(application(), *clusters, **{**values, name: bound + step}).chosen == "b"
    assert recorded(application(), *clusters, **{**values, name: bound - step}).chosen == "a"


def test_a_hold_off_is_recorded():
    found = recorded(application(on="a", scheduled=5), *AB, m=0.1, n=0.9)
    assert found.chosen == "a"
    assert found.would_change == (f"another time: it must not move again until {ago(-55)}",)


def test_a_limit_is_recorded():
    rules = {"moves_per_application": 1}
    app = application(on="a", status={"recentMoves": [ago(9)]})
    found = recorded(app, *AB, rules=rules, m=0.1, n=0.9)
    assert (found.chosen, found.runner_up.cluster) == ("a", "b")
    text = "a later pass: 'b' has the best score, 0.9, but it moved 1 times in the last hour"
    assert found.would_change == (text,)


def test_nothing_that_suits_says_what_is_in_the_way():
    found = recorded(application(labels=["x is y"]), cluster("a"))
    assert found.outcome == "NoSuitableTarget"
    assert found.chosen == ""
    assert found.would_change == ("'a' if not: label constraint 'x is y': the label is missing",)


def test_a_record_is_bounded():
    weights = {f"m{number}": 1 for number in range(60)}
    clusters = [cluster(f"c{number:03}", weights) for number in range(200)]
    clusters += [cluster(f"out-{number}", labels={"x": "y" * 63}) for number in range(50)]
    values = dict.fromkeys(weights, 0.5)
    found = recorded(application(on="c150", metrics=["m1 > 0"]), *clusters, **values)
    assert len(found.candidates) == MOST_CANDIDATES
    assert found.candidates[0].cluster == "c150"
    assert all(len(candidate.terms) == MOST_TERMS for candidate in found.candidates)
    assert (found.considered, found.matched) == (250, 200)
    assert len(msgspec.json.encode(found)) < 40_000


def test_texts_are_cut():
    found = recorded(application(labels=[f"x in ({', '.join(['v' * 60] * 40)})"]), cluster("a"))
    assert len(found.reason) == LONGEST_TEXT
    assert len(found.candidates[0].reason) == LONGEST_TEXT
    assert all(len(each) <= LONGEST_TEXT for each in found.would_change)


def test_a_change_is_told_in_values_of_the_metric():
    found = recorded(application(), *AB, metric("n", low=-10, high=10), m=0.5, n=-2)
    assert found.chosen == "a"
    assert found.would_change[0] == "'b' if 'm' were below 0.4; it is 0.5"
    assert found.would_change[1] == "'b' if 'n' were above 0; it is -2"


def test_without_a_target_nothing_is_chosen():
    found = recorded(application(on="a", labels=["x is y"]), cluster("a"))
    assert (found.outcome, found.chosen) == ("NoSuitableTarget", "")


def test_a_metric_that_counts_the_same_for_both_changes_nothing():
    clusters = (cluster("a", {"m": 1, "n": 1}), cluster("b", {"m": 1, "o": 1}))
    found = recorded(application(), *clusters, m=0.5, n=0.8, o=0.6)
    assert found.would_change == (
        "'b' if 'n' were below 0.6; it is 0.8",
        "'b' if 'o' were above 0.8; it is 0.6",
    )


def test_weights_that_stickiness_undoes_are_recorded():
    clusters = (cluster("a", {"m": -0.1}), cluster("b", {"n": 1}))
    found = recorded(application(on="a"), *clusters, m=0.5, n=0)
    assert (found.chosen, found.runner_up.cluster) == ("a", "b")
