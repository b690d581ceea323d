"""The flows in progress decide the order of plans, and reserve resources from the next one."""

from __future__ import annotations

from msgspec.structs import replace

from harbourmaster.controller.rescheduling.flows import Flows
from harbourmaster.rescheduling.flow_model import ActivePlan, Evicting, EvictionFlow, Planning
from harbourmaster.rescheduling.plans import Victim
from helpers.planning import critical, pod

PLANNING = Planning()


class Pods:
    """Caches that hold some pending and bound pods."""

    def __init__(self, pending, bound=()):
        self._pending = {waiting.pod.key: waiting for waiting in pending}
        self._bound = {bound_pod.key: bound_pod for bound_pod in bound}

    def pending(self, key):
        return self._pending.get(key)

    def pod(self, key):
        return self._bound.get(key)


class Silent:
    """Notices that drop all messages."""

    def log_state(self, flow, why):
        pass


def flow(pending, state=PLANNING, **fields):
    pod = pending.pod
    return EvictionFlow(uid=pod.uid, key=pod.key, state=state, first_seen=0.0, **fields)


def test_plans_are_made_by_priority_then_by_time():
    """Important pods are helped first (rescheduler-spec 5.6)."""
    pods = [critical("a", priority=5), critical("b", priority=5), critical("z", priority=9)]
    flows = Flows(Pods(pods), Silent())
    for pending, since in zip(pods, (2.0, 1.0, 3.0), strict=True):
        flows.put(flow(pending, unschedulable_since=since))
    assert [planning_flow.key[-1] for planning_flow in flows.planning()] == ["z", "b", "a"]


def test_what_another_flow_takes_counts():
    first, second = critical("c"), critical("d")
    bound = [pod("v0"), pod("v1"), pod("gone", deletion=1.0)]
    victims = tuple(
        Victim(
            uid=victim.uid,
            namespace=victim.namespace,
            name=victim.name,
            node="n1",
            budget="default/b",
        )
        for victim in bound
    )
    flows = Flows(Pods([first, second], bound), Silent())
    plan = ActivePlan(node="n1", tier=1, victims=victims, deadline=600.0)
    flows.put(flow(first, Evicting(plan)))
    waiting = flows.put(flow(second))
    circumstances = flows.circumstances(waiting, 0.0, frozenset(("owner",)))
    assert circumstances.reserved == {"n1": [first.pod]}
    assert circumstances.departing == {victim.uid for victim in bound}
    assert circumstances.claimed == {"default/b": 2}
    assert circumstances.spared_owners == {"owner"}
    own = flows.circumstances(replace(waiting, uid=first.pod.uid), 0.0, frozenset())
    assert (own.reserved, own.claimed) == ({}, {})
