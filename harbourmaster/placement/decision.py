"""Decisions about every kind of object that is placed, their scores and records (krake-spec 3.5).

A record is small enough for a status. The candidates are cut to the ones that matter most: where it
goes, where it is, and the best of the others; then those that are out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Struct

from harbourmaster.evaluation.schedule import stable_hash
from harbourmaster.placement.application_status import format_time
from harbourmaster.placement.candidates import Candidate
from harbourmaster.placement.model import CandidateRecord, DecisionRecord, FailedCluster, RunnerUp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.placement.measurements import Measurement
    from harbourmaster.placement.model import Term
    from harbourmaster.placement.passes import Pass
    from harbourmaster.placement.snapshot import ObjectKey


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
        own = " in its namespace, and others do not count" if what == "cluster" else ""
        return f"there is no {what}{own}"
    reasons = Counter(verdict.reason for verdict in verdicts)
    listed = [f"{count} times {reason}" for reason, count in reasons.most_common(_SHOWN)]
    more = len(reasons) - len(listed)
    rest = f"; {more} more reasons" if more else ""
    return f"no suitable {what} among {len(verdicts)}: {'; '.join(listed)}{rest}"


TOLERANCE: Final = 1e-12
"""Scores that differ by less are equal: sums of the same numbers may, by their rounding."""


def score(measured: Measurement, stickiness: float = 0.0) -> float:
    """The weighted mean of the metrics; ``stickiness`` is that of the current target, else 0."""
    if not measured.terms:
        return stickiness
    weight = stickiness + measured.weight
    if weight == 0:
        # Only where weights are negative.
        return measured.weighted / measured.weight
    return (stickiness + measured.weighted) / weight


def select_compared(matched: Sequence[Candidate]) -> Sequence[Candidate]:
    """The compared targets: if some have metrics, only those."""
    return [candidate for candidate in matched if candidate.measured.terms] or matched


def best(scores: Mapping[str, float]) -> list[str]:
    """The names with the best score."""
    if not scores:
        return []
    top = max(scores.values())
    return [name for name, score in scores.items() if top - score <= TOLERANCE]


def draw(names: Iterable[str], *seed: str) -> str:
    """One of several: chance, but the same for the same names and seed.

    Adding or removing another name changes the draw only where it has to.
    """
    in_order = sorted(names)
    return (
        max(in_order, key=lambda name: stable_hash(name, *seed))
        if len(in_order) > 1
        else in_order[0]
    )


MOST_CANDIDATES: Final = 16
MOST_TERMS: Final = 16
MOST_CHANGES: Final = 3
LONGEST_TEXT: Final = 512


def record(decision: Decision, seen: Pass) -> DecisionRecord:
    """The record of a decision that was made in this pass."""
    scores = decision.scores
    chosen = decision.target.label if decision.target is not None else ""
    if not chosen and decision.stays:
        chosen = decision.current
    others = [name for name in scores if name != chosen]
    second = max(others, key=lambda name: scores[name]) if others else ""
    changes = _changes(decision, seen, chosen, second)
    return DecisionRecord(
        time=format_time(decision.time),
        generation=decision.generation,
        outcome=decision.outcome,
        chosen=chosen,
        reason=_cut(decision.reason),
        considered=len(decision.verdicts),
        matched=sum(not verdict.reason for verdict in decision.verdicts),
        candidates=tuple(_candidate(verdict, decision) for verdict in _in_order(decision)),
        runner_up=RunnerUp(cluster=second, score=scores[second]) if second else None,
        would_change=tuple(_cut(change) for change in islice(changes, MOST_CHANGES)),
    )


def _in_order(decision: Decision) -> list[CandidateVerdict]:
    """Return the new and the current target, the best scores, then others in their order."""
    scores = decision.scores
    names = [] if decision.target is None else [decision.target.label]
    names += [decision.current, *nlargest(MOST_CANDIDATES, scores, key=scores.__getitem__)]
    order = {name: place for place, name in enumerate(dict.fromkeys(names))}
    first = [verdict for verdict in decision.verdicts if verdict.target.label in order]
    first.sort(key=lambda verdict: order[verdict.target.label])
    others = (verdict for verdict in decision.verdicts if verdict.target.label not in order)
    return [*first, *islice(others, MOST_CANDIDATES)][:MOST_CANDIDATES]


def _candidate(verdict: CandidateVerdict, decision: Decision) -> CandidateRecord:
    target = verdict.target
    score = decision.scores.get(target.label)
    is_current = score is not None and target.label == decision.current
    return CandidateRecord(
        cluster=target.label,
        matched=not verdict.reason,
        score=score,
        stickiness=decision.stickiness if is_current else 0.0,
        terms=target.measured.terms[:MOST_TERMS],
        reason=_cut(verdict.reason or target.measured.fault),
    )


def _changes(decision: Decision, seen: Pass, chosen: str, second: str) -> Iterator[str]:
    """Yield the changes that would have changed the decision, the smallest first."""
    if decision.outcome == "NoSuitableTarget":
        yield from (
            f"'{verdict.target.label}' if not: {verdict.reason}" for verdict in decision.verdicts
        )
    if decision.outcome == "Stayed" and not decision.scores:
        yield f"another time: {decision.reason}"
    if not second or chosen not in decision.scores:
        return
    targets = {verdict.target.label: verdict.target for verdict in decision.verdicts}
    if decision.scores[second] >= decision.scores[chosen]:
        yield f"a later pass: {decision.reason}"
        return
    crossings = _crossings(decision, seen, targets[chosen], targets[second])
    yield from (f"'{second}' if {text}" for _, text in sorted(crossings))


def _crossings(
    decision: Decision, seen: Pass, first: Candidate, second: Candidate
) -> Iterator[tuple[float, str]]:
    """Yield by how much each metric must change for the second to win, with a text."""
    gap = decision.scores[first.label] - decision.scores[second.label]
    terms: dict[tuple[ObjectKey, str], Term] = {}
    ours: dict[tuple[ObjectKey, str], float] = {}
    theirs: dict[tuple[ObjectKey, str], float] = {}
    for target, slopes in ((first, ours), (second, theirs)):
        for key, term in _terms_by_metric(target, seen):
            terms[key] = term
            is_current = target.label == decision.current
            weight = target.measured.weight + (decision.stickiness if is_current else 0.0)
            slopes[key] = slopes.get(key, 0.0) + (term.weight / weight if weight else 0.0)
    for key, term in terms.items():
        slope = theirs.get(key, 0.0) - ours.get(key, 0.0)
        metric = seen.snapshot.metrics.get(key[0])
        change = gap / slope if slope else math.inf
        if metric is None or not 0 <= term.normalised + change <= 1:
            continue
        low, high = metric.spec.min, metric.spec.max
        bound = low + (term.normalised + change) * (high - low)
        side = "above" if change > 0 else "below"
        owner = f" of '{key[1]}'" if key[1] else ""
        text = f"'{term.metric}'{owner} were {side} {bound:.6g}; it is {term.value:.6g}"
        yield abs(change), text


def _terms_by_metric(target: Candidate, seen: Pass) -> Iterator[tuple[tuple[ObjectKey, str], Term]]:
    """The terms of a target by where their metrics are, and by cluster if each has a value."""
    for term in target.measured.terms:
        key = (target.namespace if term.scope == "Namespaced" else "", term.metric)
        metric = seen.snapshot.metrics.get(key)
        is_own = metric is not None and metric.spec.provider.is_per_cluster
        yield (key, target.label if is_own else ""), term


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 3]}..."
