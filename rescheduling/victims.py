"""Which pods of a node have to move: few and unimportant ones (rescheduler-spec 5.3, 5.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.rescheduling.budgets import BLOCKED
from harbourmaster.rescheduling.classes import SHORT
from harbourmaster.rescheduling.vectors import largest_part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from harbourmaster.rescheduling.budgets import Ledger
    from harbourmaster.rescheduling.stands import Row, Stand

SHORTENING: Final = 2
"""The tier in which graces are not kept."""
VIOLATING: Final = 3
"""The tier in which budgets are not kept."""


class Choice(NamedTuple):
    """The victims at one node, those that matter most first.

    ``denied`` are the UIDs of those whose budget does not allow it; ``budgets``, by UID, keys.
    """

    tier: int
    victims: list[Row]
    denied: frozenset[str] = frozenset()
    budgets: Mapping[str, str] = {}


def choose(
    stand: Stand, request: int, ledger: Ledger, guards: list[str] | None, *, may_violate: bool
) -> Choice | None:
    """The victims that make room for ``request`` (packed); None where that can't be had.

    The pod must not fit as it is, and must fit beside the pods that stay. ``guards`` are those of
    the roster by the ledger.
    """
    room = stand.capacity - stand.fixed - request + stand.scale.guard
    if guards is not None:
        in_order = [guards[row.place] for row in stand.rows]
        return _choose_guarded(stand, room, in_order, ledger, may_violate=may_violate)
    # Without budgets only those with a long grace, which come first, make a difference.
    kept = _leading(stand.prefixes, room, stand.scale.guard)
    is_first = kept >= stand.roster.longs
    usable = range(stand.roster.longs if is_first else 0, len(stand.rows))
    rest = range(kept, len(stand.rows))
    victims = _fewest(stand, usable, rest, room - stand.prefixes[kept])
    return Choice(1 if is_first else SHORTENING, victims)


def _leading(prefixes: list[int], room: int, guard: int) -> int:
    """How many rows can be kept before the first that can't."""
    low, high = 0, len(prefixes)
    while high - low > 1:
        middle = (low + high) // 2
        if (room - prefixes[middle]) & guard == guard:
            low = middle
        else:
            high = middle
    return low


def _choose_guarded(
    stand: Stand, room: int, guards: list[str], ledger: Ledger, *, may_violate: bool
) -> Choice | None:
    rows, guard, end = stand.rows, stand.scale.guard, len(stand.rows)
    is_contested = ledger.is_contested(guards)
    for tier, first in ((1, stand.roster.longs), (SHORTENING, 0)):
        if tier > 1 and not stand.roster.longs:
            break
        places = range(first, end)
        tried: set[int] | None = None
        for order in _shares(stand, places) if is_contested else (places,):
            denied = ledger.denied(order, guards)
            if denied == tried:
                break
            tried = denied
            start = room - stand.prefixes[first] - sum([rows[i].packed for i in denied])
            if start & guard == guard:
                usable = [i for i in places if i not in denied]
                victims = _fewest(stand, usable, usable, start)
                return Choice(tier, victims, budgets=_budgets(rows, guards, victims))
    return _choose_violating(stand, room, guards, ledger, may_violate=may_violate)


def _choose_violating(
    stand: Stand, room: int, guards: list[str], ledger: Ledger, *, may_violate: bool
) -> Choice | None:
    rows = stand.rows
    places = range(len(rows))
    denied = ledger.denied(reversed(places), guards)
    order = [*sorted(denied), *(i for i in places if i not in denied)]
    victims = _fewest(stand, places, order, room, denied)
    budgets = _budgets(rows, guards, victims)
    # Who was denied is a matter of shares; what counts is whether all that go may go.
    going = {row.uid for row in victims}
    leaving = [i for i in reversed(places) if rows[i].uid in going]
    too_many = frozenset(rows[i].uid for i in ledger.denied(leaving, guards))
    if not too_many:
        tier = SHORTENING if any(row.entry.flags & SHORT for row in victims) else 1
        return Choice(tier, victims, budgets=budgets)
    return Choice(VIOLATING, victims, too_many, budgets) if may_violate else None


def _budgets(rows: list[Row], guards: list[str], victims: list[Row]) -> dict[str, str]:
    """By UID, the budget that counts the eviction."""
    going = {row.uid for row in victims}
    return {
        row.uid: row.entry.group.budgets[0] if key is BLOCKED else key
        for row, key in zip(rows, guards, strict=True)
        if key and row.uid in going
    }


def _shares(stand: Stand, places: range) -> Iterable[list[int]]:
    """Orders in which budgets are given away: to the least important ones, or to the largest.

    Those that can't stay in any case come first.
    """
    rows = stand.rows
    for order in (places[::-1], sorted(places, key=lambda i: (-rows[i].size, -i))):
        yield sorted(order, key=lambda i: rows[i].uid not in stand.apart)


def _fewest(
    stand: Stand,
    usable: Sequence[int],
    order: Iterable[int],
    free: int,
    denied: Collection[int] = (),
) -> list[Row]:
    """Keep what can be kept, in this order; go for smaller ones among those usable; keep again.

    ``free`` (with guards) is what is left when all of ``order`` are gone and the critical pod is
    there.
    """
    rows, guard = stand.rows, stand.scale.guard
    going = []
    for i in order:
        left = free - rows[i].packed
        if left & guard == guard:
            free = left
        else:
            going.append(i)
    free = _shrink(stand, usable, going, free, denied)
    if len(going) > 1:
        going.sort(key=lambda i: (i not in denied, i))
    victims = []
    for i in going:
        left = free - rows[i].packed
        if left & guard == guard:
            free = left
        else:
            victims.append(rows[i])
    return victims


def _shrink(
    stand: Stand, usable: Sequence[int], going: list[int], free: int, denied: Collection[int]
) -> int:
    """Exchange victims, the largest first, for kept ones that are smaller and matter no more.

    Returns what is free then.
    """
    rows, sizes, guard, scale = stand.rows, stand.sizes, stand.scale.guard, stand.scale
    for i in sorted(going, key=lambda i: -sizes[i]) if len(going) > 1 else tuple(going):
        victim = rows[i]
        if victim.uid in stand.apart:
            continue
        without = free - victim.packed
        _, *amounts = scale.amounts(without - guard)
        least = largest_part([-each for each in amounts], stand.available)
        most = victim.size
        smaller = [j for j in usable if least <= sizes[j] < most and j not in going]
        # Of equal ones the last is the least important.
        smaller.sort(key=lambda j: (sizes[j], -j))
        flags, priority = victim.entry.flags, victim.entry.pod.priority
        for j in smaller:
            entry = rows[j].entry
            is_worse = entry.flags & ~flags or entry.pod.priority > priority
            if is_worse or (j in denied and i not in denied):
                continue
            left = without + rows[j].packed
            if left & guard == guard:
                going[going.index(i)] = j
                free = left
                break
    return free
