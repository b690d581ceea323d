"""How bad a choice is: named numbers, compared one after the other (rescheduler-spec 5.5)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.rescheduling.classes import BARE, SHORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.rescheduling.bounds import Least
    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.plans import ScoreOrder, Term
    from harbourmaster.rescheduling.stands import Stand
    from harbourmaster.rescheduling.victims import Choice

Values: TypeAlias = tuple[int | str, ...]
"""A score without its names; those of one order compare with each other."""

_LEADING: Final = ("tier", "violations", "shortened", "bare")
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

    def __init__(self, order: ScoreOrder, seed: int, uid: str) -> None:
        self._is_random = order == "random"
        self._is_priority_first = order == "priorityFirst"
        self._salt = f"{seed}/{uid}/"
        self._names = TERMS[order]

    def named(self, values: Values, stranded: int | None = None) -> tuple[Term, ...]:
        """The terms in order, with the number of stranded victims if that counts."""
        terms: list[Term] = list(zip(self._names, values, strict=True))
        if stranded is not None:
            terms.insert(LEADING, (STRANDED, stranded))
        return tuple(terms)

    def values(self, node: Node, stand: Stand, choice: Choice) -> Values:
        """The score of the victims that were chosen at a node."""
        victims = choice.victims
        if self._is_random:
            return (choice.tier, self._lot(node.name), node.name)
        shortened = bare = total = share = 0
        highest = victims[0].entry.pod.priority if victims else 0
        for row in victims:
            flags, priority = row.entry.flags, row.entry.pod.priority
            shortened += flags & SHORT > 0
            bare += flags & BARE > 0
            share += row.share
            total += priority
            if priority > highest:  # noqa: PLR1730 - max() takes four times as long
                highest = priority
        leading = (choice.tier, len(choice.denied), shortened, bare)
        return self._ordered(leading, (len(victims), share), (highest, total), node, stand)

    def bound(self, node: Node, stand: Stand, least: Least) -> Values:
        """A score that no choice at this node can beat."""
        tier, violations, shortened, count, share, priority, priorities = least
        if self._is_random:
            return (tier, self._lot(node.name), node.name)
        leading = (tier, violations, shortened, 0)
        return self._ordered(leading, (count, share), (priority, priorities), node, stand)

    def _ordered(
        self, leading: Values, amount: Values, importance: Values, node: Node, stand: Stand
    ) -> Values:
        end = (int(stand.roster.non_drainable > 0), int(node.is_deletion_candidate), node.name)
        if self._is_priority_first:
            return leading + importance + amount + end
        return leading + amount + importance + end

    def _lot(self, name: str) -> int:
        """The number that the node draws; the same in every plan for the pod."""
        return zlib.crc32(f"{self._salt}{name}".encode())
