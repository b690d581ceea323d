"""Observes a pod, its victims and its node in the caches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harbourmaster.controller.rescheduling.caches import observation_of
from harbourmaster.rescheduling.fit import fits, static_reasons
from harbourmaster.rescheduling.flow_inputs import FlowInputs, Observation, preemption_is_stuck
from harbourmaster.rescheduling.flow_states import Binding, Evicting

if TYPE_CHECKING:
    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.flows import Flows
    from harbourmaster.rescheduling.flow_states import EvictionFlow
    from harbourmaster.rescheduling.model import PendingPod


class FlowObserver:
    """Reads the caches; nothing here waits."""

    def __init__(self, context: ReschedulingContext, flows: Flows) -> None:
        self._context = context
        self._flows = flows
        self._nominated: dict[str, tuple[str, float]] = {}

    def of(self, flow: EvictionFlow) -> Observation:
        """Return the observation of the pod."""
        return observation_of(flow.uid, self._context.caches.pods.store.get(flow.key))

    def nominated_to(self, node: str) -> list[str]:
        """The keys of the pods for which the scheduler preempts on a node."""
        uids = {uid for uid, (name, _) in self._nominated.items() if name == node}
        return [flow.key for flow in self._flows.by_key.values() if flow.uid in uids]

    def is_wanted(self, pending: PendingPod) -> bool:
        """Whether a flow begins with this pod."""
        if not self._context.caches.is_on or not pending.pod.is_critical:
            return False
        seen = observation_of(pending.pod.uid, pending)
        return seen in {Observation.WAITING, Observation.NOMINATED}

    def look(self, flow: EvictionFlow) -> FlowInputs:
        """All that the flow depends on."""
        caches = self._context.caches
        seen = self.of(flow)
        staying: set[str] = set()
        leaving: set[str] = set()
        for victim in flow.victims:
            pod = caches.pod(victim.key)
            if pod is not None and pod.uid == victim.uid:
                (staying if pod.deletion is None else leaving).add(victim.uid)
        return FlowInputs(
            observation=seen,
            is_on=caches.is_on,
            node_is_there=not flow.is_live or caches.cluster.node(flow.node) is not None,
            node_is_open=not isinstance(flow.state, Evicting) or self._is_open(flow),
            staying=frozenset(staying),
            leaving=frozenset(leaving),
            has_room=self._has_room(flow) if isinstance(flow.state, Binding) else None,
            is_stuck=self._is_stuck(flow, seen),
        )

    def stuck_on(self, flow: EvictionFlow) -> str:
        """The node on which a preemption gets nowhere; empty for none."""
        pending = self._context.caches.pending(flow.key)
        if pending is None or not self._is_stuck(flow, self.of(flow)):
            return ""
        return pending.nominated

    def _is_stuck(self, flow: EvictionFlow, seen: Observation) -> bool:
        pending = self._context.caches.pending(flow.key)
        if seen is not Observation.NOMINATED or pending is None:
            self._nominated.pop(flow.uid, None)
            return False
        now, node = self._context.clock(), pending.nominated
        known = self._nominated.get(flow.uid)
        if known is None or known[0] != node:
            known = self._nominated[flow.uid] = (node, now)
        ends = [
            pod.deletion
            for pod in self._context.caches.cluster.pods_on(node)
            if pod.deletion is not None
        ]
        return preemption_is_stuck(ends, now - known[1], self._context.now())

    def _is_open(self, flow: EvictionFlow) -> bool:
        cluster = self._context.caches.cluster
        node, pending = cluster.node(flow.node), self._context.caches.pending(flow.key)
        if node is None or pending is None:
            return False
        return not static_reasons(pending, node, taint_key=self._context.settings.taint_key)

    def _has_room(self, flow: EvictionFlow) -> bool | None:
        """Whether the pod fits on its node beside all that stay there."""
        cluster = self._context.caches.cluster
        node, pending = cluster.node(flow.node), self._context.caches.pending(flow.key)
        if node is None or pending is None:
            return None
        beside = [pod for pod in cluster.pods_on(flow.node) if pod.deletion is None]
        helped = [self._context.caches.pending(live.key) for live in self._flows.on(flow.node)]
        beside += [guest.pod for guest in helped if guest is not None and guest.pod.uid != flow.uid]
        return fits(pending, node, beside, namespaces=cluster.namespaces).fits
