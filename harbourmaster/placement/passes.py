"""One pass: the shared state of its decisions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.placement.candidates import (
    Candidate,
    Compiled,
    backend_candidate,
    cluster_candidate,
    mismatch,
    mismatches,
)
from harbourmaster.placement.decision import CandidateVerdict, score, select_compared
from harbourmaster.placement.measurements import Measuring
from harbourmaster.placement.rules import Rules

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.placement.constraints import Constraint
    from harbourmaster.placement.snapshot import Snapshot


class View(Struct, frozen=True, gc=False):
    """The targets for objects with the same constraints."""

    wanted: Compiled
    verdicts: Sequence[CandidateVerdict]
    matched: Mapping[str, Candidate]
    scores: Mapping[str, float]
    """The scores of the compared targets by name, without stickiness."""


class Pass:
    """A snapshot at one time; results about it are computed once.

    It does not change, so constraints and ranking use the same values.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        now: datetime,
        rules: Rules | None = None,
        begun: datetime | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.now = now
        self.begun = begun
        """Since when statuses are kept up to date; None if they always were."""
        self.rules = rules or Rules()
        self._measuring = Measuring(snapshot)
        self._clusters: dict[str, tuple[Candidate, ...]] = {}
        self._clouds: dict[str, tuple[Candidate, ...]] = {}
        self._projects: tuple[Candidate, ...] | None = None
        self._columns: dict[tuple[str, Constraint], Sequence[str]] = {}
        self._views: dict[tuple[str, Compiled], View] = {}

    def clusters(self, namespace: str) -> tuple[Candidate, ...]:
        """The clusters of a namespace, ready or not."""
        candidates = self._clusters.get(namespace)
        if candidates is None:
            clusters = self.snapshot.clusters.get(namespace, {}).values()
            candidates = tuple(
                cluster_candidate(cluster, self.snapshot, self._measuring) for cluster in clusters
            )
            self._clusters[namespace] = candidates
        return candidates

    def clouds(self, namespace: str) -> tuple[Candidate, ...]:
        """The clouds of a namespace; the global ones for an empty one."""
        candidates = self._clouds.get(namespace)
        if candidates is None:
            clouds = self.snapshot.clouds.get(namespace, {}).values()
            candidates = tuple(backend_candidate(cloud, self._measuring) for cloud in clouds)
            self._clouds[namespace] = candidates
        return candidates

    def projects(self) -> tuple[Candidate, ...]:
        """The projects of all namespaces."""
        if self._projects is None:
            projects = self.snapshot.projects.values()
            self._projects = tuple(
                backend_candidate(project, self._measuring) for project in projects
            )
        return self._projects

    def view(self, namespace: str, wanted: Compiled) -> View:
        """The results of the clusters of a namespace against constraints."""
        key = (namespace, wanted)
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = self._make_view(namespace, wanted)
        return view

    def verdict(self, target: Candidate, wanted: Compiled) -> CandidateVerdict:
        """Whether a target meets the constraints, even if its metrics are unknown."""
        reasons = mismatches(target, wanted, self.rules.constraint_value)
        return CandidateVerdict(target, target.unready or next(reasons, ""))

    def _make_view(self, namespace: str, wanted: Compiled) -> View:
        targets = self.clusters(namespace)
        reasons: Sequence[str] = [target.unready or target.measured.fault for target in targets]
        for constraint in wanted.every:
            column = self._column(namespace, constraint)
            reasons = [known or more for known, more in zip(reasons, column, strict=True)]
        return _view(wanted, tuple(map(CandidateVerdict, targets, reasons)))

    def _column(self, namespace: str, constraint: Constraint) -> Sequence[str]:
        """Why each cluster of a namespace does not meet a constraint; empty if it does."""
        key = (namespace, constraint)
        column = self._columns.get(key)
        if column is None:
            value = self.rules.constraint_value
            column = [mismatch(cluster, constraint, value) for cluster in self.clusters(namespace)]
            self._columns[key] = column
        return column


def view_with(view: View, verdicts: Iterable[CandidateVerdict]) -> View:
    """The view of an application that has verdicts of its own about some clusters."""
    own = {verdict.target.name: verdict for verdict in verdicts}
    return _view(view.wanted, [own.get(verdict.target.name, verdict) for verdict in view.verdicts])


def _view(wanted: Compiled, verdicts: Sequence[CandidateVerdict]) -> View:
    matched = {verdict.target.name: verdict.target for verdict in verdicts if not verdict.reason}
    scores = {
        candidate.name: score(candidate.measured)
        for candidate in select_compared(tuple(matched.values()))
    }
    return View(wanted, verdicts, matched, scores)
