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
    ClusterObservation,
    NodeCondition,
    ObservedNode,
    observe,
    recorded,
)
from harbourmaster.placement.model import Cluster, ClusterStatus, Condition, condition, updated

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
NO_METRICS = Condition(type=METRICS_AVAILABLE, status="False", reason="Unknown")


def node(name="n", **conditions):
    return ObservedNode(
        name, tuple(NodeCondition(kind, status) for kind, status in conditions.items())
    )


def is_ready(found):
    """Whether applications may go to a cluster of this status."""
    status = ClusterStatus(state=found.state, conditions=found.conditions)
    return not unready(Cluster(metadata=Metadata(), status=status))


def said(state="", conditions=(), now=NOW, **seen):
    return observe(state, conditions, ClusterObservation(**seen), now)


def test_nothing_is_said_before_it_was_asked():
    found = said()
    assert (found.state, found.conditions) == (PENDING, ())
    assert said(ONLINE, (NO_METRICS,)).state == ONLINE


@pytest.mark.parametrize(
    ("nodes", "state", "message"),
    [
        ((), ONLINE, ""),
        ((node(Ready="True", MemoryPressure="False"),), ONLINE, ""),
        ((node(Ready="False"),), NOT_READY, "node n is not ready"),
        ((node(Ready="Unknown"),), NOT_READY, "node n is not ready"),
        ((node(DiskPressure="True", Ready="True"),), UNHEALTHY, "node n has DiskPressure"),
        ((node(PIDPressure="Unknown", Ready="True"),), ONLINE, ""),
        # The first one in the order of nodes and conditions counts.
        (
            (node("a", Ready="False"), node("b", DiskPressure="True")),
            NOT_READY,
            "node a is not ready",
        ),
        ((node("a", DiskPressure="True", Ready="False"),), UNHEALTHY, "node a has DiskPressure"),
    ],
)
def test_the_state_of_a_cluster_that_answers(nodes, state, message):
    found = said(ONLINE, answers=True, nodes=nodes)
    assert found.state == state
    ready = condition(found.conditions, "NodesReady")
    assert ready.message == message
    assert is_ready(found) == (state == ONLINE)


def test_nodes_that_may_not_be_seen_are_not_ready():
    found = said(ONLINE, answers=True, nodes_fault="forbidden")
    assert found.state == NOT_READY
    assert condition(found.conditions, "NodesReady").message == "forbidden"
    assert condition(found.conditions, "Reachable").status == "True"


def test_offline_then_connecting_then_online():
    offline = said(ONLINE, answers=False, fault="refused")
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
    denied = said(ONLINE, answers=False, fault="401", is_denied=True)
    assert denied.state == OFFLINE
    reachable = condition(denied.conditions, "Reachable")
    assert (reachable.status, reachable.reason) == ("False", "InvalidCredentials")
    silent = said(ONLINE, answers=False, fault="refused")
    assert condition(silent.conditions, "Reachable").reason == "NoAnswer"


def test_metrics_are_beside_reachability():
    failing = said(ONLINE, (NO_METRICS,), answers=True)
    assert failing.state == FAILING_METRICS
    assert condition(failing.conditions, METRICS_AVAILABLE) == NO_METRICS
    gone = said(FAILING_METRICS, failing.conditions, answers=False)
    assert gone.state == OFFLINE
    assert condition(gone.conditions, METRICS_AVAILABLE) == NO_METRICS


def test_a_transition_is_one_of_the_status():
    (first,) = updated((), NOW, Condition(type="A", status="True", reason="x"))
    (second,) = updated((first,), LATER, Condition(type="A", status="True", reason="y"))
    assert (second.reason, second.last_transition_time) == ("y", NOW)
    (third,) = updated((second,), LATER, Condition(type="A", status="False"))
    assert third.last_transition_time == LATER


def test_a_verdict_that_stays_is_equal():
    found = said(ONLINE, answers=True)
    assert observe(found.state, found.conditions, ClusterObservation(True), LATER) == found


def test_a_status_is_cut_to_what_can_be_stored():
    few = ("a.example.com", "b.example.com")
    assert recorded(few) == few
    many = [f"boats{number}.example.com" for number in range(100_000)]
    assert sum(map(len, recorded(many))) < 256 * 1024
    assert recorded(many) == tuple(many[: len(recorded(many))])
    node = ObservedNode("n" * 100_000, (NodeCondition("Ready", "False"),))
    verdict = observe(ONLINE, (), ClusterObservation(True, "", (node,)), NOW)
    assert max(len(each.message) for each in verdict.conditions) == 1024
