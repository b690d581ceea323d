"""Which cluster runs an application (krake-spec 0, 3.3 to 3.6; decision D11)."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.times import moment
from harbourmaster.placement.application_status import (
    held_until,
    not_now,
    recent_times,
    stamp,
)
from harbourmaster.placement.decision import Decision, best_of, nothing_suits
from harbourmaster.placement.filters import (
    Compiled,
    InvalidConstraintError,
    compile_constraints,
    mismatches,
)
from harbourmaster.placement.scores import best, drawn, score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.decision import CandidateVerdict
    from harbourmaster.placement.model import Application
    from harbourmaster.placement.passes import Pass, View

AT: Final = "spec.constraints.cluster"
_VOLUMES: Final = (
    "but a move would lose the volumes of its {}: to allow it, set spec.migrationVolumes to "
    "Recreate"
)


class Herd:
    """Recent moves by target cluster, so that not all applications move to the best one at once.

    One that is decided on again counts once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._arrivals: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def admits(self, target: Candidate, key: str) -> bool:
        """Whether one more may move there; a limit of 0 means none."""
        there = self._arrivals[target.namespace, target.name]
        return not self._limit or len(there - {key}) < self._limit

    def arrives(self, target: Candidate, key: str) -> None:
        """Count a move, by choice or not."""
        self._arrivals[target.namespace, target.name].add(key)


def decide(application: Application, seen: Pass, herd: Herd | None = None) -> Decision:
    """Decide about one application. Never raises for an invalid object."""
    bound = application.status.scheduled_to
    start = Decision(
        outcome="Waiting",
        time=seen.now,
        generation=application.metadata.generation,
        current=bound.name if bound is not None else "",
        stickiness=seen.rules.stickiness,
    )
    if reason := not_now(application, seen.now):
        return start.stayed("Waiting", reason)
    constraints = application.spec.constraints
    try:
        wanted = compile_constraints(constraints and constraints.cluster, AT)
    except InvalidConstraintError as error:
        return start.because("InvalidConstraint", str(error))
    view = seen.view(application.metadata.namespace, wanted)
    return _Case(application, seen, view, herd or Herd(0)).decided(start)


class _Case:
    """One application with valid constraints."""

    def __init__(self, application: Application, seen: Pass, view: View, herd: Herd) -> None:
        self._application = application
        self._seen = seen
        self._view = view
        self._herd = herd

    def decided(self, start: Decision) -> Decision:
        current = self._current(start.current)
        if current is not None and current.target.outage == "NodesNotReady":
            self._view = self._seen.view_from(current.target, self._view)
            current = self._current(start.current)
        view = self._view
        start = msgspec.structs.replace(start, verdicts=view.verdicts)
        if start.current and (reason := self._kept(current)):
            return start.stayed("Stayed", reason)
        if not view.matched:
            return start.because("NoSuitableTarget", nothing_suits(view.verdicts, "cluster"))
        if current is None or current.reason:
            if current is not None and (volumes := self._volumes(current)):
                reason = f"'{start.current}' is excluded ({current.reason}), {volumes}"
                return start.stayed("Stayed", reason)
            return self._placed(start, current)
        if until := held_until(self._application, self._seen.rules, self._seen.now):
            return start.stayed("Stayed", f"it must not move again until {stamp(until)}")
        return self._compared(start, current)

    def _current(self, name: str) -> CandidateVerdict | None:
        """Its current cluster."""
        application = self._application
        bound, namespace = application.status.scheduled_to, application.metadata.namespace
        found = (each for each in self._view.verdicts if each.target.name == name)
        return next((each for each in found if each.target.is_at(bound, namespace)), None)

    def _kept(self, current: CandidateVerdict | None) -> str:
        """Why it stays whatever the other clusters are; empty if it may move."""
        constraints, seen = self._application.spec.constraints, self._seen
        if constraints is not None and not constraints.migration:
            return "it must not move: spec.constraints.migration is false"
        until = moment(self._application.status.suspended_until)
        if until is not None and until > seen.now:
            return f"after a failed move it stays until {stamp(until)}"
        if current is None:
            return ""
        target = current.target
        if not (target.outage or target.measured.fault) or self._is_sent_away(current):
            return ""
        if target.outage and (target.outage != "NoAnswer" or seen.rules.on_unreachable == "Stay"):
            setting = "" if target.outage != "NoAnswer" else " (placement.onUnreachable: Stay)"
            return f"'{target.name}' is excluded ({target.unready}); it stays there{setting}"
        if not target.measured.fault or target.unready or seen.rules.on_metrics_loss != "Stay":
            return ""
        return f"the metrics of '{target.name}' are not available: {target.measured.fault}"

    def _is_sent_away(self, current: CandidateVerdict) -> bool:
        """Whether users want it to leave: not because of metrics or an outage."""
        target, wanted = current.target, self._view.wanted
        fits = Compiled(wanted.labels, wanted.custom_resources)
        is_out = bool(target.unready) and not target.outage
        return is_out or any(mismatches(target, fits, "Raw"))

    def _volumes(self, current: CandidateVerdict) -> str:
        """Why its volumes keep it on its cluster; empty if they do not."""
        spec = self._application.spec
        kind = next((each.kind for each in spec.manifests if each.has_volumes), "")
        if not kind or spec.migration_volumes == "Recreate" or self._is_sent_away(current):
            return ""
        return _VOLUMES.format(kind)

    def _placed(self, start: Decision, current: CandidateVerdict | None) -> Decision:
        """The decision if it has no cluster yet or must leave it; limits do not apply."""
        scores = self._view.scores
        chosen = best(scores)
        target = self._drawn(chosen)
        why = best_of(target.name, scores)
        start = msgspec.structs.replace(start, scores=scores, chosen=chosen)
        if not start.current:
            return start.goes("Placed", why, target)
        self._herd.arrives(target, self._application.metadata.key)
        out = current.reason if current is not None else "it no longer exists"
        return start.goes("Moved", f"'{start.current}' is excluded ({out}); {why}", target)

    def _compared(self, start: Decision, now: CandidateVerdict) -> Decision:
        """The decision if it could stay: whether another cluster is better."""
        current = now.target
        rules, scores = self._seen.rules, self._view.scores
        if current.name in scores:
            scores = {**scores, current.name: score(current.measured, rules.stickiness)}
        chosen = best(scores)
        start = msgspec.structs.replace(start, scores=scores, chosen=chosen)
        if current.name in chosen:
            return start.stayed("Stayed", f"'{current.name}' still has the best score")
        why = best_of(self._drawn(chosen).name, scores)
        if volumes := self._volumes(now):
            return start.stayed("Stayed", f"{why}, {volumes}")
        limit = rules.moves_per_application
        moves = recent_times(self._application.status.recent_moves, self._seen.now)
        if limit and len(moves) >= limit:
            return start.stayed("Stayed", f"{why}, but it moved {limit} times in the last hour")
        key, matched = self._application.metadata.key, self._view.matched
        admitted = [each for each in chosen if self._herd.admits(matched[each], key)]
        if not admitted:
            return start.stayed("Stayed", f"{why}, but this pass allows no more moves there")
        target = self._drawn(admitted)
        self._herd.arrives(target, self._application.metadata.key)
        return start.goes("Moved", best_of(target.name, scores), target, is_elective=True)

    def _drawn(self, names: Sequence[str]) -> Candidate:
        """One of the names with the best score; always the same for an application."""
        metadata = self._application.metadata
        seed = (self._seen.rules.seed, metadata.uid, metadata.key)
        return self._view.matched[drawn(names, *seed)]
