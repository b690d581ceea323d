"""One search for the best nodes of a cluster: it chooses victims on every node and scores them."""

from __future__ import annotations

import zlib
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from harbourmaster.rescheduling.fit import (
    TOO_MANY_PODS,
    find_conflicts,
    find_staying,
    static_reasons,
)
from harbourmaster.rescheduling.relocation import RelocationNodes
from harbourmaster.rescheduling.requests import Scale, is_enough, largest_part, minus, without
from harbourmaster.rescheduling.topology import NOT_NEAR, ROOM, Topology
from harbourmaster.rescheduling.victims import (
    BARE,
    CLAIM,
    GROUPED,
    MARKED,
    NON_DRAINABLE,
    RUNNING,
    RUNS_ONCE,
    SHORT,
    UNBEARABLE,
    BudgetLedger,
    Movable,
    Occupancy,
    choose,
    flags_of,
    is_as_good_as_gone,
    is_required,
    rank_of,
    start_time,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping

    from harbourmaster.rescheduling.cluster import Cluster
    from harbourmaster.rescheduling.fit import Conflicts
    from harbourmaster.rescheduling.model import Node, PendingPod, Pod
    from harbourmaster.rescheduling.plans import (
        Circumstances,
        PlannerSettings,
        ScoreOrder,
        ScoreTerm,
    )
    from harbourmaster.rescheduling.requests import Amounts
    from harbourmaster.rescheduling.victims import Choice

Values: TypeAlias = tuple[int | str, ...]
"""A score without its names; those of one order compare with each other."""

_COUNTED: Final = {
    "shortened": SHORT,
    "bare": BARE,
    "claims": CLAIM,
    "marked": MARKED,
    "groups": GROUPED,
    "jobs": RUNS_ONCE,
}
"""Terms that count the victims with a flag, in their order."""
_LEADING: Final = ("tier", "violations", *_COUNTED)
_IMPORTANCE: Final = ("highestPriority", "prioritySum")
_AMOUNT: Final = ("victims", "requests")
_TRAILING: Final = ("nonDrainable", "deletionCandidate", "node")
TERMS: Final[Mapping[ScoreOrder, tuple[str, ...]]] = {
    "documented": (*_LEADING, *_AMOUNT, *_IMPORTANCE, *_TRAILING),
    "priorityFirst": (*_LEADING, *_IMPORTANCE, *_AMOUNT, *_TRAILING),
    "random": ("tier", "random", "node"),
}
STRANDED: Final = "stranded"
LEADING: Final = len(_LEADING)
"""The number of terms before that of stranded victims."""


class Scorer:
    """Scores the nodes for one pod."""

    def __init__(self, settings: PlannerSettings, uid: str, scale: Scale) -> None:
        self._order = settings.score_order
        self._salt = f"{settings.seed}/{uid}/"
        self._scale = scale

    def name_values(self, values: Values, stranded: int | None = None) -> tuple[ScoreTerm, ...]:
        """The terms in order, with the number of stranded victims if that counts."""
        terms: list[ScoreTerm] = list(zip(TERMS[self._order], values, strict=True))
        if stranded is not None:
            terms.insert(LEADING, (STRANDED, stranded))
        return tuple(terms)

    def values(self, node: Node, choice: Choice) -> Values:
        """The score of the victims that were chosen at a node."""
        if self._order == "random":
            # The same in every plan for the pod.
            return (choice.tier, zlib.crc32(f"{self._salt}{node.name}".encode()), node.name)
        victims = choice.victims
        priorities = [victim.pod.priority for victim in victims]
        leading = (
            choice.tier,
            len(choice.denied),
            *(sum(victim.flags & flag > 0 for victim in victims) for flag in _COUNTED.values()),
        )
        importance = (max(priorities, default=0), sum(priorities))
        share = sum(self._scale.share(victim.pod.requests, node) for victim in victims)
        amount = (len(victims), share)
        non_drainable = sum(victim.flags & NON_DRAINABLE > 0 for victim in victims)
        trailing = (non_drainable, int(node.is_deletion_candidate), node.name)
        if self._order == "priorityFirst":
            return leading + importance + amount + trailing
        return leading + amount + importance + trailing


SLICE: Final = 50
"""Nodes that are evaluated between two turns of the event loop."""
_BUDGET: Final = "a disruption budget forbids it"
RETURNING: Final = "pods of higher priority that fit on no other node would preempt it again"


class FoundNode(NamedTuple):
    """A node on which the pod fits after ``choice``; less by ``values`` is better."""

    values: Values
    node: Node
    choice: Choice


class Search:
    """The search for one pod.

    ``reasons`` counts why nodes are excluded. ``evaluated`` counts the nodes on which victims were
    chosen.
    """

    def __init__(
        self,
        cluster: Cluster,
        pending: PendingPod,
        settings: PlannerSettings,
        now: float,
        around: Circumstances,
    ) -> None:
        self._cluster = cluster
        self._pending = pending
        self._settings = settings
        self._now = now
        self._around = around
        self._ledger = BudgetLedger(cluster.budgets, around.claimed)
        self.scale = Scale(name for name, _ in pending.pod.requests)
        self.scorer = Scorer(settings, pending.pod.uid, self.scale)
        self._reserved = {
            name: [pod for pod in pods if self._is_awaited(pod)]
            for name, pods in around.reserved.items()
        }
        self._topology: Topology | None = None
        self._places: RelocationNodes | None = None
        self._reasons: dict[str, tuple[str, ...]] = {}
        self.evaluated = 0

    @property
    def reasons(self) -> dict[str, int]:
        """The number of excluded nodes by reason."""
        return dict(Counter(reason for several in self._reasons.values() for reason in several))

    def run(self) -> Generator[None, None, list[FoundNode]]:
        """All nodes on which the pod can be placed, best first; yields between slices.

        Nodes that changed meanwhile are evaluated again at the end.
        """
        cluster = self._cluster
        others = self._reserved_pods()
        against = find_conflicts(cluster, self._pending.pod, self.is_gone, others)
        self._topology = self._look_around(others)
        yield from self._survey_places(cluster.pods())
        nodes: dict[str, FoundNode] = {}
        judged: dict[str, int] = {}

        def judge(name: str) -> None:
            judged[name] = cluster.stamps.get(name, 0)
            nodes.pop(name, None)
            self._reasons.pop(name, None)
            node = cluster.node(name)
            result = node and self._judge(node, cluster.pods_on(name), against)
            if result:
                nodes[name] = result

        for index, name in enumerate(list(cluster.stamps), start=1):
            judge(name)
            if not index % SLICE:
                yield
        for name in {*cluster.stamps, *judged}:
            if judged.get(name) != cluster.stamps.get(name):
                judge(name)
        return sorted(nodes.values(), key=lambda judged_node: judged_node.values)

    def on(self, node: Node, pods: list[Pod]) -> FoundNode | None:
        """The choice on one node with exactly these pods on it, whatever the cluster has there."""
        present = [*pods, *self._reserved.get(node.name, ())]
        others = [*self._reserved_pods(but=node.name), *((pod, node) for pod in present)]
        against = find_conflicts(
            self._cluster, self._pending.pod, self.is_gone, others, replaced=node.name
        )
        self._topology = self._look_around(others, replaced=node.name)
        for _ in self._survey_places(pods):
            pass
        return self._judge(node, pods, against)

    def is_gone(self, pod: Pod) -> bool:
        """Whether the pod no longer counts: it terminates soon, or another plan evicts it."""
        return pod.uid in self._around.departing or is_as_good_as_gone(
            pod, self._settings, self._now
        )

    def _judge(self, node: Node, pods: list[Pod], against: Conflicts) -> FoundNode | None:
        """Choose the victims on a node, or note why it is excluded."""
        fit = self._fit_in(node, pods, against)
        if isinstance(fit, FoundNode):
            return fit
        self._reasons[node.name] = fit
        return None

    def _fit_in(
        self, node: Node, pods: list[Pod], against: Conflicts
    ) -> FoundNode | tuple[str, ...]:
        """The choice on a node, or the reasons against it."""
        reasons = self._closing(node, against)
        if reasons:
            return reasons
        topology = self._topology
        allocatable = self.scale.allocatable(node)
        apart = against.on(node)
        staying, movable = list(self._reserved.get(node.name, ())), []
        for pod in pods:
            if self.is_gone(pod):
                continue
            flags = self._flags(pod)
            if flags is None:
                staying.append(pod)
            else:
                movable.append(self._movable(pod, flags, allocatable, pod.uid in apart))
        if any(pod.uid in apart for pod in staying):
            return tuple(dict.fromkeys(apart.values()))
        used = [pod.requests for pod in (*staying, self._pending.pod)]
        room = self.scale.free_amounts(node, used)
        if topology:
            rooms = topology.rooms(node)
            room += without(rooms, [topology.spread(pod) for pod in staying])
            allocatable += (UNBEARABLE,) * len(rooms)
        if not is_enough(room):
            return self._lacking(room)
        self.evaluated += 1
        occupancy = Occupancy(room, allocatable, sorted(movable))
        if topology and not topology.has_affinity(node, beside=any(map(topology.is_near, staying))):
            return self._keep_one(node, occupancy, topology)
        return self._choose(node, occupancy)

    def _keep_one(
        self, node: Node, occupancy: Occupancy, topology: Topology
    ) -> FoundNode | tuple[str, ...]:
        """The best choice that keeps a pod which the pod affinity requires."""
        has_domain = topology.has_affinity(node, beside=True)
        near = [pod for pod in occupancy.movable if has_domain and topology.is_near(pod.pod)]
        choices = []
        for kept in near:
            room = minus(occupancy.room, kept.amounts)
            rest = [pod for pod in occupancy.movable if pod is not kept]
            left = Occupancy(room, occupancy.allocatable, rest)
            choice = self._choose(node, left) if is_enough(room) else None
            if isinstance(choice, FoundNode):
                choices.append(choice)
        return min(choices, key=lambda pod: pod.values) if choices else (NOT_NEAR,)

    def _choose(self, node: Node, occupancy: Occupancy) -> FoundNode | tuple[str, ...]:
        settings = self._settings
        may_violate = settings.allow_pdb_violation
        choice = choose(occupancy, self._ledger, may_violate=may_violate)
        for is_first in (True, False):
            victims = choice.victims if choice else []
            superiors = [pod.pod for pod in victims if self._is_superior(pod.pod)]
            placed = self._place(superiors)
            if len(placed) == len(superiors):
                break
            # At first those stay that fit nowhere else alone, then all that do not fit together.
            staying = [
                pod
                for pod in occupancy.movable
                if self._is_superior(pod.pod)
                and pod.uid not in placed
                and not (is_first and self._place([pod.pod]))
            ]
            room = without(occupancy.room, [pod.amounts for pod in staying])
            if not is_enough(room):
                return (RETURNING,)
            movable = [pod for pod in occupancy.movable if pod not in staying]
            occupancy = Occupancy(room, occupancy.allocatable, movable)
            choice = choose(occupancy, self._ledger, may_violate=may_violate)
        if choice is None:
            return (_BUDGET,)
        if len(choice.victims) > settings.max_victims:
            return (f"more than {settings.max_victims} pods would have to move",)
        return FoundNode(self.scorer.values(node, choice), node, choice)

    def _is_superior(self, pod: Pod) -> bool:
        """Whether the pod, once evicted, may have the add-on preempted for it."""
        priority = self._pending.pod.priority
        return pod.priority > priority and pod.preempts and pod.deletion is None

    def _survey_places(self, pods: Iterable[Pod]) -> Iterator[None]:
        """Measure where superior pods may go; what changes later counts when it is verified."""
        superiors = [pod for pod in pods if self._is_superior(pod)]
        if superiors:
            self._places = RelocationNodes(self._cluster, superiors, self.is_gone, self._reserved)
            yield from self._places.survey()

    def _place(self, superiors: list[Pod]) -> frozenset[str]:
        """The UIDs of those that fit together on other nodes, and so do not come back."""
        return self._places.place(superiors) if superiors and self._places else frozenset()

    def _closing(self, node: Node, against: Conflicts) -> tuple[str, ...]:
        """Why no eviction on the node helps."""
        excluded = self._around.excluded_nodes.get(node.name)
        if excluded is not None:
            return (excluded,)
        reasons = static_reasons(self._pending, node, taint_key=self._settings.taint_key)
        closing = "" if reasons else against.closing(node)
        return (closing,) if closing else reasons

    def _flags(self, pod: Pod) -> int | None:
        """The flags against moving the pod; None if it stays."""
        settings = self._settings
        if is_required(pod, settings, self._now) or pod.uid in self._around.excluded_pods:
            return None
        if pod.deletion is not None:
            # It terminates already; only its grace period can be shortened.
            return SHORT | RUNNING
        flags = flags_of(pod, settings, self._now)
        if pod.owner in self._around.spared_owners:
            return None if settings.non_drainable == "forbid" else flags | MARKED
        return flags

    def _movable(self, pod: Pod, flags: int, allocatable: Amounts, is_unbearable: bool) -> Movable:
        amounts = self.scale.of(pod.requests)
        counted = amounts + (self._topology.spread(pod) if self._topology else ())
        return Movable(
            rank_of(flags, pod.priority),
            largest_part(amounts, allocatable),
            start_time(pod),
            pod.namespace,
            pod.name,
            pod.uid,
            (UNBEARABLE, *counted[1:]) if is_unbearable else counted,
            flags,
            pod,
        )

    def _lacking(self, room: Amounts) -> tuple[str, ...]:
        """The resources of which the staying pods leave too little."""
        pods, *amounts = room
        names = (*self.scale.names, *[ROOM] * (len(amounts) - len(self.scale.names)))
        reasons = [
            f"too little {name}" for name, amount in zip(names, amounts, strict=True) if amount < 0
        ]
        if pods < 0:
            reasons.append(TOO_MANY_PODS)
        return tuple(reasons)

    def _is_awaited(self, pod: Pod) -> bool:
        """Whether a pod that has a reservation is still to come."""
        return pod.uid != self._pending.pod.uid and self._cluster.pod(pod.uid) is None

    def _look_around(
        self, others: Iterable[tuple[Pod, Node]], replaced: str = ""
    ) -> Topology | None:
        """Return the topology for spread and pod affinity; None for a pod with neither."""
        cluster, pending = self._cluster, self._pending
        if not (pending.spread or pending.affinity):
            return None
        spaces = {pending.pod.namespace}.union(*(term.namespaces for term in pending.affinity))
        is_anywhere = any(term.namespace_selector is not None for term in pending.affinity)
        bound = (
            pod
            for pod in cluster.pods()
            if (is_anywhere or pod.namespace in spaces) and pod.node != replaced
        )
        placed = find_staying(cluster, pending.pod, self.is_gone, bound, others)
        return Topology(pending, cluster.nodes(), placed, cluster.namespaces)

    def _reserved_pods(self, but: str = "") -> list[tuple[Pod, Node]]:
        """The pods that other plans make room for, with their nodes."""
        return [
            (pod, node)
            for name, pods in self._reserved.items()
            if name != but and (node := self._cluster.node(name)) is not None
            for pod in pods
        ]
