"""Decisions about every kind of object that is placed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec import Struct

from harbourmaster.placement.filters import Candidate
from harbourmaster.placement.model import FailedCluster

DecisionOutcome = Literal[
    "Placed",
    "Moved",
    "Stayed",
    "MoveLimited",
    "NoSuitableTarget",
    "InvalidConstraint",
    "NotConfirmed",
    "Waiting",
]
_SHOWN: Final = 3
"""Reasons in a message; the rest is counted."""


class CandidateVerdict(Struct, frozen=True, gc=False):
    """A target, and why the object cannot be placed there; empty if it can."""

    target: Candidate
    reason: str = ""


class Decision(Struct, frozen=True, gc=False, kw_only=True):
    """The decision about one object in one pass.

    ``chosen`` are the names with the best score, from which ``target`` is drawn; it is None if the
    object stays or no target suits. ``reason`` is one line.
    """

    outcome: DecisionOutcome
    time: datetime
    reason: str = ""
    generation: int = 0
    verdicts: Sequence[CandidateVerdict] = ()
    scores: Mapping[str, float] = {}
    chosen: Sequence[str] = ()
    target: Candidate | None = None
    current: str = ""
    """The name of the current target, even if that no longer exists."""
    stickiness: float = 0.0
    is_elective: bool = False
    """Whether it moves although it could stay."""
    failed: FailedCluster | None = None
    """The failure on the cluster that the application leaves."""
    until: datetime | None = None
    """The time at which the decision may change without any event."""

    @property
    def stays(self) -> bool:
        """Whether it is placed and stays there."""
        return bool(self.current) and self.current in self.chosen and self.target is None

    @property
    def cause(self) -> str:
        """Why it moves, in a word; empty if it does not."""
        if self.outcome != "Moved":
            return ""
        if self.is_elective:
            return "BetterScore"
        if self.failed is not None:
            return "Failed"
        left = next(
            (verdict for verdict in self.verdicts if verdict.target.name == self.current), None
        )
        if left is None:
            return "ClusterDeleted"
        return "NoAnswer" if left.target.outage == "NoAnswer" else "Unsuitable"

    @property
    def error(self) -> str:
        """Why there is no decision or no target; otherwise empty."""
        if self.outcome in {"NoSuitableTarget", "InvalidConstraint"}:
            return f"{self.outcome}: {self.reason}"
        return self.reason if self.outcome == "Waiting" else ""

    def with_target(
        self, outcome: DecisionOutcome, reason: str, target: Candidate, *, is_elective: bool = False
    ) -> Decision:
        """Return this decision with a target that is placed or moved to."""
        return msgspec.structs.replace(
            self, outcome=outcome, reason=reason, target=target, is_elective=is_elective
        )

    def with_current(self, outcome: DecisionOutcome, reason: str) -> Decision:
        """Return this decision with the current cluster, where the object stays or waits."""
        chosen = (self.current,) if self.current else ()
        return msgspec.structs.replace(
            self, outcome=outcome, reason=reason, chosen=chosen, target=None, is_elective=False
        )

    def without_target(self, outcome: DecisionOutcome, reason: str) -> Decision:
        """Return this decision with no target, and the reason."""
        return msgspec.structs.replace(self, outcome=outcome, reason=reason, chosen=(), target=None)


def best_of(name: str, scores: Mapping[str, float]) -> str:
    """Why a target is chosen."""
    if len(scores) == 1:
        return f"'{name}' is the only suitable one"
    return f"'{name}' has the best score, {scores[name]:.6g}"


def nothing_suits(verdicts: Sequence[CandidateVerdict], what: str) -> str:
    """Why there is no target, the most frequent reasons first."""
    if not verdicts:
        return f"there is no {what}"
    reasons = Counter(verdict.reason for verdict in verdicts)
    listed = [f"{count} times {reason}" for reason, count in reasons.most_common(_SHOWN)]
    more = len(reasons) - len(listed)
    rest = f"; {more} more reasons" if more else ""
    return f"no suitable {what} among {len(verdicts)}: {'; '.join(listed)}{rest}"
