"""Decides which cluster runs an application (krake-spec 0, 3.3 to 3.6; decision D11).

Only an application that was never ready on its present cluster fails there: a bad change of one
that ran moves nothing. A failure counts until the application or the Cluster changes, so no
application moves in a circle.
"""

from __future__ import annotations

import math
from collections import defaultdict
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.times import moment
from harbourmaster.placement.application_status import (
    format_time,
    held_until,
    not_now,
    recent_times,
)
from harbourmaster.placement.candidates import (
    Compiled,
    InvalidConstraintError,
    compile_constraints,
    mismatches,
)
from harbourmaster.placement.constraints import needed_kinds
from harbourmaster.placement.data_holders import holder_of_data, is_custom
from harbourmaster.placement.decision import (
    CandidateVerdict,
    Decision,
    best,
    best_of,
    draw,
    nothing_suits,
    score,
)
from harbourmaster.placement.deployed import DEPLOYED, MALFORMED, READY
from harbourmaster.placement.model import AT_GATE, FALSE, FailedCluster, condition
from harbourmaster.placement.passes import view_with
from harbourmaster.placement.readiness import NO_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.constraints import KindConstraint
    from harbourmaster.placement.model import Application, PlacedStatus
    from harbourmaster.placement.passes import Pass, View
    from harbourmaster.placement.rules import Rules

AT: Final = "spec.constraints.cluster"
_DATA: Final = (
    "but a move would lose data of its {}: to allow it, set spec.migrationVolumes to Recreate"
)
_CUSTOM: Final = ", or name the kind in placement.statelessKinds if it has no data"


REFUSED_AFTER: Final = timedelta(seconds=30)
_REFUSALS: Final = frozenset(("FieldConflict", "Forbidden", "Invalid", "InvalidManifests")) | {
    *("NotFound", "ObjectExists", "UnknownKind")
}
"""Reasons for which a cluster refuses objects: another one may take them."""
_OF_NO_CLUSTER: Final = frozenset(("SecretNotCopied", MALFORMED, "ForeignObject"))
"""Reasons to stay: the first two are the same on every cluster; after a restore of the hub, the
last one means that an earlier copy of the application still runs there."""
_NO_FAILURES: Final = frozenset((AT_GATE, NO_ADDRESS))
"""Reasons not to be ready that are no failure of the cluster."""
_LONGEST: Final = 512


def _failure(
    application: Application, target: Candidate, seen: Pass, kinds: Sequence[KindConstraint]
) -> tuple[FailedCluster, datetime] | None:
    """The failure on its cluster and when it is due if nothing changes; None if there is none."""
    status, generation, rules = application.status, application.metadata.generation, seen.rules
    deployed, ready = (condition(status.conditions, name) for name in (DEPLOYED, READY))
    if rules.on_failure == "Stay" or not status.awaits_ready or target.outage or deployed is None:
        return None
    if ready is not None and ready.reason in _NO_FAILURES:
        return None
    last = status.last_decision.time if status.last_decision is not None else ""
    times = [status.scheduled_time, target.reachable_since, last]
    wait = timedelta(seconds=rules.failed_after_seconds)
    reason = f"not ready after {rules.failed_after_seconds:g} seconds"
    if deployed.status == FALSE and deployed.reason in _REFUSALS:
        times.append(deployed.last_transition_time)
        wait, reason = REFUSED_AFTER, deployed.message
    elif ready is not None and ready.status == FALSE:
        times.append(ready.last_transition_time)
        told = deployed.message if deployed.status == FALSE else ready.message
        reason = f"{reason}: {told}"
    since = max(filter(None, (*map(moment, times), seen.begun)), default=None)
    is_seen = deployed.observed_generation == status.scheduled_generation == generation
    if since is None or not is_seen or deployed.reason in _OF_NO_CLUSTER:
        return None
    due, revision = since + wait, _revision(target, kinds)
    failed = FailedCluster(
        target.name, target.uid, generation, revision, reason[:_LONGEST], format_time(due)
    )
    return failed, due


def _failed_there(failed: FailedCluster) -> str:
    """Why a cluster is excluded."""
    return f"the application failed there: {failed.reason}"


