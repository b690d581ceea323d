"""Chooses the pods of a node to evict: few and unimportant ones (rescheduler-spec 5.3, 5.4).

Before that, it decides which pods may be evicted and at what cost (5.1), and what disruption
budgets allow, as the Eviction API applies them (3.4, 5.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.rescheduling.requests import is_enough, largest_part, minus, without

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harbourmaster.rescheduling.model import Budget, Pod
    from harbourmaster.rescheduling.plans import PlannerSettings
    from harbourmaster.rescheduling.requests import Amounts

SHORT: Final = 128
"""Flag of a pod: it would get less than its own grace period."""
BARE: Final = 64
"""No controller replaces it."""
CLAIM: Final = 32
"""The flag of a pod whose volumes have to follow it."""
MARKED: Final = 16
"""The flag of a pod whose annotation asks not to evict it, or whose owner lost many pods."""
GROUPED: Final = 8
RUNS_ONCE: Final = 4
NON_DRAINABLE: Final = 2
RUNNING: Final = 1
_DAEMON_SET: Final = "DaemonSet"
_FLAGS: Final = 255
_ABOVE_PRIORITY: Final = 34
_HIGHEST: Final = 2**31


def is_required(pod: Pod, settings: PlannerSettings, now: float) -> bool:
    """Whether the pod must not be evicted."""
    return (
        pod.is_mirror
        or pod.is_critical
        or pod.is_never_evicted
        or pod.controller_kind == _DAEMON_SET
        or pod.priority >= settings.max_victim_priority
        or pod.namespace in settings.protected_namespaces
        or (settings.non_drainable == "forbid" and is_non_drainable(pod, now))
        or (settings.non_drainable == "forbidMarked" and pod.marked_until > now)
    )


def is_non_drainable(pod: Pod, now: float) -> bool:
    """Whether a drain would stop at the pod."""
    return not pod.controller_kind or pod.is_non_drainable or pod.marked_until > now


def flags_of(pod: Pod, settings: PlannerSettings, now: float) -> int:
    """The reasons against evicting the pod, as flags."""
    flags = SHORT if pod.grace > settings.long_grace else 0
    if not pod.controller_kind:
        flags |= BARE
    if pod.has_claim:
        flags |= CLAIM
    is_running = pod.phase != "Pending"
    if settings.non_drainable != "ignore":
        flags |= MARKED if pod.marked_until else 0
        flags |= GROUPED if pod.is_grouped else 0
        flags |= RUNS_ONCE if pod.runs_once and is_running else 0
        flags |= NON_DRAINABLE if is_non_drainable(pod, now) else 0
    return flags | RUNNING if is_running else flags


def rank_of(flags: int, priority: int) -> int:
    """The place in the order of importance, the most important pod first, as far as it is coarse.

    Size, age and name decide between equal ones.
    """
    return ((_FLAGS - flags) << _ABOVE_PRIORITY) + _HIGHEST - priority


def start_time(pod: Pod) -> float:
    """Return the time at which the pod started, or was created."""
    return pod.created if pod.started is None else pod.started


def is_as_good_as_gone(pod: Pod, settings: PlannerSettings, now: float) -> bool:
    """Whether the pod terminates soon enough; without a grace limit, any terminating pod does."""
    if pod.deletion is None:
        return False
    return settings.grace_limit < 0 or pod.deletion - now <= settings.long_grace


def new_grace(pod: Pod, settings: PlannerSettings) -> int:
    """The grace that the pod is evicted with: never 0, after which its object vanishes first."""
    if pod.deletion is not None:
        return settings.long_grace
    own = pod.grace if settings.grace_limit < 0 else min(pod.grace, settings.grace_limit)
    return max(own, 1)


FREE: Final = ""
BLOCKED: Final = "blocked"
"""No eviction is allowed. Never the key of a budget: keys have a slash."""
_MOST_DISRUPTED: Final = 2000


class BudgetLedger:
    """The evictions that each budget allows a plan after the ``claimed`` ones of other plans."""

    def __init__(self, budgets: Mapping[str, Budget], claimed: Mapping[str, int]) -> None:
        self._left = {
            key: max(budget.allowed - claimed.get(key, 0), 0) for key, budget in budgets.items()
        }
        self._by_namespace: dict[str, list[Budget]] = {}
        for key in sorted(budgets):
            self._by_namespace.setdefault(budgets[key].namespace, []).append(budgets[key])
        self._matching: dict[tuple[str, int], tuple[dict[str, str], list[Budget]]] = {}
        """Budgets by namespace and identity of labels, kept so that the identity stays unique."""

    def matching(self, pod: Pod) -> list[Budget]:
        """The budgets that select the pod, by name."""
        labels = pod.labels
        cached = self._matching.get((pod.namespace, id(labels)))
        if cached is None:
            selecting = [
                budget
                for budget in self._by_namespace.get(pod.namespace, ())
                if budget.selector is not None and budget.selector.matches(labels)
            ]
            cached = self._matching[pod.namespace, id(labels)] = (labels, selecting)
        return cached[1]

    def guard(self, pod: Pod) -> str:
        """Return what allows an eviction of the pod: FREE, BLOCKED, or the key of a budget."""
        matching = self.matching(pod)
        if not matching or pod.phase == "Pending" or pod.deletion is not None:
            return FREE
        if len(matching) > 1:
            return BLOCKED
        (budget,) = matching
        is_healthy = budget.current_healthy >= budget.desired_healthy > 0
        if not pod.is_ready and (budget.always_allow_unhealthy or is_healthy):
            return FREE
        is_usable = budget.is_observed and budget.disrupted <= _MOST_DISRUPTED
        return budget.key if is_usable and self._left[budget.key] else BLOCKED

    def is_contested(self, guards: Iterable[str]) -> bool:
        """Whether a budget allows some of these evictions, but not all."""
        keys = [key for key in guards if key and key is not BLOCKED]
        return any(self._left[key] < keys.count(key) for key in set(keys))

    def find_denied(self, order: Iterable[int], guards: Sequence[str]) -> set[int]:
        """The indexes in ``guards`` whose budget is spent, if it is spent in this order."""
        denied = set()
        spent: dict[str, int] = {}
        for index in order:
            key = guards[index]
            if key is BLOCKED:
                denied.add(index)
            elif key:
                spent[key] = spent.get(key, 0) + 1
                if spent[key] > self._left[key]:
                    denied.add(index)
        return denied


SHORTENING: Final = 2
"""The tier that shortens grace periods."""
VIOLATING: Final = 3
"""The tier that violates disruption budgets."""
UNBEARABLE: Final = 1 << 40
"""More pods than any node has room for: a pod with this amount is never kept."""


class Movable(NamedTuple):
    """A pod that may be evicted; sorted, the most important pods come first (5.4).

    ``size`` is the largest part that it uses of a requested resource of the node.
    """

    rank: int
    size: float
    born: float
    namespace: str
    name: str
    uid: str
    amounts: Amounts
    flags: int
    pod: Pod

    @property
    def is_unbearable(self) -> bool:
        """Whether the critical pod cannot run beside it."""
        return self.amounts[0] >= UNBEARABLE


class Occupancy(NamedTuple):
    """A node from the view of one critical pod.

    ``room`` is the part of ``allocatable`` that the staying pods and the critical pod leave for the
    ``movable`` pods, which are sorted.
    """

    room: Amounts
    allocatable: Amounts
    movable: list[Movable]


class Choice(NamedTuple):
    """The victims on one node, the most important first.

    ``denied`` are the UIDs of those whose budget forbids the eviction; ``budgets`` are the keys of
    budgets by UID.
    """

    tier: int
    victims: list[Movable]
    denied: frozenset[str] = frozenset()
    budgets: Mapping[str, str] = {}


def choose(occupancy: Occupancy, ledger: BudgetLedger, *, may_violate: bool) -> Choice | None:
    """The victims that make room for the critical pod; None if budgets forbid it.

    The critical pod must fit beside the staying pods.
    """
    room, movable = occupancy.room, occupancy.movable
    if is_enough(without(room, [pod.amounts for pod in movable])):
        return Choice(0, [])
    guards = [ledger.guard(pod.pod) for pod in movable]
    # Pods with a long grace come first.
    longs = sum(pod.flags & SHORT > 0 for pod in movable)
    is_contested = ledger.is_contested(guards)
    for tier, first in ((1, longs), (SHORTENING, 0)) if longs else ((1, 0),):
        places = range(first, len(movable))
        beside_longs = without(room, [pod.amounts for pod in movable[:first]])
        tried: set[int] | None = None
        for order in _shares(movable, places) if is_contested else (places,):
            denied = ledger.find_denied(order, guards)
            if denied == tried:
                break
            tried = denied
            free = without(beside_longs, [movable[i].amounts for i in denied])
            if is_enough(free):
                usable = [i for i in places if i not in denied]
                victims = _fewest(occupancy, usable, usable, free)
                return Choice(tier, victims, budgets=_budgets(movable, guards, victims, ledger))
    return _choose_violating(occupancy, guards, ledger, may_violate=may_violate)


def _choose_violating(
    occupancy: Occupancy, guards: list[str], ledger: BudgetLedger, *, may_violate: bool
) -> Choice | None:
    movable = occupancy.movable
    places = range(len(movable))
    denied = ledger.find_denied(reversed(places), guards)
    order = [*sorted(denied), *(i for i in places if i not in denied)]
    victims = _fewest(occupancy, places, order, occupancy.room, denied)
    budgets = _budgets(movable, guards, victims, ledger)
    # Denials depend on the order; what counts is whether all victims may be evicted.
    going = {victim.uid for victim in victims}
    leaving = [i for i in reversed(places) if movable[i].uid in going]
    too_many = frozenset(movable[i].uid for i in ledger.find_denied(leaving, guards))
    if not too_many:
        tier = SHORTENING if any(victim.flags & SHORT for victim in victims) else 1
        return Choice(tier, victims, budgets=budgets)
    return Choice(VIOLATING, victims, too_many, budgets) if may_violate else None


def _budgets(
    movable: list[Movable], guards: list[str], victims: list[Movable], ledger: BudgetLedger
) -> dict[str, str]:
    """The key of the budget that counts each eviction, by UID."""
    going = {victim.uid for victim in victims}
    return {
        pod.uid: ledger.matching(pod.pod)[0].key if key is BLOCKED else key
        for pod, key in zip(movable, guards, strict=True)
        if key and pod.uid in going
    }


def _shares(movable: list[Movable], places: range) -> Iterable[list[int]]:
    """Orders in which budgets are spent: on the least important pods, or on the largest.

    Pods that cannot stay in any case come first.
    """
    for order in (places[::-1], sorted(places, key=lambda i: (-movable[i].size, -i))):
        yield sorted(order, key=lambda i: not movable[i].is_unbearable)


def _fewest(
    occupancy: Occupancy,
    usable: Sequence[int],
    order: Iterable[int],
    free: Amounts,
    denied: Collection[int] = (),
) -> list[Movable]:
    """Keep pods in this order, replace victims by smaller usable ones, and keep again.

    ``free`` is what is left without all of ``order`` and with the critical pod.
    """
    movable = occupancy.movable
    free, going = _keep(movable, order, free)
    free = _shrink(occupancy, usable, going, free, denied)
    _, going = _keep(movable, sorted(going, key=lambda i: (i not in denied, i)), free)
    return [movable[i] for i in going]


def _keep(movable: list[Movable], order: Iterable[int], free: Amounts) -> tuple[Amounts, list[int]]:
    """Keep each pod that fits, in this order; returns what is free then, and the victims."""
    going = []
    for i in order:
        left = minus(free, movable[i].amounts)
        if is_enough(left):
            free = left
        else:
            going.append(i)
    return free, going


def _shrink(
    occupancy: Occupancy,
    usable: Sequence[int],
    going: list[int],
    free: Amounts,
    denied: Collection[int],
) -> Amounts:
    """Exchange victims, the largest first, for smaller kept pods that are not more important.

    Returns what is free then.
    """
    movable = occupancy.movable
    for i in sorted(going, key=lambda i: -movable[i].size):
        victim = movable[i]
        if victim.is_unbearable:
            continue
        lacking = minus(free, victim.amounts)
        least = largest_part(tuple([-amount for amount in lacking]), occupancy.allocatable)
        smaller = [j for j in usable if least <= movable[j].size < victim.size and j not in going]
        # Of equal ones the last is the least important.
        smaller.sort(key=lambda j: (movable[j].size, -j))
        for j in smaller:
            larger = movable[j]
            is_worse = larger.flags & ~victim.flags or larger.pod.priority > victim.pod.priority
            if is_worse or (j in denied and i not in denied):
                continue
            left = tuple(map(sum, zip(lacking, larger.amounts, strict=True)))
            if is_enough(left):
                going[going.index(i)] = j
                free = left
                break
    return free
