"""Which applications wait for a person, and what is decided of them meanwhile."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.placement.application_status import next_time, settle
from harbourmaster.placement.confirmation import (
    CONFIRMED,
    CURRENT_CLUSTER,
    decide_confirmed,
    is_waiting,
)
from harbourmaster.placement.decisions import Herd
from harbourmaster.placement.records import record
from harbourmaster.placement.rules import Rules
from helpers.placing import AB, NOW, ago, application, cluster, seen

SINCE = ago(60)
OLD = {"creationTimestamp": ago(61)}
DECIDED = {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoSuitableTarget"}]}
SHOWN = {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NotConfirmed"}]}


def waits(app, since=SINCE):
    return is_waiting(app.metadata, app.status, since)


def imported(on="a", confirmed=None, **options):
    notes = {CURRENT_CLUSTER: on, **({CONFIRMED: confirmed} if confirmed else {})}
    return application(annotations=notes, **options)


def decided(app, *objects, since="", herd=None, rules=None, **values):
    return decide_confirmed(app, seen(*objects, rules=rules, **values), herd, since=since)


def after(app, decision):
    """The status that is written."""
    pass_ = seen(*AB)
    return settle(app, decision, pass_.rules, lambda found: record(found, pass_))


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
    app, herd = application(**OLD), Herd(Rules(moves_per_target=1))
    found = decided(app, *AB, m=0.1, n=0.9, since=SINCE, herd=herd)
    assert (found.outcome, found.target) == ("NotConfirmed", None)
    assert found.reason == (
        "it would be placed on 'b': to have it placed, run "
        "harbourmaster placement confirm app -n ns"
    )
    status = after(app, found)
    (shown,) = status.conditions
    assert (shown.type, shown.status, shown.reason) == ("Scheduled", "False", "NotConfirmed")
    # Nothing but the condition is written, and that once.
    assert replace(status, conditions=()) == app.status
    app = replace(app, status=status)
    assert waits(app)
    again = decided(app, *AB, m=0.2, n=0.8, since=SINCE)
    assert after(app, again) is app.status
    assert next_time(app, seen().rules, NOW) is None


def test_one_that_waits_and_fits_nowhere_says_so_without_values():
    found = decided(application(**OLD, labels=["x is y"]), *AB, since=SINCE)
    assert found.outcome == "NotConfirmed"
    assert found.reason.startswith("no cluster is suitable now: to have it placed, run ")


def test_one_that_ends_meanwhile_is_left_alone():
    found = decided(application(**OLD, deletionTimestamp=ago(1)), *AB, since=SINCE)
    assert found.outcome == "Waiting"


def test_a_confirmed_one_is_placed_as_any_other():
    app = application(**OLD, status=SHOWN, annotations={CONFIRMED: "true"})
    found = decided(app, *AB, m=0.1, n=0.9, since=SINCE)
    assert (found.outcome, found.target.name) == ("Placed", "b")
    status = after(app, found)
    assert status.scheduled_to.name == "b"
    assert [condition.status for condition in status.conditions] == ["True"]


def test_the_first_decision_takes_the_cluster_on_which_it_runs():
    found = decided(imported(), *AB, m=0.1, n=0.9)
    assert (found.outcome, found.target.name) == ("Placed", "a")
    assert found.reason == f"it runs there (annotation {CURRENT_CLUSTER})"
    for current in (cluster("a", status={"state": "Offline"}), cluster("a", {"m": 1})):
        found = decided(imported(migration=False), current, cluster("b"), m="no answer")
        assert found.target.name == "a"
    waiting = decided(imported(confirmed="false"), *AB, m=0.1, n=0.9)
    assert waiting.outcome == "NotConfirmed"
    assert waiting.reason.startswith("it would be placed on 'a': ")


def test_a_current_cluster_that_does_not_suit_is_left_as_always():
    app = imported(labels=["x is y"])
    found = decided(app, cluster("a"), cluster("b", labels={"x": "y"}))
    assert (found.outcome, found.target.name, found.is_elective) == ("Moved", "b", False)
    assert after(app, found).scheduled_to.name == "b"


@pytest.mark.parametrize("migration", [True, False])
def test_a_current_cluster_that_does_not_exist_is_an_error(migration):
    found = decided(imported("gone", migration=migration), *AB)
    assert found.outcome == "NoSuitableTarget"
    assert found.reason == (
        "Cluster 'gone' does not exist: create it, or remove the annotation "
        "placement.harbourmaster.dev/current-cluster"
    )


def test_once_it_is_placed_the_annotation_means_nothing():
    app = application(on="a", annotations={CURRENT_CLUSTER: "a"})
    assert decided(app, *AB, m=0.1, n=0.9).target.name == "b"
    assert decided(imported(labels=["IS"]), *AB).outcome == "InvalidConstraint"
