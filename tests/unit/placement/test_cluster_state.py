"""The state of a cluster follows from its answers (krake-spec 1.3)."""

from __future__ import annotations

import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.placement.candidates import unready
from harbourmaster.placement.cluster_state import (
    CONNECTING,
    FAILING_METRICS,
    METRICS_AVAILABLE,
    NOT_READY,
    OFFLINE,
    ONLINE,
    PENDING,
    UNHEALTHY,
    WITHIN_LIMITS,
    ClusterObservation,
    NodeCondition,
    ObservedNode,
    limit_names,
    observe,
)
from harbourmaster.placement.model import (
    Cluster,
    ClusterStatus,
    Condition,
    condition,
    with_conditions,
)

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
EVEN_LATER = "2026-01-01T00:02:00Z"
NO_METRICS = Condition(type=METRICS_AVAILABLE, status="False", reason="Unknown")


def node(name="n", **conditions):
    return ObservedNode(
        name, tuple(NodeCondition(kind, status) for kind, status in conditions.items())
    )


def is_ready(observed):
    """Whether a cluster with this state accepts applications."""
    status = ClusterStatus(state=observed.state, conditions=observed.conditions)
    return not unready(Cluster(metadata=Metadata(), status=status))


def observe_after(state="", conditions=(), now=NOW, **seen):
    return observe(state, conditions, ClusterObservation(**seen), now)


def test_an_excess_is_a_condition_until_it_has_ended():
    seen = observe_after(ONLINE, answers=True, excess="list /nodes: a list of more than 2 pages")
    limits = condition(seen.conditions, WITHIN_LIMITS)
    assert (seen.state, limits.status, limits.reason) == (ONLINE, "False", "LimitExceeded")
    assert limits.message == (
        "list /nodes: a list of more than 2 pages: correct its API server, or reduce its objects"
    )
    later = observe_after(ONLINE, seen.conditions, LATER, answers=False, excess="still")
    assert condition(later.conditions, WITHIN_LIMITS).status == "False"
    ended = observe_after(ONLINE, seen.conditions, LATER, answers=True)
    assert condition(ended.conditions, WITHIN_LIMITS).status == "True"
    assert condition(observe_after(ONLINE, answers=True).conditions, WITHIN_LIMITS) is None
    assert condition(observe_after(excess="list").conditions, WITHIN_LIMITS).status == "False"


def test_nothing_is_said_before_it_was_asked():
    observed = observe_after()
    assert (observed.state, observed.conditions) == (PENDING, ())
    assert observe_after(ONLINE, (NO_METRICS,)).state == ONLINE


@pytest.mark.parametrize(
    ("nodes", "state", "message"),
    [
        ((), ONLINE, ""),
        ((node(Ready="True", MemoryPressure="False"),), ONLINE, ""),
        ((node(Ready="False"),), NOT_READY, "0 of 1 nodes are ready: node n is not ready"),
        ((node(Ready="Unknown"),), NOT_READY, "0 of 1 nodes are ready: node n is not ready"),
        (
            (node(DiskPressure="True", Ready="True"),),
            UNHEALTHY,
            "0 of 1 nodes are ready: node n has DiskPressure",
        ),
        ((node(PIDPressure="Unknown", Ready="True"),), ONLINE, ""),
        # The first one in the order of nodes and conditions counts.
        (
            (node("a", Ready="False"), node("b", DiskPressure="True")),
            NOT_READY,
            "0 of 2 nodes are ready: node a is not ready",
        ),
        (
            (node("a", DiskPressure="True", Ready="False"),),
            UNHEALTHY,
            "0 of 1 nodes are ready: node a has DiskPressure",
        ),
        (
            (node("a", Ready="False"), node("b", Ready="True")),
            ONLINE,
            "1 of 2 nodes are ready: node a is not ready",
        ),
        (
            (node("a", Ready="True"), node("b", Ready="False"), node("c", PIDPressure="True")),
            NOT_READY,
            "1 of 3 nodes are ready: node b is not ready",
        ),
    ],
)
def test_the_state_of_a_cluster_that_answers(nodes, state, message):
    observed = observe_after(ONLINE, answers=True, nodes=nodes)
    assert observed.state == state
    ready = condition(observed.conditions, "NodesReady")
    assert ready.message == message
    assert is_ready(observed) == (state == ONLINE)


