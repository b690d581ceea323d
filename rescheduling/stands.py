"""What a plan may count on at one node: who stays, and who may move in which order."""

from __future__ import annotations

from itertools import accumulate, count
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from harbourmaster.rescheduling.classes import (
    NON_DRAINABLE,
    RUNNING,
    SHORT,
    born,
    is_as_good_as_gone,
    rank_of,
)
from harbourmaster.rescheduling.requests import PODS
from harbourmaster.rescheduling.roster import Roster
from harbourmaster.rescheduling.vectors import UNBEARABLE, largest_parts, millionths

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from harbourmaster.rescheduling.model import Node, Pod, Requests
    from harbourmaster.rescheduling.plans import Circumstances, PlannerSettings
    from harbourmaster.rescheduling.spaces import Entry, Space
    from harbourmaster.rescheduling.vectors import Scale


class Row(NamedTuple):
    """A pod that may move; sorted, those come first that should rather stay (5.4).

    ``size`` is the largest part that it has of one of the resources asked for, ``packed`` what it
    weighs when it is to be kept, ``share`` what it has of the node, in millionths, ``place`` where
    it is in the roster.
    """

    rank: int
    size: float
    born: float
    namespace: str
    name: str
    uid: str
    packed: int
    share: int
    place: int
    entry: Entry


class Stand:
    """A node, and what its pods weigh.

    ``fixed`` is the sum over those that stay, ``movable`` over those that may move, ``long`` over
    those of them that have a long grace. In the order of the ``roster``, ``columns`` has the
    amounts by resource, and ``units`` what counts as pods. What only promising nodes are asked for
    waits until it is: ``rows`` are the pods in their final order. ``apart`` has the UIDs of those
    beside which the critical pod can't be.
    """

    __slots__ = (
        "_allocatable",
        "_prefixes",
        "_rows",
        "_shares",
        "_sizes",
        "_units",
        "apart",
        "available",
        "capacity",
        "columns",
        "fixed",
        "long",
        "movable",
        "roster",
        "scale",
    )

    def __init__(
        self, node: Node, scale: Scale, roster: Roster, apart: Collection[str] = ()
    ) -> None:
        self.scale = scale
        self.roster = roster
        self.available = [node.allocatable.get(name, 0) for name in scale.names]
        self.capacity = scale.pack(node.allocatable.get(PODS, 0), self.available)
        self._allocatable = node.allocatable
        self.apart = apart
        self.columns = columns = tuple([roster.column(name) for name in scale.names])
        longs, moving = roster.longs, len(roster.entries)
        self.long = scale.pack(longs, [sum(each[:longs]) for each in columns]) if longs else 0
        self.movable = scale.pack(moving, [sum(each) for each in columns])
        self._units: list[int] | None = None
        if apart:
            unbearable = [UNBEARABLE * (each.pod.uid in apart) for each in roster.entries]
            self._units = [1 + each for each in unbearable]
            self.long += sum(unbearable[:longs])
            self.movable += sum(unbearable)
        self.fixed = sum([scale.weigh(each).packed for each in roster.required])
        # Where there is no pod yet, they are kept up to date from the first one on.
        self._shares: list[int] | None = None if moving else []
        self._rows: list[Row] | None = None
        self._prefixes: list[int] | None = None
        self._sizes: list[float] | None = None

    def fix(self, requests: Requests, sign: int) -> None:
        """A pod that stays came, or went."""
        self.fixed += sign * self.scale.weigh(requests).packed

    def add(self, entry: Entry, place: int) -> None:
        """Count one pod more, at this place of the roster; only where none is ``apart``."""
        weight = self.scale.weigh(entry.pod.requests)
        self.movable += weight.packed
        if entry.flags & SHORT:
            self.long += weight.packed
        if self._shares is not None:
            counted = [(amount,) for amount in weight.counted]
            self._shares[place:place] = millionths(counted, self._counted())
        self._forget()

    def remove(self, entry: Entry, place: int) -> None:
        """Count it no more."""
        weight = self.scale.weigh(entry.pod.requests)
        self.movable -= weight.packed
        if entry.flags & SHORT:
            self.long -= weight.packed
        if self._shares is not None:
            del self._shares[place]
        self._forget()

    @property
    def units(self) -> list[int]:
        """The pods as numbers of pods, in the order of the roster."""
        return self._units or [1] * len(self.roster.entries)

    @property
    def shares(self) -> list[int]:
        """What the pods have of the node, in millionths, in the order of the roster."""
        if self._shares is None:
            columns = [self.roster.column(name) for name in self.scale.counted]
            self._shares = millionths(columns, self._counted())
        return self._shares

    @shares.setter
    def shares(self, shares: Iterable[int]) -> None:
        self._shares = list(shares)

    @property
    def rows(self) -> list[Row]:
        """The pods that may move, in order."""
        if self._rows is None:
            sizes = largest_parts(self.columns, self.available)
            packed = self.scale.pack_all(self.units, self.columns)
            columns = (self.roster.entries, sizes, packed, self.shares, count())
            self._rows = sorted(map(_row, *columns))
        return self._rows

    @property
    def prefixes(self) -> list[int]:
        """At each place, what the rows before it weigh."""
        if self._prefixes is None:
            self._prefixes = list(accumulate([row.packed for row in self.rows], initial=0))
        return self._prefixes

    @property
    def sizes(self) -> list[float]:
        """The sizes of the rows."""
        if self._sizes is None:
            self._sizes = [row.size for row in self.rows]
        return self._sizes

    def _counted(self) -> list[int]:
        return [self._allocatable.get(name, 0) for name in self.scale.counted]

    def _forget(self) -> None:
        self._rows = self._prefixes = self._sizes = None


