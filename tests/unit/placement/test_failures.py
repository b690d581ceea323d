"""Applications that never get ready on their cluster: when they move on, and when they stay.

These tests prove krake-spec 7.7.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from harbourmaster.api.times import parse_rfc3339
from harbourmaster.placement.application_decisions import decide
from harbourmaster.placement.application_status import next_time, settle
from harbourmaster.placement.decision import record
from harbourmaster.placement.model import Condition, with_conditions
from harbourmaster.placement.rules import Rules
from helpers.placing import (
    NOW,
    ago,
    application,
    cluster,
    decide_on,
    matching_targets,
    reason,
    start_pass,
)

CLUSTERS = (cluster("a", {"m": 1}), cluster("b", {"n": 1}), cluster("c", {"k": 1}))
VALUES = {"m": 0.9, "n": 0.5, "k": 0.1}
FULL = "Deployment shop/web: 0 of 1 are available"
REFUSED = ("Forbidden", "NotFound", "InvalidManifests", "UnknownKind", "ObjectExists")


def condition_json(kind, status, reason, message="", *, since=3600, generation=1):
    times = {"lastTransitionTime": ago(since), "observedGeneration": generation}
    return {"type": kind, "status": status, "reason": reason, "message": message, **times}


def waiting(on="a", *conditions, scheduled=600, status=None, **more):
    """Return an application that has been on its cluster for some seconds and is not ready."""
    deployed = (
        condition_json("Deployed", "True", "Applied"),
        condition_json("Ready", "False", "ObjectsNotReady", FULL),
    )
    status = {"awaitsReady": True, "conditions": conditions or deployed, **(status or {})}
    return application(on=on, scheduled=scheduled, status=status, **more)


@pytest.mark.parametrize("reason", ["WaitingAtGate", "WaitingForAddress"])
def test_a_wait_at_a_gate_or_for_an_address_is_no_failure_of_the_cluster(reason):
    deployed = condition_json("Deployed", "True", "Applied")
    app = waiting("a", deployed, condition_json("Ready", "False", reason), scheduled=86400)
    assert decide_on(app, *CLUSTERS, **VALUES).stays


def test_an_application_at_a_gate_moves_to_no_better_cluster():
    at_gate = condition_json("Ready", "False", "WaitingAtGate")
    better = (cluster("a", {"m": 1}), cluster("b", {"n": 1}))
    app = application(on="a", status={"conditions": [at_gate]})
    decision = decide_on(app, *better, m=0.1, n=0.9)
    assert decision.reason == "'b' has the best score, 0.9, but a pod waits at a scheduling gate"
    wanted = application(on="a", status={"conditions": [at_gate]}, labels=["x is y"])
    assert decide_on(wanted, better[0], cluster("b", labels={"x": "y"}), m=1).chosen == ["b"]


def test_after_a_gate_an_application_has_its_time_to_get_ready():
    ready = Condition(type="Ready", status="False", reason="WaitingAtGate")
    started = replace(ready, reason="ObjectsNotReady")
    at_gate = with_conditions((), ago(900), ready)
    (since,) = with_conditions(at_gate, ago(599), started)
    assert since.last_transition_time == ago(599)
    deployed = condition_json("Deployed", "True", "Applied")
    for seconds, stays in ((599, True), (600, False)):
        unready = condition_json("Ready", "False", "ObjectsNotReady", since=seconds)
        app = waiting("a", deployed, unready, scheduled=86400)
        assert decide_on(app, *CLUSTERS, **VALUES).stays is stays


def refused_application(reason, since=30, **more):
    return waiting("a", condition_json("Deployed", "False", reason, "no", since=since), **more)


def with_observed_conditions(app):
    """Return the application with all its conditions observed at generation 1."""
    conditions = [replace(condition, observed_generation=1) for condition in app.status.conditions]
    status = replace(app.status, conditions=tuple(conditions))
    return replace(app, status=status)


def after(app, *clusters, now=NOW, rules=None, **values):
    """Return the application with its next status."""
    view = start_pass(*clusters, now=now, rules=rules, **values)
    status = settle(app, decide(app, view), view.rules, lambda decision: record(decision, view))
    return replace(app, status=status)


def test_an_application_that_is_not_ready_in_time_goes_to_the_next_best_cluster():
    early = decide_on(waiting(scheduled=599), *CLUSTERS, **VALUES)
    assert (early.outcome, early.until) == ("Stayed", NOW + timedelta(seconds=1))
    decision = decide_on(waiting(), *CLUSTERS, **VALUES)
    assert (decision.outcome, decision.chosen, decision.is_elective) == ("Moved", ["b"], False)
    assert decision.cause == "Failed"
    why = f"the application failed there: not ready after 600 seconds: {FULL}"
    assert reason(decision, "a") == why
    assert decision.reason == f"'a' is excluded ({why}); 'b' has the best score, 0.5"


def test_it_is_looked_at_again_when_it_fails_in_time():
    app = waiting(scheduled=590)
    decision = decide_on(app, *CLUSTERS, **VALUES)
    assert next_time(app, Rules(), NOW, decision.until) == NOW + timedelta(seconds=10)
    assert next_time(app, Rules(), NOW) == NOW + timedelta(seconds=10)
    early = waiting(scheduled=15)
    assert next_time(early, Rules(), NOW, NOW + timedelta(seconds=5)) == NOW + timedelta(seconds=5)
    assert next_time(early, Rules(), NOW, NOW) == NOW + timedelta(seconds=45)


@pytest.mark.parametrize("word", REFUSED)
def test_a_cluster_that_refuses_objects_is_left_after_a_moment(word):
    assert decide_on(refused_application(word, since=29), *CLUSTERS, **VALUES).stays
    decision = decide_on(refused_application(word), *CLUSTERS, **VALUES)
    assert decision.chosen == ["b"]
    assert reason(decision, "a") == "the application failed there: no"


def test_the_reason_names_what_was_refused():
    # Nothing else says it: the condition Ready has no message as long as objects are missing.
    deploying = condition_json("Ready", "False", "Deploying")
    text = 'Issuer main: failed calling webhook "issuers"'
    refused = condition_json("Deployed", "False", "ApplyFailed", text)
    decision = decide_on(waiting("a", refused, deploying), *CLUSTERS, **VALUES)
    assert decision.failed.reason == f"not ready after 600 seconds: {text}"


def test_a_refusal_counts_from_the_time_at_which_it_was_placed():
    assert decide_on(
        refused_application("NotFound", since=500, scheduled=29), *CLUSTERS, **VALUES
    ).stays
    assert decide_on(
        refused_application("NotFound", since=500, scheduled=30), *CLUSTERS, **VALUES
    ).target


@pytest.mark.parametrize("word", ["ApplyFailed", "Deploying", "Migrating", "CheckFailed"])
def test_what_may_pass_is_no_refusal(word):
    assert decide_on(refused_application(word, scheduled=500), *CLUSTERS, **VALUES).stays


@pytest.mark.parametrize(
    "app",
    [
        waiting(status={"awaitsReady": False}),
        waiting(generation=2),
        waiting(status={"conditions": []}),
        waiting("a", condition_json("Deployed", "False", "Forbidden", generation=0)),
        waiting("a", condition_json("Deployed", "False", "SecretNotCopied")),
        waiting("a", condition_json("Deployed", "False", "ForeignObject")),
        waiting("a", condition_json("Deployed", "False", "MalformedManifest")),
        waiting(migration=False),
        waiting(status={"suspendedUntil": ago(-100)}),
        waiting(status={"lastDecision": {"time": ago(100), "generation": 1}}),
    ],
    ids=[
        "was ready there",
        "a new generation",
        "nothing deployed",
        "seen before the change",
        "a reason that no cluster changes",
        "objects of an earlier copy",
        "a manifest that no cluster takes",
        "must not move",
        "suspended",
        "handed over lately",
    ],
)
def test_some_do_not_fail(app):
    assert decide_on(app, *CLUSTERS, **VALUES).stays


def test_nothing_fails_where_that_is_set_or_the_cluster_does_not_answer():
    assert decide_on(waiting(), *CLUSTERS, rules={"on_failure": "Stay"}, **VALUES).stays
    silent = [{"type": "Reachable", "status": "False", "reason": "NoAnswer"}]
    lost = cluster("a", status={"state": "Offline", "conditions": silent})
    assert decide_on(waiting(), lost, cluster("b")).stays
    move = {"on_unreachable": "Move", "offline_after_seconds": 0}
    left = decide_on(waiting(), lost, cluster("b"), rules=move)
    assert (left.cause, left.failed) == ("NoAnswer", None)
    back = [{"type": "Reachable", "status": "True", "lastTransitionTime": ago(599)}]
    returned = cluster("a", status={"state": "Online", "conditions": back})
    assert decide_on(waiting(), returned, cluster("b")).stays


def test_volumes_keep_a_failed_application():
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}}
    decision = decide_on(waiting(manifests=[claim]), *CLUSTERS, **VALUES)
    assert decision.stays
    assert "but a move would lose data of its PersistentVolumeClaim data: " in decision.reason


def test_it_tries_each_cluster_once_and_stays_on_the_last():
    app, now, places = waiting(), NOW, []
    for _ in range(6):
        app = with_observed_conditions(after(app, *CLUSTERS, now=now, **VALUES))
        places.append(app.status.scheduled_to.name)
        now += timedelta(seconds=600)
    assert places == ["b", "c", "c", "c", "c", "c"]
    assert [cluster.name for cluster in app.status.failed_clusters] == ["a", "b"]
    first = app.status.failed_clusters[0]
    assert (first.uid, first.generation, first.revision) == ("uid-a", 1, "1")
    assert (first.time, first.reason) == (ago(0), f"not ready after 600 seconds: {FULL}")
    assert app.status.awaits_ready
    assert app.status.recent_moves == ()


def test_a_cluster_is_not_blamed_for_the_refusal_of_the_one_before():
    moved = after(refused_application("Forbidden"), *CLUSTERS, **VALUES)
    later = NOW + timedelta(seconds=700)
    assert decide_on(moved, *CLUSTERS, now=later, **VALUES).stays
    assert decide_on(with_observed_conditions(moved), *CLUSTERS, now=later, **VALUES).chosen == [
        "c"
    ]


def test_a_failure_is_forgotten_when_the_cluster_or_the_application_changes():
    app = after(waiting(), *CLUSTERS, **VALUES)
    later = NOW + timedelta(seconds=60)
    assert decide_on(app, *CLUSTERS, now=later, **VALUES).stays
    changed = cluster("a", {"m": 1}, generation=2)
    assert decide_on(app, changed, *CLUSTERS[1:], now=later, **VALUES).chosen == ["a"]
    anew = cluster("a", {"m": 1}, uid="other")
    assert decide_on(app, anew, *CLUSTERS[1:], now=later, **VALUES).chosen == ["a"]
    metadata = replace(app.metadata, generation=2)
    update = replace(app, metadata=metadata)
    moved = after(update, *CLUSTERS, now=later, **VALUES)
    assert moved.status.scheduled_to.name == "a"
    assert moved.status.failed_clusters == ()


def test_the_kinds_that_were_missing_are_recorded():
    shirt = {"apiVersion": "example.com/v1", "kind": "Shirt"}
    without = cluster("a", status={"state": "Online", "servedKinds": ["example.com/v1/Boat"]})
    decision = decide_on(
        refused_application("UnknownKind", manifests=[shirt]), without, cluster("b")
    )
    assert decision.failed.revision == "1, example.com/v1/Shirt"


def test_a_change_of_the_application_has_its_time_to_get_ready():
    app = after(waiting(), *CLUSTERS, **VALUES)
    now = parse_rfc3339(app.status.scheduled_time) + timedelta(seconds=3000)
    metadata = replace(app.metadata, generation=2)
    spec = replace(app.spec, constraints=None)
    only = [cluster for cluster in CLUSTERS if cluster.metadata.name != "a"]
    app = after(replace(app, metadata=metadata, spec=spec), *only, now=now, **VALUES)
    seen_now = [replace(condition, observed_generation=2) for condition in app.status.conditions]
    status = replace(app.status, conditions=tuple(seen_now))
    app = replace(app, status=status)
    soon = now + timedelta(seconds=599)
    assert decide_on(app, *only, now=soon, **VALUES).stays
    assert decide_on(app, *only, now=now + timedelta(seconds=600), **VALUES).chosen == ["c"]


def test_a_failed_cluster_that_is_full_is_not_chosen_by_others_moves():
    status = {"failedClusters": [{"name": "b", "uid": "uid-b", "generation": 1, "revision": "1"}]}
    app = application(on="c", status=status)
    decision = decide_on(app, *CLUSTERS[1:], **VALUES)
    assert decision.stays
    assert reason(decision, "b").startswith("the application failed there")
    assert matching_targets(decision) == ["c"]


def test_a_cluster_to_which_it_returns_has_not_failed_any_more():
    app = after(waiting(), *CLUSTERS, **VALUES)
    assert [failed_cluster.name for failed_cluster in app.status.failed_clusters] == ["a"]
    changed = cluster("a", {"m": 1}, generation=2)
    returned = after(app, changed, *CLUSTERS[1:], now=NOW + timedelta(seconds=60), **VALUES)
    assert returned.status.scheduled_to.name == "a"
    # Otherwise a later move from there would delete first, whatever its migrationOrder is.
    assert returned.status.failed_clusters == ()


def test_what_was_written_before_this_term_is_looked_at_anew_before_anything_moves():
    silent = {"type": "Reachable", "status": "False", "reason": "NoAnswer"}
    silent["lastTransitionTime"] = ago(86400)
    lost = cluster("a", status={"state": "Offline", "conditions": [silent]})

    def stays(app, *clusters, begun):
        view = start_pass(*clusters, rules={"on_unreachable": "Move"}, **VALUES)
        view.begun = NOW - timedelta(seconds=begun)
        return decide(app, view).stays

    running = application(on="a")
    assert stays(running, lost, cluster("b"), begun=299)
    assert not stays(running, lost, cluster("b"), begun=300)
    assert stays(waiting(scheduled=86400), *CLUSTERS, begun=599)
    assert not stays(waiting(scheduled=86400), *CLUSTERS, begun=600)
    # The refusal may be one of the cluster before.
    assert stays(refused_application("Invalid", since=86400), *CLUSTERS, begun=29)
    assert not stays(refused_application("Invalid", since=86400), *CLUSTERS, begun=30)
