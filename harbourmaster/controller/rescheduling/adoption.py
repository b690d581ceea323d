"""Adopts, renews and removes reservations on nodes (rescheduler-spec 6.3).

The annotations of a node are compared with the current flows, never with earlier writes, so that
a crash, a lost answer and a write of another client all end the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.controller.rescheduling.caches import observation_of
from harbourmaster.controller.rescheduling.node_writer import WriteResult
from harbourmaster.rescheduling.flow import apply_event
from harbourmaster.rescheduling.flow_model import (
    Abandoned,
    ActivePlan,
    Adopted,
    EvictionFlow,
    Observation,
    Reserving,
)
from harbourmaster.rescheduling.plans import Victim
from harbourmaster.rescheduling.reservation import arrange, is_legacy, is_ours, parse
from harbourmaster.rescheduling.taints import NO_SCHEDULE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.flow_planner import FlowPlanner
    from harbourmaster.controller.rescheduling.flows import Flows
    from harbourmaster.controller.rescheduling.node_writer import NodeWriter
    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.reservation import Held, Reservation

_SETTLED: Final = frozenset((WriteResult.DONE, WriteResult.NOTHING, WriteResult.GONE))
_WAITING: Final = frozenset((Observation.WAITING, Observation.QUIET, Observation.NOMINATED))


class ReservationAdopter:
    """Keeps the reservations on nodes as the flows want them."""

    def __init__(
        self,
        context: ReschedulingContext,
        flows: Flows,
        planner: FlowPlanner,
        node_writer: NodeWriter,
    ) -> None:
        self._context = context
        self._flows = flows
        self._planner = planner
        self._node_writer = node_writer

    @property
    def is_on(self) -> bool:
        """Whether nodes may be kept at all."""
        return self._context.caches.is_on and not self._context.settings.dry_run

    def find_marked(self) -> Iterator[Node]:
        """The nodes with anything of ours, or of which we believe that."""
        waiting = self._flows.nodes() | {node for node, _ in self._flows.released}
        for node in self._context.caches.cluster.nodes():
            if node.name in waiting or self.has_ours(node):
                yield node

    def has_ours(self, node: Node) -> bool:
        """Whether the node carries something that is ours to remove."""
        return (
            node.reservations is not None
            or bool(self._values_of_ours(node))
            or (self._removes_legacy and self._has_legacy(node))
        )

    def adopt(self, node: Node) -> list[EvictionFlow]:
        """Go on with what a leader before us began on the node, where that is still wanted."""
        if not self.is_on:
            return []
        flows = [
            self._adopt_reservation(node, reservation)
            for reservation in parse(node.reservations)
            if (node.name, reservation.uid) not in self._flows.released
        ]
        return [self._flows.put(flow, "adopted") for flow in flows if flow is not None]

    async def settle(self, name: str) -> list[EvictionFlow]:
        """Bring a node to where it should be; returns what was adopted. Raises ApiError."""
        flows = self._flows
        node = self._context.caches.cluster.node(name)
        if node is None:
            flows.note_gone(name, flows.released_on(name), self._context.clock())
            return []
        adopted = self.adopt(node)
        if self._is_right(node):
            return adopted
        released = flows.released_on(name)
        shown = {reservation.uid for reservation in parse(node.reservations)}
        extra = (shown | released.keys()) - self._flows_on(name).keys()
        is_stale = bool(extra - released.keys()) or (not shown and bool(self._values_of_ours(node)))
        written = await self._node_writer.write(name, lambda held: self._arrange(held, extra))
        if written in _SETTLED:
            flows.note_gone(name, extra, self._context.clock())
        if written is WriteResult.DONE and (extra or is_stale):
            self._context.notices.report_removal(node, stale=is_stale)
        return adopted

    def _is_right(self, node: Node) -> bool:
        """Whether nothing is to be written, as far as the cache knows."""
        released, kept = self._flows.released_on(node.name), self._flows_on(node.name)
        if not all(released.values()):
            return False
        shown = {reservation.uid for reservation in parse(node.reservations)}
        # The cache may be behind.
        gone = {uid for uid, is_gone in released.items() if is_gone}
        if shown - gone != kept.keys():
            return False
        if kept:
            return bool(self._values_of_ours(node)) or self._is_anothers(node)
        return bool(shown) or not self.has_ours(node)

    def _arrange(self, held: Held, extra: set[str]) -> list[dict[str, Any]]:
        kept = self._flows_on(held.name)
        # A reservation that is not known yet is adopted with its watch event.
        kept_reservations = [
            reservation
            for reservation in held.reservations
            if reservation.uid in kept or reservation.uid not in extra
        ]
        present = {reservation.uid for reservation in kept_reservations}
        missing = [
            self._planner.record(flow)
            for uid, flow in kept.items()
            if uid not in present and not isinstance(flow.state, Reserving)
        ]
        settings = self._context.settings
        legacy = self._pending_keys() if self._removes_legacy else None
        return arrange(held, [*kept_reservations, *missing], settings.taint_key, legacy=legacy)

    def _flows_on(self, name: str) -> dict[str, EvictionFlow]:
        return {flow.uid: flow for flow in self._flows.on(name)} if self.is_on else {}

    def _adopt_reservation(self, node: Node, reservation: Reservation) -> EvictionFlow | None:
        context = self._context
        pending = context.caches.pending(reservation.pod)
        seen = observation_of(reservation.uid, context.caches.pods.store.get(reservation.pod))
        flow = self._flows.by_key.get(reservation.pod)
        if flow is not None and flow.uid != reservation.uid:
            flow = None
        if pending is None or seen not in _WAITING or (flow is not None and flow.is_live):
            return None
        now = context.clock()
        context.history.attempts.recall(reservation.uid, reservation.attempt)
        left = min(reservation.ends - context.now(), context.settings.pod_scheduled_timeout_seconds)
        begun = EvictionFlow(
            uid=reservation.uid,
            key=reservation.pod,
            owner=pending.pod.owner,
            first_seen=now,
            unschedulable_since=now,
            attempt=reservation.attempt,
        )
        if left <= 0:
            if flow is not None:
                return None
            pause = context.history.attempts.pause(reservation.uid, context.chance())
            return apply_event(begun, Abandoned(now + pause), now)
        gone = self._victims(node.name, reservation)
        plan = ActivePlan(
            node=node.name,
            tier=reservation.tier,
            victims=gone,
            deadline=now + left,
            recorded_since=reservation.since,
            accepted=frozenset(victim.uid for victim in gone),
        )
        return apply_event(begun, Adopted(plan), now)

    def _victims(self, node: str, reservation: Reservation) -> tuple[Victim, ...]:
        """Those that were evicted already; of the others, only the API can tell."""
        departed = []
        for victim in reservation.victims:
            pod = self._context.caches.pod(victim.key)
            is_gone = pod is None or pod.uid != victim.uid
            if is_gone or (pod is not None and pod.deletion is not None):
                departed.append(
                    Victim(uid=victim.uid, namespace=victim.namespace, name=victim.name, node=node)
                )
        return tuple(departed)

    @property
    def _removes_legacy(self) -> bool:
        """Whether taints of others' go; not where nothing is to be changed."""
        return self._context.settings.adopt_legacy_taints and self.is_on

    def _values_of_ours(self, node: Node) -> list[str]:
        key = self._context.settings.taint_key
        return [taint.value for taint in node.taints if taint.key == key and is_ours(taint.value)]

    def _is_anothers(self, node: Node) -> bool:
        """Whether a foreign taint of the same key and effect keeps other pods away."""
        key = self._context.settings.taint_key
        return any(taint.key == key and taint.effect == NO_SCHEDULE for taint in node.taints)

    def _has_legacy(self, node: Node) -> bool:
        key = self._context.settings.taint_key
        owned_by_key = [
            {"key": taint.key, "value": taint.value, "effect": taint.effect}
            for taint in node.taints
            if taint.key == key
        ]
        # Who waits takes long to tell, and nearly no node has such a taint.
        pending = self._pending_keys() if owned_by_key else frozenset()
        return any(is_legacy(taint, key, pending) for taint in owned_by_key)

    def _pending_keys(self) -> frozenset[str]:
        return frozenset(
            pending_pod.pod.key for pending_pod in self._context.caches.cluster.pending.values()
        )
