"""Scores of choices: named numbers, compared one after the other (rescheduler-spec 5.5)."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.rescheduling.classes import BARE, CLAIM, SHORT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.rescheduling.model import Node
    from harbourmaster.rescheduling.plans import PlannerSettings, ScoreOrder, ScoreTerm
    from harbourmaster.rescheduling.resources import Scale
    from harbourmaster.rescheduling.victims import Choice

Values: TypeAlias = tuple[int | str, ...]
"""A score without its names; those of one order compare with each other."""

_LEADING: Final = ("tier", "violations", "shortened", "bare", "claims")
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

    def named(self, values: Values, stranded: int | None = None) -> tuple[ScoreTerm, ...]:
        """The terms in order, with the number of stranded victims if that counts."""
        terms: list[ScoreTerm] = list(zip(TERMS[self._order], values, strict=True))
        if stranded is not None:
            terms.insert(LEADING, (STRANDED, stranded))
        return tuple(terms)

    def values(self, node: Node, choice: Choice, *, has_non_drainable: bool) -> Values:
        """The score of the victims that were chosen at a node."""
        if self._order == "random":
            # The same in every plan for the pod.
            return (choice.tier, zlib.crc32(f"{self._salt}{node.name}".encode()), node.name)
        victims = choice.victims
        priorities = [victim.pod.priority for victim in victims]
        leading = (
            choice.tier,
            len(choice.denied),
            sum(victim.flags & SHORT > 0 for victim in victims),
            sum(victim.flags & BARE > 0 for victim in victims),
            sum(victim.flags & CLAIM > 0 for victim in victims),
        )
        importance = (max(priorities, default=0), sum(priorities))
        share = sum(self._scale.share(victim.pod.requests, node) for victim in victims)
        amount = (len(victims), share)
        trailing = (int(has_non_drainable), int(node.is_deletion_candidate), node.name)
        if self._order == "priorityFirst":
            return leading + importance + amount + trailing
        return leading + amount + importance + trailing
