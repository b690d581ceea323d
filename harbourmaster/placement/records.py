"""The record of a decision, small enough for a status: only what is shown.

The candidates are cut to the ones that matter most: where it goes, where it is, and the best of
the others; then those that are out.
"""

from __future__ import annotations

import math
from heapq import nlargest
from itertools import islice
from typing import TYPE_CHECKING, Final

from harbourmaster.placement.application_status import stamp
from harbourmaster.placement.model import CandidateRecord, DecisionRecord, RunnerUp

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.placement.decision import CandidateVerdict, Decision
    from harbourmaster.placement.filters import Candidate
    from harbourmaster.placement.model import Term
    from harbourmaster.placement.passes import Pass
    from harbourmaster.placement.snapshot import ObjectKey

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
        time=stamp(decision.time),
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
