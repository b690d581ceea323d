"""When an application has failed on its cluster, and which clusters earlier failures exclude.

Only an application that was never ready on its present cluster fails there: a bad change of one
that ran moves nothing. A failure counts until the application or the Cluster changes, so no
application moves in a circle.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import moment
from harbourmaster.placement.application_status import stamp
from harbourmaster.placement.decision import CandidateVerdict
from harbourmaster.placement.deployed import DEPLOYED, READY
from harbourmaster.placement.model import FALSE, FailedCluster, condition

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.kinds import KindConstraint
    from harbourmaster.placement.model import Application, PlacedStatus
    from harbourmaster.placement.passes import Pass

REFUSED_AFTER: Final = timedelta(seconds=30)
_REFUSALS: Final = frozenset(("FieldConflict", "Forbidden", "Invalid", "InvalidManifests")) | {
    *("NotFound", "ObjectExists", "UnknownKind")
}
"""Reasons for which a cluster refuses objects: another one may take them."""
_OF_NO_CLUSTER: Final = frozenset(("SecretNotCopied", "ForeignObject"))
"""Reasons to stay: the first is the same on every cluster; after a restore of the hub, the second
means that an earlier copy of the application still runs there."""
_LONGEST: Final = 512


def failure(
    application: Application, target: Candidate, seen: Pass, kinds: Sequence[KindConstraint]
) -> tuple[FailedCluster, datetime] | None:
    """The failure on its cluster and when it is due if nothing changes; None if there is none."""
    status, generation, rules = application.status, application.metadata.generation, seen.rules
    deployed, ready = (condition(status.conditions, name) for name in (DEPLOYED, READY))
    if rules.on_failure == "Stay" or not status.awaits_ready or target.outage or deployed is None:
        return None
    last = status.last_decision.time if status.last_decision is not None else ""
    times = [status.scheduled_time, target.reachable_since, last]
    wait = timedelta(seconds=rules.failed_after_seconds)
    reason = f"not ready after {rules.failed_after_seconds:g} seconds"
    if deployed.status == FALSE and deployed.reason in _REFUSALS:
        times.append(deployed.last_transition_time)
        wait, reason = REFUSED_AFTER, deployed.message
    elif ready is not None and ready.status == FALSE:
        reason = f"{reason}: {ready.message}"
    since = max(filter(None, (*map(moment, times), seen.begun)), default=None)
    is_seen = deployed.observed_generation == status.scheduled_generation == generation
    if since is None or not is_seen or deployed.reason in _OF_NO_CLUSTER:
        return None
    due, revision = since + wait, _revision(target, kinds)
    failed = FailedCluster(
        target.name, target.uid, generation, revision, reason[:_LONGEST], stamp(due)
    )
    return failed, due


def failed_there(failed: FailedCluster) -> str:
    """Why a cluster is excluded."""
    return f"the application failed there: {failed.reason}"


def excluded(
    status: PlacedStatus,
    generation: int,
    verdicts: Sequence[CandidateVerdict],
    kinds: Sequence[KindConstraint],
) -> Iterator[CandidateVerdict]:
    """The verdicts about clusters that earlier failures of this generation exclude."""
    failed = {(each.name, each.uid, each.generation, each.revision): each
              for each in status.failed_clusters}  # fmt: skip
    for each in verdicts:
        target = each.target
        found = failed.get((target.name, target.uid, generation, _revision(target, kinds)))
        if found is not None and not each.reason:
            yield CandidateVerdict(target, failed_there(found))


def _revision(target: Candidate, kinds: Sequence[KindConstraint]) -> str:
    """What a failure depends on: the Cluster's spec, and needed kinds that it does not serve.

    Other kinds do not count, as the application itself may bring and remove them.
    """
    missing = [each.name for each in kinds if each.mismatch(target.served_kinds)]
    return ", ".join([str(target.generation), *missing])
