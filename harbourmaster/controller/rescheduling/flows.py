"""The flows of one term of leading, what is observed of each, and what they mean for new plans."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from harbourmaster.controller.rescheduling.caches import observation_of
from harbourmaster.rescheduling.fit import fits, static_reasons
from harbourmaster.rescheduling.flow import apply_event
from harbourmaster.rescheduling.flow_model import (
    Binding,
    Evicting,
    FlowInputs,
    Observation,
    Planning,
    preemption_is_stuck,
)
from harbourmaster.rescheduling.plans import Circumstances

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from harbourmaster.controller.rescheduling.caches import ReschedulingCaches
    from harbourmaster.controller.rescheduling.context import ReschedulingContext
    from harbourmaster.controller.rescheduling.notices import Notices
    from harbourmaster.rescheduling.flow_model import Event, EvictionFlow
    from harbourmaster.rescheduling.model import PendingPod, Pod
    from harbourmaster.rescheduling.plans import Victim

UNTRUSTED: Final = 600.0
"""Seconds for which a pod avoids a node that it could not be helped on."""
SHORTLY: Final = 10.0
"""Seconds for which a pod avoids a node that only differed from the caches."""
UNEVICTABLE: Final = 1800.0
"""Seconds for which a pod is left alone whose eviction was refused."""
REFUSED: Final = 60.0
"""Seconds for which nothing is asked of a disruption budget that refused."""
REMEMBERED: Final = 60.0
"""Seconds for which a cache may be behind."""
_ALL: Final = 1_000_000


class Flows:
    """Flows by the key of their pod. Times are of the monotonic clock."""

    def __init__(self, caches: ReschedulingCaches, notices: Notices) -> None:
        self._caches = caches
        self._notices = notices
        self.by_key: dict[str, EvictionFlow] = {}
        self.released: dict[tuple[str, str], float | None] = {}
        """Reservations that are over, by node and uid: since when they are gone, None for not yet.

        They are kept until no cache can show them any more, so that they are not adopted again.
        """
        self._avoided: dict[str, dict[str, tuple[float, str]]] = {}
        self._unevictable: dict[str, float] = {}
        self._refusing: dict[str, float] = {}
        self._logged: dict[str, str] = {}
        """The name of the last logged state by the UID of the pod."""

    def put(self, flow: EvictionFlow, why: str = "") -> EvictionFlow:
        """Store the flow, log its state if that is another one, and return the flow."""
        self.by_key[flow.key] = flow
        # A plan with the same result as the last one is not reported.
        is_new = not isinstance(flow.state, Planning)
        if is_new and self._logged.get(flow.uid) != flow.state.name:
            self._logged[flow.uid] = flow.state.name
            self._notices.log_state(flow, why)
        return flow

    def apply(self, flow: EvictionFlow, event: Event, now: float, why: str = "") -> EvictionFlow:
        """Store and return the flow after the result of an action."""
        return self.put(apply_event(flow, event, now), why)

    def is_current(self, flow: EvictionFlow) -> bool:
        """Whether the stored flow of this pod is in the same state."""
        stored = self.by_key.get(flow.key)
        return (
            stored is not None and stored.uid == flow.uid and type(stored.state) is type(flow.state)
        )

    def drop(self, flow: EvictionFlow) -> None:
        """Forget a flow."""
        self.by_key.pop(flow.key, None)
        self._logged.pop(flow.uid, None)

    def forget(self, uid: str) -> None:
        """Forget the avoided nodes of a pod that is gone or has a node."""
        self._avoided.pop(uid, None)

    def released_on(self, node: str) -> dict[str, bool]:
        """The uids whose reservation of a node is over, and whether it is gone from there."""
        return {
            uid: gone is not None for (name, uid), gone in self.released.items() if name == node
        }

    def note_gone(self, node: str, uids: Iterable[str], now: float) -> None:
        """The node itself says that these reservations are gone."""
        for uid in uids:
            if self.released.get((node, uid), now) is None:
                self.released[node, uid] = now

    def live(self) -> Iterator[EvictionFlow]:
        """The flows with a reservation."""
        return (flow for flow in self.by_key.values() if flow.is_live)

    def planning(self) -> list[EvictionFlow]:
        """The pods that wait for a plan, the most important first (5.6)."""
        flows = [flow for flow in self.by_key.values() if isinstance(flow.state, Planning)]
        return sorted(
            flows,
            key=lambda flow: (-self._priority(flow), flow.unschedulable_since or 0, flow.key),
        )

    def on(self, node: str) -> list[EvictionFlow]:
        """The flows that keep a node."""
        return [flow for flow in self.live() if flow.node == node]

    def nodes(self) -> set[str]:
        """The nodes that are kept."""
        return {flow.node for flow in self.live()}

    def of_victims(self) -> Mapping[str, set[str]]:
        """Return the keys of the critical pods that wait for each victim, by the victim's key."""
        waiting: dict[str, set[str]] = defaultdict(set)
        for flow in self.live():
            for victim in flow.victims:
                waiting[victim.key].add(flow.key)
        return waiting

    def avoid(self, uid: str, node: str, until: float, reason: str) -> None:
        """Have a pod avoid a node for a while."""
        nodes = self._avoided.setdefault(uid, {})
        if until > nodes.get(node, (0.0, ""))[0]:
            nodes[node] = (until, reason)

    def spare(self, uid: str, until: float) -> None:
        """Leave a pod alone for a while."""
        self._unevictable[uid] = until

    def refuse(self, victim: Victim, until: float) -> None:
        """Ask nothing of a pod's disruption budget for a while."""
        if victim.budget:
            self._refusing[victim.budget] = until
        else:
            # It has one that we don't know of yet.
            self.spare(victim.uid, until)

    def circumstances(
        self, flow: EvictionFlow, now: float, owners: frozenset[str], nominated: str = ""
    ) -> Circumstances:
        """Return the effects of all other flows on a plan for this pod."""
        reserved: dict[str, list[Pod]] = defaultdict(list)
        departing: set[str] = set()
        claimed: dict[str, int] = defaultdict(int)
        for live in self.live():
            pending = self._caches.pending(live.key)
            if live.uid == flow.uid or pending is None or pending.pod.uid != live.uid:
                continue
            reserved[live.node].append(pending.pod)
            for victim in live.victims:
                departing.add(victim.uid)
                pod = self._caches.pod(victim.key)
                is_staying = pod is not None and pod.uid == victim.uid and pod.deletion is None
                if victim.budget and is_staying:
                    claimed[victim.budget] += 1
        for budget, until in self._refusing.items():
            if until > now:
                claimed[budget] += _ALL
        avoided = {
            node: reason
            for node, (until, reason) in self._avoided.get(flow.uid, {}).items()
            if until > now
        }
        if nominated:
            avoided[nominated] = "the scheduler's preemption there is stuck"
        return Circumstances(
            reserved=dict(reserved),
            departing=frozenset(departing),
            claimed=dict(claimed),
            excluded_nodes=avoided,
            excluded_pods=frozenset(uid for uid, until in self._unevictable.items() if until > now),
            spared_owners=owners,
        )

    def sweep(self, now: float) -> None:
        """Forget what has run out."""
        self.released = {
            reservation: gone
            for reservation, gone in self.released.items()
            if gone is None or now - gone < REMEMBERED
        }
        self._unevictable = {uid: end for uid, end in self._unevictable.items() if end > now}
        self._refusing = {key: end for key, end in self._refusing.items() if end > now}
        for uid, nodes in list(self._avoided.items()):
            left = {name: entry for name, entry in nodes.items() if entry[0] > now}
            if left:
                self._avoided[uid] = left
            else:
                del self._avoided[uid]

    def _priority(self, flow: EvictionFlow) -> int:
        pending = self._caches.pending(flow.key)
        return pending.pod.priority if pending is not None else 0


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