def _exclude_failed(
    status: PlacedStatus,
    generation: int,
    verdicts: Sequence[CandidateVerdict],
    kinds: Sequence[KindConstraint],
) -> Iterator[CandidateVerdict]:
    """The verdicts about clusters that earlier failures of this generation exclude."""
    failed = {(cluster.name, cluster.uid, cluster.generation, cluster.revision): cluster
              for cluster in status.failed_clusters}  # fmt: skip
    for verdict in verdicts:
        target = verdict.target
        failure = failed.get((target.name, target.uid, generation, _revision(target, kinds)))
        if failure is not None and not verdict.reason:
            yield CandidateVerdict(target, _failed_there(failure))


def _revision(target: Candidate, kinds: Sequence[KindConstraint]) -> str:
    """Return the state a failure depends on: the Cluster's spec, and needed kinds not served.

    Other kinds do not count, as the application itself may bring and remove them.
    """
    missing = [kind.name for kind in kinds if kind.mismatch(target.served_kinds)]
    return ", ".join([str(target.generation), *missing])


class MoveLimits:
    """Recent moves by cluster, so that not all applications move at once.

    One that is decided on again counts once. ``ends`` is when the next pass begins; ``announced``
    are the clusters of which people were told that applications must leave.
    """

    def __init__(self, rules: Rules, ends: datetime | None = None) -> None:
        self.ends = ends
        self.announced: set[str] = set()
        self._rules = rules
        self._arrivals: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
        self._departures: defaultdict[tuple[str, str], set[str]] = defaultdict(set)

    def admits(self, target: Candidate, key: str) -> bool:
        """Whether one more may move there; a limit of 0 means none."""
        there = self._arrivals[target.namespace, target.name]
        limit = self._rules.moves_per_target
        return not limit or len(there - {key}) < limit

    def arrives(self, target: Candidate, key: str) -> None:
        """Count a move, by choice or not."""
        self._arrivals[target.namespace, target.name].add(key)

    def releases(self, cluster: tuple[str, str], key: str) -> bool:
        """Count a move that must be, if one more is allowed; a limit of 0 means none."""
        rules, gone = self._rules, self._departures[cluster]
        total = sum(map(len, self._departures.values()))
        counts = (rules.forced_moves_per_cluster, len(gone)), (rules.forced_moves_total, total)
        if key not in gone and any(limit and count >= limit for limit, count in counts):
            return False
        gone.add(key)
        return True

    def withdraw(self, key: str) -> None:
        """Count no move of an application that is not to move now."""
        for keys in (*self._arrivals.values(), *self._departures.values()):
            keys.discard(key)


def decide(
    application: Application, seen: Pass, move_limits: MoveLimits | None = None, leave: str = ""
) -> Decision:
    """Decide about one application. Never raises for an invalid object.

    ``leave`` is a reason to leave its cluster that the objects do not show; empty for none.
    """
    bound = application.status.scheduled_to
    start = Decision(
        outcome="Waiting",
        time=seen.now,
        generation=application.metadata.generation,
        current=bound.name if bound is not None else "",
        stickiness=seen.rules.stickiness,
    )
    if reason := not_now(application, seen.now):
        return start.with_current("Waiting", reason)
    constraints = application.spec.constraints
    try:
        wanted = compile_constraints(constraints and constraints.cluster, AT)
    except InvalidConstraintError as error:
        return start.without_target("InvalidConstraint", str(error))
    if kinds := needed_kinds(application.spec.manifests):
        wanted = msgspec.structs.replace(wanted, kinds=kinds)
    view = seen.view(application.metadata.namespace, wanted)
    case = _Case(application, seen, view, move_limits or MoveLimits(seen.rules), leave)
    return msgspec.structs.replace(case.decide(start), until=case.until)


