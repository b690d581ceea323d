"""When an application has failed on its cluster, and which clusters earlier failures exclude.

Only an application that was never ready on its present cluster fails there: a bad change of one
that ran moves nothing. A failure counts until the application or the Cluster changes, so no
application moves in a circle.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.times import moment
from harbourmaster.placement.application_status import stamp
from harbourmaster.placement.deployed import DEPLOYED, READY
from harbourmaster.placement.model import FALSE, FailedCluster, condition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.decision import CandidateVerdict
    from harbourmaster.placement.kinds import KindConstraint
    from harbourmaster.placement.model import Application
    from harbourmaster.placement.rules import Rules

REFUSED_AFTER: Final = timedelta(seconds=30)
_REFUSALS: Final = frozenset(
    (
        *("FieldConflict", "Forbidden", "ForeignObject", "Invalid", "InvalidManifests"),
        *("NotFound", "ObjectExists", "UnknownKind"),
    )
)
"""Reasons for which a cluster refuses objects: another one may take them."""
_LONGEST: Final = 512


class Failure(Struct, frozen=True, gc=False):
    """Why an application fails on its cluster, and at which time."""

    reason: str
    due: datetime


def failure(application: Application, target: Candidate, rules: Rules) -> Failure | None:
    """The failure that is due if nothing changes; None if there is none."""
    status, generation = application.status, application.metadata.generation
    deployed = condition(status.conditions, DEPLOYED)
    if rules.on_failure == "Stay" or not status.awaits_ready or target.outage or deployed is None:
        return None
    if not deployed.observed_generation == status.scheduled_generation == generation:
        return None
    last = status.last_decision
    times = [status.scheduled_time, target.reachable_since, last.time if last is not None else ""]
    since = _latest(times)
    if since is None:
        return None
    if deployed.status == FALSE and deployed.reason in _REFUSALS:
        refused = _latest([deployed.last_transition_time]) or since
        return Failure(deployed.message[:_LONGEST], max(since, refused) + REFUSED_AFTER)
    ready = condition(status.conditions, READY)
    seconds = rules.failed_after_seconds
    text = f"not ready after {seconds:g} seconds"
    if ready is not None and ready.status == FALSE and ready.message:
        text = f"{text}: {ready.message}"[:_LONGEST]
    return Failure(text, since + timedelta(seconds=seconds))


def failed_on(
    target: Candidate, kinds: Sequence[KindConstraint], generation: int, found: Failure
) -> FailedCluster:
    """The record of a failure of this generation on a cluster."""
    return FailedCluster(
        name=target.name,
        uid=target.uid,
        generation=generation,
        revision=_revision(target, kinds),
        reason=found.reason,
        time=stamp(found.due),
    )


def excluded(
    application: Application,
    verdicts: Sequence[CandidateVerdict],
    kinds: Sequence[KindConstraint],
) -> Mapping[str, str]:
    """Why earlier failures exclude clusters, by name; the present one is not excluded."""
    status, found = application.status, {}
    targets = {each.target.name: each.target for each in verdicts}
    for each in status.failed_clusters:
        target = targets.get(each.name)
        if target is None or target.is_at(status.scheduled_to, application.metadata.namespace):
            continue
        known = (each.uid, each.generation, each.revision)
        if known == (target.uid, application.metadata.generation, _revision(target, kinds)):
            found[each.name] = f"the application failed there: {each.reason}"
    return found


def _revision(target: Candidate, kinds: Sequence[KindConstraint]) -> str:
    """What a failure depends on: the Cluster's spec, and needed kinds that it does not serve.

    Other kinds do not count, as the application itself may bring and remove them.
    """
    missing = [each.canonical for each in kinds if each.mismatch(target.served_kinds)]
    return ", ".join([str(target.generation), *missing])


def _latest(times: Sequence[str]) -> datetime | None:
    return max(filter(None, map(moment, times)), default=None)
