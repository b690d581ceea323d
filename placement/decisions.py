"""Which cluster runs an application (krake-spec 0, 3.3 to 3.6; decision D11)."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.times import moment
from harbourmaster.placement.application_status import (
    FAILED_TEXT,
    has_failed,
    held_until,
    not_now,
    recent_times,
    stamp,
)
from harbourmaster.placement.decision import (
    CandidateVerdict,
    Decision,
    best_of,
    nothing_suits,
)
from harbourmaster.placement.failures import excluded, failed_on, failure
from harbourmaster.placement.filters import (
    Compiled,
    InvalidConstraintError,
    compile_constraints,
    mismatches,
)
from harbourmaster.placement.kinds import needed_kinds
from harbourmaster.placement.model import MIGRATION_VOLUMES, RECREATE
from harbourmaster.placement.scores import best, drawn, score

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.model import Application
    from harbourmaster.placement.passes import Pass, View
    from harbourmaster.placement.rules import Rules

AT: Final = "spec.constraints.cluster"
_VOLUMES: Final = (
    "but a move would lose the volumes of its {}: to allow it, set the annotation "
    f"{MIGRATION_VOLUMES} to {RECREATE}"
)


class Herd:
    """The moves of one pass by cluster, so that applications do not move all at once.

    One that is decided on again counts once. ``ends``: when the next pass begins.
    """

    def __init__(self, rules: Rules, ends: datetime | None = None) -> None:
        self.ends = ends
        self._rules = rules
        self._arrivals: defaultdict[str, set[str]] = defaultdict(set)
        self._departures: defaultdict[str, set[str]] = defaultdict(set)
        self._announced: set[str] = set()

    def admits(self, target: Candidate, key: str) -> bool:
        """Whether one more may move there; a limit of 0 means none."""
        limit = self._rules.moves_per_target
        there = self._arrivals[f"{target.namespace}/{target.name}"]
        return not limit or len(there - {key}) < limit

    def arrives(self, target: Candidate, key: str) -> None:
        """Count a move, by choice or not."""
        self._arrivals[f"{target.namespace}/{target.name}"].add(key)

    def releases(self, cluster: str, key: str) -> bool:
        """Whether one more may be made to leave a cluster, which counts; 0 means no limit."""
        limit, total = self._rules.forced_moves_per_cluster, self._rules.forced_moves_total
        gone = self._departures[cluster]
        if key not in gone:
            if limit and len(gone) >= limit:
                return False
            if total and sum(map(len, self._departures.values())) >= total:
                return False
        gone.add(key)
        return True

    def announces(self, cluster: str) -> bool:
        """Whether nobody has said in this pass that applications must leave a cluster."""
        is_first = cluster not in self._announced
        self._announced.add(cluster)
        return is_first


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
    is_failed = has_failed(application)
    constraints = application.spec.constraints
    try:
        wanted = compile_constraints(constraints and constraints.cluster, AT)
    except InvalidConstraintError as error:
        return start.because("InvalidConstraint", str(error))
    if kinds := needed_kinds(application.spec.manifests):
        wanted = msgspec.structs.replace(wanted, kinds=kinds)
    view = seen.view(application.metadata.namespace, wanted)
    case = _Case(application, seen, view, herd or Herd(seen.rules))
    found = case.decided(start)
    if is_failed and found.outcome == "NoSuitableTarget":
        return start.stayed("Waiting", FAILED_TEXT)
    return found if case.until is None else msgspec.structs.replace(found, until=case.until)


class _Case:
    """One application with valid constraints."""

    def __init__(self, application: Application, seen: Pass, view: View, herd: Herd) -> None:
        self._application = application
        self._seen = seen
        self._view = view
        self._herd = herd
        self.until: datetime | None = None
        """When time alone may change the decision."""

    def decided(self, start: Decision) -> Decision:
        current = self._current(start.current)
        if current is not None and (wanted := self._needed(current.target)) is not None:
            self._view = self._seen.view_from(current.target, self._view, wanted)
            current = self._current(start.current)
        application, kinds = self._application, self._view.wanted.kinds
        if application.status.failed_clusters:
            reasons = excluded(application, self._view.verdicts, kinds)
            self._view = self._seen.view_without(self._view, reasons)
        view = self._view
        start = msgspec.structs.replace(start, verdicts=view.verdicts)
        if start.current and (reason := self._kept(current)):
            return start.stayed("Stayed", reason)
        if current is not None and (escape := self._escaped(start, current)) is not None:
            return escape
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

    def _needed(self, current: Candidate) -> Compiled | None:
        """The constraints that count for the current cluster; None if it is like any other.

        Kinds that it does not serve do not count once it was told to deploy them.
        """
        status, wanted = self._application.status, self._view.wanted
        is_told = status.scheduled_generation == self._application.metadata.generation
        if is_told and any(each.mismatch(current.served_kinds) for each in wanted.kinds):
            return msgspec.structs.replace(wanted, kinds=())
        return wanted if current.outage == "NodesNotReady" else None

    def _escaped(self, start: Decision, current: CandidateVerdict) -> Decision | None:
        """The decision if it has failed on its cluster and another suits; None if it stays."""
        target, seen = current.target, self._seen
        found = failure(self._application, target, seen.rules)
        if found is None:
            return None
        if found.due > seen.now:
            self.until = found.due
            return None
        reason = f"the application failed there: {found.reason}"
        view = seen.view_without(self._view, {target.name: reason})
        if not view.matched:
            return None
        if volumes := self._volumes(current):
            return start.stayed(
                "Stayed", f"it failed on '{target.name}' ({found.reason}), {volumes}"
            )
        self._view = view
        moved = self._placed(
            msgspec.structs.replace(start, verdicts=view.verdicts), CandidateVerdict(target, reason)
        )
        if moved.target is None:
            return moved
        failed = failed_on(target, view.wanted.kinds, start.generation, found)
        return msgspec.structs.replace(moved, failed=failed)

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
        if target.outage and (why := self._is_waited_for(target)) is not None:
            return f"'{target.name}' is excluded ({target.unready}); it stays there{why}"
        if not target.measured.fault or target.unready or seen.rules.on_metrics_loss != "Stay":
            return ""
        return f"the metrics of '{target.name}' are not available: {target.measured.fault}"

    def _is_waited_for(self, target: Candidate) -> str | None:
        """The setting by which it stays on a cluster with an outage; None if it leaves."""
        rules = self._seen.rules
        if target.outage != "NoAnswer":
            return ""
        if rules.on_unreachable == "Stay":
            return " (placement.onUnreachable: Stay)"
        if not rules.offline_after_seconds:
            return None
        since = moment(target.reachable_since)
        if since is None:
            return " (since when is unknown)"
        until = since + timedelta(seconds=rules.offline_after_seconds)
        if until <= self._seen.now:
            return None
        self.until = until
        return f" until {stamp(until)} (placement.offlineAfterSeconds)"

    def _is_sent_away(self, current: CandidateVerdict) -> bool:
        """Whether users want it to leave: not because of metrics or an outage."""
        target, wanted = current.target, self._view.wanted
        fits = Compiled(wanted.labels, wanted.custom_resources)
        is_out = bool(target.unready) and not target.outage
        return is_out or any(mismatches(target, fits, "Raw"))

    def _volumes(self, current: CandidateVerdict) -> str:
        """Why its volumes keep it on its cluster; empty if they do not."""
        application = self._application
        is_allowed = application.metadata.annotations.get(MIGRATION_VOLUMES) == RECREATE
        found = (each.kind for each in application.spec.manifests if each.has_volumes)
        kind = next(found, "")
        if not kind or is_allowed or self._is_sent_away(current):
            return ""
        return _VOLUMES.format(kind)

    def _placed(self, start: Decision, current: CandidateVerdict | None) -> Decision:
        """The decision if it has no cluster yet or must leave it."""
        scores = self._view.scores
        chosen = best(scores)
        target = self._drawn(chosen)
        why = best_of(target.name, scores)
        start = msgspec.structs.replace(start, scores=scores, chosen=chosen)
        if not start.current:
            return start.goes("Placed", why, target)
        out = current.reason if current is not None else "it no longer exists"
        metadata = self._application.metadata
        if not self._herd.releases(f"{metadata.namespace}/{start.current}", metadata.key):
            self.until = self._herd.ends
            text = (
                f"it must leave '{start.current}' ({out}), but this pass allows no more such moves"
            )
            return start.stayed("MoveLimited", text)
        self._herd.arrives(target, metadata.key)
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