class _Case:
    """One application with valid constraints."""

    def __init__(
        self, application: Application, seen: Pass, view: View, move_limits: MoveLimits, leave: str
    ) -> None:
        self._application = application
        self._seen = seen
        self._view = view
        self._move_limits = move_limits
        self._leave = leave
        self.until: datetime | None = None
        """The time at which the decision may change without any event."""

    def decide(self, start: Decision) -> Decision:
        current = self._current(start.current)
        if own := list(self._own(current)):
            self._view = view_with(self._view, own)
            current = self._current(start.current)
        failed = self._find_failure(current)
        if failed is not None:
            current = self._current(start.current)
        view = self._view
        start = msgspec.structs.replace(start, verdicts=view.verdicts)
        if start.current and (reason := self._reason_to_stay(current)):
            return start.with_current("Stayed", reason)
        if not view.matched:
            return start.without_target("NoSuitableTarget", nothing_suits(view.verdicts, "cluster"))
        if current is None or current.reason:
            if current is not None and (data := self._data(current)):
                reason = f"'{start.current}' is excluded ({current.reason}), {data}"
                return start.with_current("Stayed", reason)
            return self._place(msgspec.structs.replace(start, failed=failed), current)
        if until := held_until(self._application, self._seen.rules, self._seen.now):
            return start.with_current(
                "Stayed", f"it must not move again until {format_time(until)}"
            )
        return self._compare(start, current)

    def _current(self, name: str) -> CandidateVerdict | None:
        """Return the verdict on the current cluster; None if it does not exist."""
        application = self._application
        bound, namespace = application.status.scheduled_to, application.metadata.namespace
        same_name = (verdict for verdict in self._view.verdicts if verdict.target.name == name)
        return next(
            (verdict for verdict in same_name if verdict.target.is_at(bound, namespace)), None
        )

    def _own(self, current: CandidateVerdict | None) -> Iterator[CandidateVerdict]:
        """The verdicts that are not those of every application with these constraints."""
        application, wanted = self._application, self._view.wanted
        generation, status = application.metadata.generation, application.status
        if status.failed_clusters:
            yield from _exclude_failed(status, generation, self._view.verdicts, wanted.kinds)
        if current is not None and self._leave:
            yield CandidateVerdict(current.target, self._leave)
            return
        if current is None or not (current.reason or status.failed_clusters):
            return
        target = current.target
        # It stays with unready nodes, and without kinds that it was already told to deploy.
        if target.outage == "NodesNotReady":
            target = msgspec.structs.replace(target, unready="", outage="")
        if status.scheduled_generation == generation:
            wanted = msgspec.structs.replace(wanted, kinds=())
        reason = target.measured.fault or self._seen.verdict(target, wanted).reason
        yield CandidateVerdict(target, target.unready or reason)

    def _find_failure(self, current: CandidateVerdict | None) -> FailedCluster | None:
        """The failure on its cluster, if another one suits; the view excludes that cluster then."""
        if current is None:
            return None
        kinds = self._view.wanted.kinds
        failure = _failure(self._application, current.target, self._seen, kinds)
        if failure is None:
            return None
        failed, self.until = failure
        if self.until > self._seen.now:
            return None
        verdict = CandidateVerdict(current.target, _failed_there(failed))
        view = view_with(self._view, [verdict])
        if not view.matched:
            return None
        self._view = view
        return failed

    def _reason_to_stay(self, current: CandidateVerdict | None) -> str:
        """Why it stays whatever the other clusters are; empty if it may move."""
        constraints, seen = self._application.spec.constraints, self._seen
        if constraints is not None and not constraints.migration:
            return "it must not move: spec.constraints.migration is false"
        until = moment(self._application.status.suspended_until)
        if until is not None and until > seen.now:
            return f"after a failed move it stays until {format_time(until)}"
        if current is None:
            return ""
        target = current.target
        if not (target.outage or target.measured.fault) or self._is_sent_away(current):
            return ""
        if target.outage and not self._is_lost(target):
            setting = "" if self.until is None else f" until {format_time(self.until)}"
            if target.outage == "NoAnswer":
                setting = f"{setting} (placement.onUnreachable: {seen.rules.on_unreachable})"
            return f"'{target.name}' is excluded ({target.unready}); it stays there{setting}"
        if not target.measured.fault or target.unready or seen.rules.on_metrics_loss != "Stay":
            return ""
        return f"the metrics of '{target.name}' are not available: {target.measured.fault}"

    def _is_lost(self, target: Candidate) -> bool:
        """Whether it has not answered for so long that applications leave it."""
        rules, now, begun = self._seen.rules, self._seen.now, self._seen.begun
        if target.outage != "NoAnswer" or rules.on_unreachable == "Stay":
            return False
        since = moment(target.reachable_since) or now
        # It may have answered between two requests.
        since = max(since, begun or since)
        self.until = since + timedelta(seconds=rules.offline_after_seconds)
        return self.until <= now

    def _is_sent_away(self, current: CandidateVerdict) -> bool:
        """Whether users want it to leave: not because of metrics or an outage."""
        target, wanted = current.target, self._view.wanted
        fits = Compiled(wanted.labels, wanted.custom_resources)
        is_out = bool(target.unready) and not target.outage
        return is_out or any(mismatches(target, fits, "Raw"))

    def _data(self, current: CandidateVerdict) -> str:
        """Why its data keeps it on its cluster; empty if it does not."""
        spec = self._application.spec
        if spec.migration_volumes == "Recreate":
            return ""
        served = current.target.served_kinds
        # A kind that its cluster does not serve has no objects there.
        present = [
            manifest
            for manifest in spec.manifests
            if all(kind.holds(served) for kind in needed_kinds([manifest]))
        ]
        holder = holder_of_data(present, self._seen.rules.stateless_kinds)
        if holder is None or self._is_sent_away(current):
            return ""
        text = _DATA.format(f"{holder.kind} {holder.name}".rstrip())
        return text if holder.claims_volumes or not is_custom(holder.group) else text + _CUSTOM

    def _place(self, start: Decision, current: CandidateVerdict | None) -> Decision:
        """The decision if it has no cluster yet or must leave it."""
        scores = self._view.scores
        chosen = best(scores)
        target = self._proposed() or self._draw(chosen)
        why = self._why(target.name)
        start = msgspec.structs.replace(start, scores=scores, chosen=chosen)
        if not start.current:
            return start.with_target("Placed", why, target)
        out = current.reason if current is not None else "it no longer exists"
        out = f"'{start.current}' is excluded ({out})"
        metadata = self._application.metadata
        if not self._move_limits.releases((metadata.namespace, start.current), metadata.key):
            self.until = self._move_limits.ends
            return start.with_current(
                "MoveLimited", f"{out}, but this pass allows no more moves from there"
            )
        self._move_limits.arrives(target, metadata.key)
        return start.with_target("Moved", f"{out}; {why}", target)

    def _compare(self, start: Decision, now: CandidateVerdict) -> Decision:
        """The decision if it could stay: whether another cluster is better."""
        current = now.target
        rules, scores = self._seen.rules, self._view.scores
        if current.name in scores:
            scores = {**scores, current.name: score(current.measured, rules.stickiness)}
        chosen = best(scores)
        start = msgspec.structs.replace(start, scores=scores, chosen=chosen)
        if current.name in chosen:
            return start.with_current("Stayed", f"'{current.name}' still has the best score")
        proposed = self._proposed()
        least = scores.get(current.name, -math.inf)
        if proposed is not None and scores.get(proposed.name, -math.inf) > least:
            chosen = [proposed.name]
        why = self._why(self._draw(chosen).name)
        if data := self._data(now):
            return start.with_current("Stayed", f"{why}, {data}")
        ready = condition(self._application.status.conditions, READY)
        if ready is not None and ready.reason == AT_GATE:
            # Elsewhere, its pods might start without the checks for which they wait here.
            return start.with_current("Stayed", f"{why}, but a pod waits at a scheduling gate")
        limit = rules.moves_per_application
        moves = recent_times(self._application.status.recent_moves, self._seen.now)
        if limit and len(moves) >= limit:
            return start.with_current(
                "Stayed", f"{why}, but it moved {limit} times in the last hour"
            )
        key, matched = self._application.metadata.key, self._view.matched
        admitted = [name for name in chosen if self._move_limits.admits(matched[name], key)]
        if not admitted:
            return start.with_current("Stayed", f"{why}, but this pass allows no more moves there")
        target = self._draw(admitted)
        self._move_limits.arrives(target, self._application.metadata.key)
        return start.with_target("Moved", self._why(target.name), target, is_elective=True)

    def _why(self, name: str) -> str:
        """Why this cluster is chosen: it is the best one, or was checked before."""
        scores = self._view.scores
        return best_of(name, scores) if name in best(scores) else f"'{name}' was checked"

    def _proposed(self) -> Candidate | None:
        """The cluster for which this generation is, or was, checked, if it suits."""
        proposed = self._application.status.proposed
        if proposed is None or proposed.generation != self._application.metadata.generation:
            return None
        target = self._view.matched.get(proposed.name)
        return target if target is not None and target.uid == proposed.uid else None

    def _draw(self, names: Sequence[str]) -> Candidate:
        """One of the names with the best score; always the same for an application."""
        metadata = self._application.metadata
        seed = (self._seen.rules.seed, metadata.uid, metadata.key)
        return self._view.matched[draw(names, *seed)]
