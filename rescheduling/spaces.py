"""Pods as the account keeps them: by node, and by what selectors see of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.rescheduling.model import Pod
from harbourmaster.rescheduling.roster import Roster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.stands import Stand


class Group:
    """Bound pods that nobody can tell apart by labels: a selector is asked about them once.

    ``owners`` has the number of pods by their owner's UID.
    """

    __slots__ = ("anti_affinity", "budgets", "labels", "namespace", "owners", "pods")

    def __init__(self, pod: Pod) -> None:
        self.namespace = pod.namespace
        self.labels = pod.labels
        self.anti_affinity = pod.anti_affinity
        self.pods: dict[str, Pod] = {}
        self.owners: dict[str, int] = {}
        self.budgets: tuple[str, ...] = ()


class Entry(Struct, frozen=True, gc=False):
    """A pod on a node, and what the settings make of it."""

    pod: Pod
    group: Group
    flags: int
    rank: int
    is_required: bool


class Space:
    """A node, known or only heard of, and the pods on it.

    ``verdicts`` hold, by template of critical pods, why the node itself is out of the question;
    ``stamp`` changes with anything.
    """

    __slots__ = ("entries", "leaving", "name", "node", "roster", "stamp", "stands", "verdicts")

    def __init__(self, name: str) -> None:
        self.name = name
        self.node: Node | None = None
        self.entries: dict[str, Entry] = {}
        self.roster = Roster()
        self.leaving = 0
        self.stamp = 0
        self.verdicts: dict[int, tuple[str, ...]] = {}
        self.stands: dict[tuple[str, ...], Stand] = {}

    def fill(self, entries: Mapping[str, Entry]) -> None:
        """Have these pods, and no others."""
        self.entries = dict(entries)
        movable = [each for each in entries.values() if not each.is_required]
        required = [each.pod.requests for each in entries.values() if each.is_required]
        self.roster = Roster(movable, required)
        self.stands.clear()

    def add(self, entry: Entry) -> None:
        """Have one pod more."""
        self.entries[entry.pod.uid] = entry
        self.leaving += entry.pod.deletion is not None
        if entry.is_required:
            self.roster.required.append(entry.pod.requests)
            for stand in self.stands.values():
                stand.fix(entry.pod.requests, 1)
            return
        place = self.roster.add(entry)
        for stand in self.stands.values():
            stand.add(entry, place)

    def remove(self, uid: str) -> Entry:
        """Have one less, and return it."""
        entry = self.entries.pop(uid)
        self.leaving -= entry.pod.deletion is not None
        if entry.is_required:
            self.roster.required.remove(entry.pod.requests)
            for stand in self.stands.values():
                stand.fix(entry.pod.requests, -1)
            return entry
        place = self.roster.remove(entry)
        for stand in self.stands.values():
            stand.remove(entry, place)
        return entry
