"""What the flows in progress mean for the next plan: the order, and what the others take."""

from __future__ import annotations

from msgspec.structs import replace

from harbourmaster.controller.rescheduling.flows import Flows
from harbourmaster.rescheduling.flow_states import ActivePlan, Evicting, EvictionFlow, Planning
from harbourmaster.rescheduling.plans import Victim
from helpers.planning import critical, pod

PLANNING = Planning()


class Pods:
    """Caches with these pods."""

    def __init__(self, pending, bound=()):
        self._pending = {each.pod.key: each for each in pending}
        self._bound = {each.key: each for each in bound}

    def pending(self, key):
        return self._pending.get(key)

    def pod(self, key):
        return self._bound.get(key)


class Silent:
    """Notices that nobody reads."""

    def log_state(self, flow, why):
        pass


def flow(pending, state=PLANNING, **fields):
    pod = pending.pod
    return EvictionFlow(uid=pod.uid, key=pod.key, state=state, first_seen=0.0, **fields)


def test_plans_are_made_by_priority_then_by_time():
    pods = [critical("a"), critical("b"), critical("z", priority=9)]
    flows = Flows(Pods(pods), Silent())
    for pending, since in zip(pods, (2.0, 1.0, 3.0), strict=True):
        flows.put(flow(pending, unschedulable_since=since))
    assert [each.key[-1] for each in flows.planning()] == ["z", "b", "a"]


def test_what_another_flow_takes_counts():
    first, second = critical("c"), critical("d")
    bound = [pod("v0"), pod("v1"), pod("gone", deletion=1.0)]
    victims = tuple(
        Victim(
            uid=each.uid, namespace=each.namespace, name=each.name, node="n1", budget="default/b"
        )
        for each in bound
    )
    flows = Flows(Pods([first, second], bound), Silent())
    plan = ActivePlan(node="n1", tier=1, victims=victims, deadline=600.0)
    flows.put(flow(first, Evicting(plan)))
    waiting = flows.put(flow(second))
    found = flows.circumstances(waiting, 0.0, frozenset(("owner",)))
    assert found.reserved == {"n1": [first.pod]}
    assert found.departing == {each.uid for each in bound}
    assert found.claimed == {"default/b": 2}
    assert found.spared_owners == {"owner"}
    own = flows.circumstances(replace(waiting, uid=first.pod.uid), 0.0, frozenset())
    assert (own.reserved, own.claimed) == ({}, {})
