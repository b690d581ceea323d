"""Applications that wait for the confirmation of a person, and their decisions meanwhile."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.placement.application_decisions import MoveLimits
from harbourmaster.placement.application_status import next_time, settle
from harbourmaster.placement.confirmation import (
    CONFIRMED,
    CURRENT_CLUSTER,
    decide_confirmed,
    is_waiting,
)
from harbourmaster.placement.decision import record
from harbourmaster.placement.rules import Rules
from helpers.placing import AB, NOW, ago, application, cluster, start_pass

SINCE = ago(60)
OLD = {"creationTimestamp": ago(61)}
DECIDED = {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoSuitableTarget"}]}
SHOWN = {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NotConfirmed"}]}


def waits(app, since=SINCE):
    return is_waiting(app.metadata, app.status, since)


def imported_application(on="a", confirmed=None, **options):
    notes = {CURRENT_CLUSTER: on, **({CONFIRMED: confirmed} if confirmed else {})}
    return application(annotations=notes, **options)


def decide_unconfirmed(app, *objects, since="", move_limits=None, rules=None, **values):
    return decide_confirmed(
        app, start_pass(*objects, rules=rules, **values), move_limits, since=since
    )


def after(app, decision):
    """Return the status that follows from a decision."""
    pass_ = start_pass(*AB)
    return settle(app, decision, pass_.rules, lambda decision: record(decision, pass_))


@pytest.mark.parametrize(
    "app",
    [
        application(**OLD),
        application(**OLD, status=SHOWN),
        application(**OLD, annotations={CONFIRMED: "no"}),
        application(creationTimestamp=ago(1), annotations={CONFIRMED: "false"}),
    ],
)
def test_one_from_before_and_one_that_asks_for_it_wait(app):
    assert waits(app)


@pytest.mark.parametrize(
    "app",
    [
        application(annotations={CONFIRMED: "false"}, deletionTimestamp=ago(1)),
        application(creationTimestamp=SINCE),
        application(**OLD, on="a"),
        application(**OLD, on="a", annotations={CONFIRMED: "false"}),
        application(**OLD, status=DECIDED),
        application(**OLD, annotations={CONFIRMED: "true"}),
        application(creationTimestamp=""),
    ],
)
def test_a_later_one_a_handled_one_and_a_confirmed_one_do_not_wait(app):
    assert not waits(app)


@pytest.mark.parametrize("since", ["", "nonsense"])
def test_without_a_time_only_the_annotation_counts(since):
    assert not waits(application(**OLD), since)
    assert waits(application(annotations={CONFIRMED: "false"}), since)


def test_one_that_waits_is_decided_on_for_show_only():
    app, move_limits = application(**OLD), MoveLimits(Rules(moves_per_target=1))
    decision = decide_unconfirmed(app, *AB, m=0.1, n=0.9, since=SINCE, move_limits=move_limits)
    assert (decision.outcome, decision.target) == ("NotConfirmed", None)
    assert decision.reason == (
        "it would be placed on 'b': to have it placed, run "
        "harbourmaster placement confirm app -n ns"
    )
    status = after(app, decision)
    (shown,) = status.conditions
    assert (shown.type, shown.status, shown.reason) == ("Scheduled", "False", "NotConfirmed")
    # Nothing but the condition is written, and that once.
    assert replace(status, conditions=()) == app.status
    app = replace(app, status=status)
    assert waits(app)
    again = decide_unconfirmed(app, *AB, m=0.2, n=0.8, since=SINCE)
    assert after(app, again) is app.status
    assert next_time(app, start_pass().rules, NOW) is None


def test_one_that_waits_and_fits_nowhere_says_so_without_values():
    decision = decide_unconfirmed(application(**OLD, labels=["x is y"]), *AB, since=SINCE)
    assert decision.outcome == "NotConfirmed"
    assert decision.reason.startswith("no cluster is suitable now: to have it placed, run ")


def test_one_that_ends_meanwhile_is_left_alone():
    decision = decide_unconfirmed(application(**OLD, deletionTimestamp=ago(1)), *AB, since=SINCE)
    assert decision.outcome == "Waiting"


def test_a_confirmed_one_is_placed_as_any_other():
    app = application(**OLD, status=SHOWN, annotations={CONFIRMED: "true"})
    decision = decide_unconfirmed(app, *AB, m=0.1, n=0.9, since=SINCE)
    assert (decision.outcome, decision.target.name) == ("Placed", "b")
    status = after(app, decision)
    assert status.scheduled_to.name == "b"
    assert [condition.status for condition in status.conditions] == ["True"]


def test_the_first_decision_takes_the_cluster_on_which_it_runs():
    decision = decide_unconfirmed(imported_application(), *AB, m=0.1, n=0.9)
    assert (decision.outcome, decision.target.name) == ("Placed", "a")
    assert decision.reason == f"it runs there (annotation {CURRENT_CLUSTER})"
    for current in (cluster("a", status={"state": "Offline"}), cluster("a", {"m": 1})):
        decision = decide_unconfirmed(
            imported_application(migration=False), current, cluster("b"), m="no answer"
        )
        assert decision.target.name == "a"
    waiting = decide_unconfirmed(imported_application(confirmed="false"), *AB, m=0.1, n=0.9)
    assert waiting.outcome == "NotConfirmed"
    assert waiting.reason.startswith("it would be placed on 'a': ")


def test_a_current_cluster_that_does_not_suit_is_left_as_always():
    app = imported_application(labels=["x is y"])
    decision = decide_unconfirmed(app, cluster("a"), cluster("b", labels={"x": "y"}))
    assert (decision.outcome, decision.target.name, decision.is_elective) == ("Moved", "b", False)
    assert after(app, decision).scheduled_to.name == "b"


@pytest.mark.parametrize("migration", [True, False])
def test_a_current_cluster_that_does_not_exist_is_an_error(migration):
    decision = decide_unconfirmed(imported_application("gone", migration=migration), *AB)
    assert decision.outcome == "NoSuitableTarget"
    assert decision.reason == (
        "Cluster 'gone' does not exist: create it, or remove the annotation "
        "placement.harbourmaster.dev/current-cluster"
    )


def test_once_it_is_placed_the_annotation_means_nothing():
    app = application(on="a", annotations={CURRENT_CLUSTER: "a"})
    assert decide_unconfirmed(app, *AB, m=0.1, n=0.9).target.name == "b"
    assert (
        decide_unconfirmed(imported_application(labels=["IS"]), *AB).outcome == "InvalidConstraint"
    )
