"""One search for the best nodes: a quick look at all of them, then working out the promising ones.

What a node costs at least is known quickly; the cheapest by that are worked out first, until no
other can be better. So the answer is the one of working out all, which ``is_plain`` does.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.rescheduling import conflicts
from harbourmaster.rescheduling.bounds import close, quick
from harbourmaster.rescheduling.budgets import Ledger
from harbourmaster.rescheduling.fit import TOO_MANY_PODS, static_reasons
from harbourmaster.rescheduling.score import Scorer
from harbourmaster.rescheduling.stands import Sorter, usual
from harbourmaster.rescheduling.victims import Choice, choose

if TYPE_CHECKING:
    from collections.abc import Generator, Hashable, Iterable

    from harbourmaster.rescheduling.accounting import Cluster
    from harbourmaster.rescheduling.conflicts import Conflicts
    from harbourmaster.rescheduling.model import Node, PendingPod, Pod
    from harbourmaster.rescheduling.plans import Circumstances, PlannerSettings
    from harbourmaster.rescheduling.score import Values
    from harbourmaster.rescheduling.spaces import Space
    from harbourmaster.rescheduling.stands import Stand

SLICE: Final = 200
"""Nodes that are looked at in one go."""
WORKED_OUT: Final = 50
"""Nodes that are worked out in one go."""
_FREE: Final = Choice(0, [])
_BUDGET: Final = "a disruption budget forbids it"


class Found(NamedTuple):
    """A node that was worked out when ``space`` had this stamp."""

    values: Values
    stamp: int
    space: Space
    stand: Stand
    choice: Choice


class _Open(NamedTuple):
    """A node that waits to be worked out.

    ``bound`` is exact where the pod fits as it is; ``is_close`` if it can't be better.
    """

    bound: Values
    stamp: int
    space: Space
    node: Node
    stand: Stand
    is_free: bool = False
    is_close: bool = False


class Search:
    """The search for one pod."""

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
        self._around = around
        self._sorter = Sorter(settings, around, now)
        self._ledger = Ledger(cluster.budgets, around.claimed, cluster.guard_stamp)
        names = tuple(name for name, _ in pending.pod.requests)
        self._scale = cluster.scale(names)
        self._request = self._scale.weigh(pending.pod.requests).packed
        self.scorer = Scorer(settings.score_order, settings.seed, pending.pod.uid)
        self._template = cluster.template(pending, settings.taint_key)
        self._reserved = {
            name: found
            for name, pods in around.reserved.items()
            if (found := [each for each in pods if self._is_awaited(each)])
        }
        self._special = self._places_of_change()
        self._conflicts = self._find_conflicts()
        self._reasons: dict[str, tuple[str, ...]] = {}
        self._open: list[_Open] = []
        self._verdicts: dict[Hashable, tuple[str, ...]] = {}
        self.evaluated = 0
        self._looked: dict[str, int] = {}

    @property
    def reasons(self) -> dict[str, int]:
        """How many nodes are out of the question for each reason, as far as it was looked."""
        return dict(Counter(reason for several in self._reasons.values() for reason in several))

    def run(self, most: int, *, is_plain: bool = False) -> Generator[None, None, list[Found]]:
        """The best nodes, best first, at least ``most`` if there are; it yields between slices.

        Nodes that changed meanwhile are looked at again at the end.
        """
        found: list[Found] = []
        stamp = self._cluster.stamp
        for index, space in enumerate(list(self._cluster.spaces.values()), start=1):
            self._look(space)
            if not index % SLICE:
                yield
        yield from self._work_out(found, most, is_plain=is_plain)
        while stamp != self._cluster.stamp:
            before, stamp = stamp, self._cluster.stamp
            found[:] = [each for each in found if not self._is_stale(each)]
            for space in self._cluster.spaces.values():
                if space.stamp > before and self._looked.get(space.name) != space.stamp:
                    self._look(space)
            for _ in self._work_out(found, most, is_plain=is_plain):
                pass
        return found

    def is_gone(self, pod: Pod) -> bool:
        """Whether a pod that is there counts no more."""
        return self._sorter.is_gone(pod)

    def on(self, space: Space) -> Found | None:
        """The choice at one node as ``space`` says, whatever the cluster says of it."""
        node = space.node
        if node is None:
            return None
        self._special = {node.name}
        present = [entry.pod for entry in space.entries.values()]
        present += self._reserved.get(node.name, ())
        self._conflicts = self._find_conflicts(node, [(each, node) for each in present])
        self._look(space)
        for each in self._open:
            return self._choose(each)
        return None

    def _work_out(
        self, found: list[Found], most: int, *, is_plain: bool
    ) -> Generator[None, None, None]:
        heapify(self._open)
        count = 0
        while self._open:
            if not is_plain and len(found) >= most and self._open[0].bound > found[most - 1].values:
                return
            count += 1
            if not count % WORKED_OUT:
                yield
            each = heappop(self._open)
            if self._is_stale(each):
                continue
            if not is_plain and self._puts_off(each):
                continue
            one = self._choose(each)
            if one is not None:
                insort(found, one)

    def _look(self, space: Space) -> None:
        """Note the least that the node costs, or why it is out of the question."""
        node = space.node
        self._looked[space.name] = space.stamp
        if node is None:
            return
        reasons = self._closing(space, node)
        stand = None if reasons else self._stand(space, node)
        if stand is not None:
            guard = self._scale.guard
            room = stand.capacity - stand.fixed - self._request
            if (room + guard) & guard == guard:
                self._open.append(self._opened(space, node, stand, room))
            else:
                reasons = self._lacking(room)
        if reasons:
            self._reasons[node.name] = reasons
        elif stand is not None:
            self._reasons.pop(node.name, None)

    def _opened(self, space: Space, node: Node, stand: Stand, room: int) -> _Open:
        guard = self._scale.guard
        rest = room - stand.movable
        if (rest + guard) & guard == guard and not stand.apart:
            values = self.scorer.values(node, stand, _FREE)
            return _Open(values, space.stamp, space, node, stand, is_free=True)
        bound = self.scorer.bound(node, stand, quick(stand, room))
        return _Open(bound, space.stamp, space, node, stand)

    def _puts_off(self, each: _Open) -> bool:
        """Bring the bound closer; whether another node comes first then."""
        if each.is_free or each.is_close:
            return False
        bound = self._closer(each)
        if not self._open or bound <= self._open[0].bound:
            return False
        heappush(self._open, each._replace(bound=bound, is_close=True))
        return True

    def _closer(self, each: _Open) -> Values:
        """A bound that is nearer to the truth, and takes longer."""
        stand = each.stand
        room = stand.capacity - stand.fixed - self._request
        least = close(stand, room, self._ledger.guards(stand.roster), self._ledger)
        return max(each.bound, self.scorer.bound(each.node, stand, least))

    def _choose(self, each: _Open) -> Found | None:
        if each.is_free:
            return Found(each.bound, each.stamp, each.space, each.stand, _FREE)
        self.evaluated += 1
        settings = self._settings
        choice = choose(
            each.stand,
            self._request,
            self._ledger,
            self._ledger.guards(each.stand.roster),
            may_violate=settings.allow_pdb_violation,
        )
        most = settings.max_victims
        if choice is None or len(choice.victims) > most:
            reason = _BUDGET if choice is None else f"more than {most} pods would have to move"
            self._reasons[each.node.name] = (reason,)
            return None
        values = self.scorer.values(each.node, each.stand, choice)
        return Found(values, each.stamp, each.space, each.stand, choice)

    def _closing(self, space: Space, node: Node) -> tuple[str, ...]:
        excluded = self._around.excluded_nodes.get(node.name)
        if excluded is not None:
            return (excluded,)
        reasons = space.verdicts.get(self._template)
        if reasons is None:
            reasons = space.verdicts[self._template] = self._judged(node)
        if not reasons and self._conflicts:
            closing = self._conflicts.closing(node)
            return (closing,) if closing else ()
        return reasons

    def _judged(self, node: Node) -> tuple[str, ...]:
        pending = self._pending
        is_picky = pending.node_name or pending.node_selector or pending.node_terms is not None
        # Any other pod only asks for the state and the taints, which most nodes share.
        state = (node.is_ready, node.is_deleting, node.is_cordoned, node.taints)
        key = node.name if is_picky else state
        reasons = self._verdicts.get(key)
        if reasons is None:
            reasons = static_reasons(pending, node, taint_key=self._settings.taint_key)
            self._verdicts[key] = reasons
        return reasons

    def _stand(self, space: Space, node: Node) -> Stand | None:
        apart = self._conflicts.on(node)
        if not space.leaving and not apart and node.name not in self._special:
            return usual(space, node, self._scale)
        reserved = self._reserved.get(node.name, [])
        stand = None
        if not any(each.uid in apart for each in reserved):
            requests = [each.requests for each in reserved]
            entries = space.entries.values()
            stand = self._sorter.stand(node, entries, self._scale, requests, apart)
        if stand is None:
            self._reasons[node.name] = tuple(dict.fromkeys(apart.values()))
        return stand

    def _lacking(self, room: int) -> tuple[str, ...]:
        """What the pods that stay leave too little of."""
        pods, *amounts = self._scale.amounts(room)
        reasons = [
            f"too little {name}"
            for name, amount in zip(self._scale.names, amounts, strict=True)
            if amount < 0
        ]
        if pods < 0:
            reasons.append(TOO_MANY_PODS)
        return tuple(reasons)

    def _is_stale(self, each: Found | _Open) -> bool:
        space = each.space
        return space.stamp != each.stamp or self._cluster.spaces.get(space.name) is not space

    def _is_awaited(self, pod: Pod) -> bool:
        """Whether a pod that has a reservation is still to come."""
        return pod.uid != self._pending.pod.uid and self._cluster.place_of(pod.uid) is None

    def _places_of_change(self) -> set[str]:
        """The nodes on which something is not as usual."""
        around = self._around
        places = set(self._reserved)
        for uid in around.departing | around.excluded_pods:
            space = self._cluster.place_of(uid)
            if space is not None:
                places.add(space.name)
        for owner in around.spared_owners:
            places.update(self._cluster.places_of(owner))
        return places

    def _find_conflicts(
        self, replaced: Node | None = None, instead: Iterable[tuple[Pod, Node]] = ()
    ) -> Conflicts:
        others = list(instead)
        for name, pods in self._reserved.items():
            node = self._cluster.node(name)
            if node is not None and (replaced is None or name != replaced.name):
                others += [(pod, node) for pod in pods]
        name = replaced.name if replaced else ""
        return conflicts.find(self._cluster, self._pending.pod, self._sorter.is_gone, others, name)
