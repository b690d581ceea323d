"""Chooses the pods of a node to evict: few and unimportant ones (rescheduler-spec 5.3, 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.rescheduling.budgets import BLOCKED
from harbourmaster.rescheduling.classes import SHORT
from harbourmaster.rescheduling.resources import is_enough, largest_part, minus, without

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harbourmaster.rescheduling.budgets import BudgetLedger
    from harbourmaster.rescheduling.model import Pod
    from harbourmaster.rescheduling.resources import Amounts

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
            denied = ledger.denied(order, guards)
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
    denied = ledger.denied(reversed(places), guards)
    order = [*sorted(denied), *(i for i in places if i not in denied)]
    victims = _fewest(occupancy, places, order, occupancy.room, denied)
    budgets = _budgets(movable, guards, victims, ledger)
    # Denials depend on the order; what counts is whether all victims may be evicted.
    going = {victim.uid for victim in victims}
    leaving = [i for i in reversed(places) if movable[i].uid in going]
    too_many = frozenset(movable[i].uid for i in ledger.denied(leaving, guards))
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
