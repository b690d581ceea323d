"""The pods of a node in columns, so that a look at all nodes need not touch every pod."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.rescheduling.classes import NON_DRAINABLE, SHORT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from harbourmaster.rescheduling.model import Pod, Requests
    from harbourmaster.rescheduling.spaces import Entry

COMMON: Final = ("cpu", "memory")
"""What nearly all pods ask for."""
_MOST_COMMON: Final = len(COMMON)
_rank: Final = attrgetter("rank")


class Keys(NamedTuple):
    """The keys of the budgets that match each pod; None where none matches any.

    ``unusual`` are the places of pods of which their budgets may think otherwise.
    """

    stamp: int
    budgets: list[tuple[str, ...]] | None
    unusual: list[int]


class Roster:
    """Pods that may move, by rank, and what those that stay ask for.

    The first ``longs`` of ``entries`` have a long grace. ``ranks``, ``groups``, ``requests`` and
    ``priorities`` have the same of each of them; ``special`` counts those that ask for something
    less common, ``unusual`` those of which budgets may think otherwise than of most.
    """

    __slots__ = (
        "_columns",
        "_keys",
        "entries",
        "groups",
        "longs",
        "non_drainable",
        "priorities",
        "ranks",
        "requests",
        "required",
        "special",
        "unusual",
    )

    def __init__(self, entries: Iterable[Entry] = (), required: Iterable[Requests] = ()) -> None:
        self.entries = sorted(entries, key=_rank)
        self.ranks = [each.rank for each in self.entries]
        self.groups = [each.group for each in self.entries]
        self.longs = sum([each.flags & SHORT > 0 for each in self.entries])
        self.non_drainable = sum([each.flags & NON_DRAINABLE > 0 for each in self.entries])
        self.priorities = [each.pod.priority for each in self.entries]
        self.requests = [each.pod.requests for each in self.entries]
        self.special = sum(map(_is_special, self.requests))
        self.unusual = sum([_is_unusual(each.pod) for each in self.entries])
        self.required = list(required)
        self._columns: dict[str, list[int]] = {}
        self._keys: Keys | None = None

    def add(self, entry: Entry) -> int:
        """Note one pod more that may move; returns its place."""
        requests = entry.pod.requests
        place = bisect_left(self.ranks, entry.rank)
        self.longs += entry.flags & SHORT > 0
        self.non_drainable += entry.flags & NON_DRAINABLE > 0
        self.special += _is_special(requests)
        self.unusual += _is_unusual(entry.pod)
        self.entries.insert(place, entry)
        self.ranks.insert(place, entry.rank)
        self.groups.insert(place, entry.group)
        self.priorities.insert(place, entry.pod.priority)
        self.requests.insert(place, requests)
        amounts = dict(requests)
        for name, column in self._columns.items():
            column.insert(place, amounts.get(name, 0))
        self._keys = None
        return place

    def remove(self, entry: Entry) -> int:
        """Note it no more; returns where it was."""
        place = bisect_left(self.ranks, entry.rank)
        while self.entries[place] is not entry:
            place += 1
        self.longs -= entry.flags & SHORT > 0
        self.non_drainable -= entry.flags & NON_DRAINABLE > 0
        self.special -= _is_special(entry.pod.requests)
        self.unusual -= _is_unusual(entry.pod)
        del self.entries[place], self.ranks[place], self.groups[place]
        del self.priorities[place], self.requests[place]
        for column in self._columns.values():
            del column[place]
        self._keys = None
        return place

    def column(self, name: str) -> list[int]:
        """What each pod asks for of one resource; from then on it is kept up to date."""
        found = self._columns.get(name)
        if found is None:
            if self.special or name in COMMON:
                found = [dict(each).get(name, 0) for each in self.requests]
            else:
                found = [0] * len(self.requests)
            self._columns[name] = found
        return found

    def forget_but(self, names: Collection[str]) -> None:
        """Keep the columns of these resources alone."""
        self._columns = {name: each for name, each in self._columns.items() if name in names}

    def keys(self, stamp: int) -> Keys:
        """The budgets of the pods, read once while ``stamp`` stays the same."""
        found = self._keys
        if found is None or found.stamp != stamp:
            budgets = [group.budgets for group in self.groups]
            unusual = []
            if self.unusual:
                pods = [each.pod for each in self.entries]
                unusual = [i for i, keys in enumerate(budgets) if keys and _is_unusual(pods[i])]
            found = self._keys = Keys(stamp, budgets if any(budgets) else None, unusual)
        return found


def _is_unusual(pod: Pod) -> bool:
    return not pod.is_ready or pod.phase == "Pending" or pod.deletion is not None


def _is_special(requests: Requests) -> bool:
    return len(requests) > _MOST_COMMON or any(name not in COMMON for name, _ in requests)