@pytest.mark.parametrize(
    ("percent", "ready", "state"),
    [
        (50, 1, NOT_READY),
        (50, 2, ONLINE),
        (0, 0, NOT_READY),
        (0, 1, ONLINE),
        (100, 3, NOT_READY),
        (100, 4, ONLINE),
        (75, 3, ONLINE),
        (76, 3, NOT_READY),
    ],
)
def test_so_many_nodes_of_four_must_be_ready(percent, ready, state):
    nodes = tuple(node(f"n{number}", Ready=str(number < ready)) for number in range(4))
    observed = observe(
        ONLINE, (), ClusterObservation(True, "", nodes), NOW, min_ready_percent=percent
    )
    assert observed.state == state


def test_the_time_without_an_answer_does_not_include_refused_credentials():
    denied = observe_after(ONLINE, answers=False, fault="401", is_denied=True)
    silent = observe_after(
        denied.state, denied.conditions, now=LATER, answers=False, fault="refused"
    )
    assert condition(silent.conditions, "Reachable").last_transition_time == LATER
    longer = observe_after(
        silent.state, silent.conditions, now=EVEN_LATER, answers=False, fault="timeout"
    )
    assert condition(longer.conditions, "Reachable").last_transition_time == LATER
    again = observe_after(ONLINE, longer.conditions, now=EVEN_LATER, answers=True)
    assert condition(again.conditions, "Reachable").last_transition_time == EVEN_LATER


def test_nodes_that_may_not_be_seen_are_not_ready():
    observed = observe_after(ONLINE, answers=True, nodes_fault="forbidden")
    assert observed.state == NOT_READY
    assert condition(observed.conditions, "NodesReady").message == "forbidden"
    assert condition(observed.conditions, "Reachable").status == "True"


def test_offline_then_connecting_then_online():
    offline = observe_after(ONLINE, answers=False, fault="refused")
    assert offline.state == OFFLINE
    assert condition(offline.conditions, "Reachable").message == "refused"
    connecting = observe(OFFLINE, offline.conditions, ClusterObservation(True), NOW)
    assert connecting.state == CONNECTING
    assert not is_ready(connecting)
    online = observe(CONNECTING, connecting.conditions, ClusterObservation(True), LATER)
    assert online.state == ONLINE
    assert is_ready(online)
    assert condition(online.conditions, "Reachable").last_transition_time == LATER


def test_a_cluster_that_refuses_our_credentials_says_so():
    denied = observe_after(ONLINE, answers=False, fault="401", is_denied=True)
    assert denied.state == OFFLINE
    reachable = condition(denied.conditions, "Reachable")
    assert (reachable.status, reachable.reason) == ("False", "InvalidCredentials")
    silent = observe_after(ONLINE, answers=False, fault="refused")
    assert condition(silent.conditions, "Reachable").reason == "NoAnswer"


def test_metrics_are_beside_reachability():
    failing = observe_after(ONLINE, (NO_METRICS,), answers=True)
    assert failing.state == FAILING_METRICS
    assert condition(failing.conditions, METRICS_AVAILABLE) == NO_METRICS
    gone = observe_after(FAILING_METRICS, failing.conditions, answers=False)
    assert gone.state == OFFLINE
    assert condition(gone.conditions, METRICS_AVAILABLE) == NO_METRICS


def test_a_transition_is_one_of_the_status():
    (first,) = with_conditions((), NOW, Condition(type="A", status="True", reason="x"))
    (second,) = with_conditions((first,), LATER, Condition(type="A", status="True", reason="y"))
    assert (second.reason, second.last_transition_time) == ("y", NOW)
    (third,) = with_conditions((second,), LATER, Condition(type="A", status="False"))
    assert third.last_transition_time == LATER


def test_a_verdict_that_stays_is_equal():
    observed = observe_after(ONLINE, answers=True)
    assert observe(observed.state, observed.conditions, ClusterObservation(True), LATER) == observed


def test_a_status_is_cut_to_what_can_be_stored():
    few = ("a.example.com", "b.example.com")
    assert limit_names(few) == few
    many = [f"boats{number}.example.com" for number in range(100_000)]
    assert sum(map(len, limit_names(many))) < 256 * 1024
    assert limit_names(many) == tuple(many[: len(limit_names(many))])
    node = ObservedNode("n" * 100_000, (NodeCondition("Ready", "False"),))
    verdict = observe(ONLINE, (), ClusterObservation(True, "", (node,)), NOW)
    assert max(len(condition.message) for condition in verdict.conditions) == 1024