def _row(entry: Entry, size: float, packed: int, share: int, place: int) -> Row:
    pod = entry.pod
    return Row(
        entry.rank,
        size,
        born(pod),
        pod.namespace,
        pod.name,
        pod.uid,
        packed,
        share,
        place,
        entry,
    )


def usual(space: Space, node: Node, scale: Scale) -> Stand:
    """The stand of a node where nothing goes on; from then on it is kept up to date."""
    found = space.stands.get(scale.names)
    if found is None:
        found = Stand(node, scale, space.roster)
        for other in space.stands.values():
            if other.scale.counted == scale.counted:
                found.shares = other.shares
        space.stands[scale.names] = found
    return found


class Sorter:
    """Tells what becomes of the pods of a node where something goes on."""

    def __init__(self, settings: PlannerSettings, around: Circumstances, now: float) -> None:
        self._settings = settings
        self._around = around
        self._now = now

    def is_gone(self, pod: Pod) -> bool:
        """Whether the pod counts no more: it goes soon, or another plan evicts it."""
        return pod.uid in self._around.departing or is_as_good_as_gone(
            pod, self._settings, self._now
        )

    def stand(
        self,
        node: Node,
        entries: Iterable[Entry],
        scale: Scale,
        reserved: Iterable[Requests],
        apart: Collection[str],
    ) -> Stand | None:
        """The stand of such a node; None where a pod that stays is one of those ``apart``."""
        required = [*reserved]
        movable = []
        for entry in entries:
            pod = entry.pod
            if self.is_gone(pod):
                continue
            judged = self._judged(entry)
            if judged is not None:
                movable.append(judged)
            elif pod.uid in apart:
                return None
            else:
                required.append(pod.requests)
        return Stand(node, scale, Roster(movable, required), apart)

    def _judged(self, entry: Entry) -> Entry | None:
        """The pod as it may be moved; None for one that stays."""
        pod = entry.pod
        if entry.is_required or pod.uid in self._around.excluded_pods:
            return None
        flags = entry.flags
        if pod.deletion is not None:
            # It is lost already; all that is left to take from it is time.
            flags = SHORT | RUNNING
        elif pod.owner in self._around.spared_owners:
            if self._settings.non_drainable == "forbid":
                return None
            flags |= NON_DRAINABLE
        if flags == entry.flags:
            return entry
        return replace(entry, flags=flags, rank=rank_of(flags, pod.priority))
