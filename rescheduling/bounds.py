"""What victims at a node cost at least, known before they are chosen (rescheduler-spec 5.4, 5.5).

A bound must never be above the score that a choice gets in the end; the closer it is, the fewer
nodes need be worked out.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from harbourmaster.rescheduling.budgets import BLOCKED
from harbourmaster.rescheduling.vectors import MILLION, UNBEARABLE
from harbourmaster.rescheduling.victims import SHORTENING, VIOLATING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from harbourmaster.rescheduling.budgets import Ledger
    from harbourmaster.rescheduling.stands import Stand

_NEVER: Final = 1 << 62
"""More than any pod has of a node, in millionths."""


class Least(NamedTuple):
    """What a choice costs at least, by the terms of its score."""

    tier: int
    violations: int
    shortened: int
    victims: int
    share: int
    priority: int
    priorities: int


_Leading: TypeAlias = tuple[int, int, int]
"""The first terms: tier, violations, shortened graces."""


class _Some(NamedTuple):
    """Pods among which all victims are: their amounts by resource, shares and priorities."""

    columns: Sequence[Sequence[int]]
    shares: Sequence[int]
    priorities: Sequence[int]


def quick(stand: Stand, room: int) -> Least:
    """A bound by what is known of all pods; ``room`` (packed) is left beside those that stay."""
    first = stand.roster.longs
    columns: Sequence[Sequence[int]] = stand.columns
    shares, priorities = stand.shares, stand.roster.priorities
    leading = (1, 0, 0)
    if first and stand.scale.is_enough(room - stand.long):
        # None with a long grace is a victim then.
        columns = [column[first:] for column in columns]
        shares, priorities = shares[first:], priorities[first:]
    elif first:
        longs = [column[:first] for column in columns]
        leading = (SHORTENING, 0, _fewest(stand, room - stand.long, longs)[0])
    return _least(stand, room, leading, _Some(columns, shares, priorities))


def close(stand: Stand, room: int, guards: list[str] | None, ledger: Ledger) -> Least:
    """A bound by those pods alone that can become victims at all."""
    if guards is None:
        leading, places = _usable(stand, room)
    else:
        leading, places = _usable_by_budgets(stand, room, guards, ledger)
    columns = [_pick(column, places) for column in stand.columns]
    priorities = _pick(stand.roster.priorities, places)
    return _least(stand, room, leading, _Some(columns, _pick(stand.shares, places), priorities))


def _least(stand: Stand, room: int, leading: _Leading, some: _Some) -> Least:
    columns, shares, priorities = some
    count, share, lacking = _fewest(stand, room - stand.movable, columns)
    if count == 1 and not stand.apart:
        # One may do: then it is one that has all that is missing.
        covering = _covering(shares, lacking)
        if covering:
            share = max(share, min(covering))
        else:
            count = 2
    if count > 1:
        share = max(share, sum(sorted(shares)[:count]))
    lowest = min(priorities, default=0)
    total = lowest * count if lowest >= 0 else _least_sum(priorities, count)
    return Least(*leading, count, share, lowest, total)


def _least_sum(priorities: Iterable[int], count: int) -> int:
    """The least sum of the priorities of so many pods, or of more."""
    ordered = sorted(priorities)
    return sum(ordered[:count]) + sum([each for each in ordered[count:] if each < 0])


def _fewest(
    stand: Stand, rest: int, columns: Sequence[Sequence[int]]
) -> tuple[int, int, list[tuple[Sequence[int], int]]]:
    """How many pods go at least, what they have of the node at least, and what of which is lacking.

    ``rest`` (packed, in part negative) is what is left before; one pod goes in any case.
    """
    scale, available = stand.scale, stand.available
    pods, *left = scale.amounts(rest)
    unbearable = (UNBEARABLE // 2 - pods) // UNBEARABLE
    pods += unbearable * UNBEARABLE
    count, share = max(unbearable, -pods, 1), 0
    lacking = []
    if columns:
        for index, amount in enumerate(left):
            if amount < 0:
                column = columns[index]
                lacking.append((column, -amount))
                if scale.are_counted[index]:
                    share -= amount * MILLION // available[index]
                needed = _fewest_of(column, -amount)
                if needed > count:  # noqa: PLR1730 - max() takes longer
                    count = needed
    return count, share, lacking


def _fewest_of(column: Sequence[int], amount: int) -> int:
    """How many of these make up the amount, if the largest are taken."""
    if max(column, default=0) >= amount:
        return 1
    count = 0
    for each in sorted(column, reverse=True):
        if amount <= 0:
            break
        amount -= each
        count += 1
    return count


def _covering(shares: Sequence[int], lacking: list[tuple[Sequence[int], int]]) -> Sequence[int]:
    """The shares of those pods each of which has all of this."""
    if len(lacking) == 1:
        ((column, amount),) = lacking
        return [share for share, has in zip(shares, column, strict=True) if has >= amount]
    for column, amount in lacking:
        # What does not cover one resource is too large to be the least.
        shares = [
            share if has >= amount else _NEVER for share, has in zip(shares, column, strict=True)
        ]
    return [share for share in shares if share < _NEVER]


def _usable(stand: Stand, room: int) -> tuple[_Leading, Sequence[int]]:
    """The first terms, and the places of those that may have to go, where there are no budgets."""
    longs, end = stand.roster.longs, len(stand.roster.entries)
    if not stand.scale.is_enough(room - stand.long):
        needed = _fewest_of_some(stand, room - stand.long, range(longs))
        return (SHORTENING, 0, needed), _from_first(stand, range(end), room)
    return (1, 0, 0), _from_first(stand, range(longs, end), room - stand.long)


def _usable_by_budgets(
    stand: Stand, room: int, guards: list[str], ledger: Ledger
) -> tuple[_Leading, Sequence[int]]:
    """The same with budgets."""
    scale, longs = stand.scale, stand.roster.longs
    blocked = [place for place, key in enumerate(guards) if key is BLOCKED]
    free = [place for place, key in enumerate(guards) if key is not BLOCKED]
    is_contested = ledger.is_contested(guards)
    left = room - _weight(stand, blocked)
    if not scale.is_enough(left):
        needed = _fewest_of_some(stand, left, blocked)
        if is_contested:
            return (VIOLATING, needed, 0), range(len(guards))
        return (VIOLATING, needed, 0), [*_from_first(stand, blocked, room), *free]
    held = free[: bisect_left(free, longs)]
    leading, usable, rest = (1, 0, 0), free[len(held) :], left - _weight(stand, held)
    if not scale.is_enough(rest):
        needed = _fewest_of_some(stand, rest, held)
        leading, usable, rest = (SHORTENING, 0, needed), free, left
    return leading, usable if is_contested else _from_first(stand, usable, rest)


def _from_first(stand: Stand, places: Sequence[int], room: int) -> Sequence[int]:
    """What may go of these, kept in the order of rank as far as there is room (packed).

    Nothing before the first pod that can't be kept goes, but for those no more important by which
    one may be replaced. Which of equal ones comes first makes no difference.
    """
    kept = len(places)
    for column, left in zip((stand.units, *stand.columns), stand.scale.amounts(room), strict=True):
        kept = min(kept, bisect_right(list(accumulate(_pick(column, places))), left))
    if kept == len(places):
        return places
    ranks = stand.roster.ranks
    first = ranks[places[kept]]
    return [place for place in places if ranks[place] >= first]


def _weight(stand: Stand, places: Sequence[int]) -> int:
    """What the pods at these places weigh."""
    amounts = [sum(_pick(column, places)) for column in stand.columns]
    return stand.scale.pack(sum(_pick(stand.units, places)), amounts)


def _fewest_of_some(stand: Stand, rest: int, places: Sequence[int]) -> int:
    """How many pods of those at these places go at least."""
    return _fewest(stand, rest, [_pick(column, places) for column in stand.columns])[0]


def _pick(column: Sequence[int], places: Sequence[int]) -> list[int]:
    return [column[place] for place in places]
