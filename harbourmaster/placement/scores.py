"""Scores, and which of several targets have the best one (krake-spec 3.5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.evaluation.schedule import stable_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.placement.filters import Candidate
    from harbourmaster.placement.measurements import Measurement

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
