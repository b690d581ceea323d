"""Applications that a person has to confirm before anything is done for them.

These are the ones from before placement was switched on, and those that were imported. Until then
they are decided on for show only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.times import moment
from harbourmaster.placement.application_decisions import decide
from harbourmaster.placement.model import GROUP, NOT_CONFIRMED, TargetReference

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.placement.application_decisions import MoveLimits
    from harbourmaster.placement.decision import Decision
    from harbourmaster.placement.model import Application, PlacedStatus
    from harbourmaster.placement.passes import Pass

CONFIRMED: Final = f"{GROUP}/confirmed"
"""The annotation: ``true`` for one that is confirmed, ``false`` for one that always has to be."""
CURRENT_CLUSTER: Final = f"{GROUP}/current-cluster"
"""The annotation with the name of the Cluster on which an imported application runs."""


def is_waiting(metadata: Metadata, status: PlacedStatus, since: str) -> bool:
    """Whether nothing may be done for an application yet.

    ``since`` is when placement was switched on; if it is empty, the annotation alone counts.
    """
    answer = metadata.annotations.get(CONFIRMED)
    if answer == "true" or status.scheduled_to is not None or metadata.deletion_timestamp:
        # One that is deleted may have our finalizer, for example from a backup.
        return False
    if answer == "false":
        return True
    if any(condition.reason != NOT_CONFIRMED for condition in status.conditions):
        # Placement has handled it before.
        return False
    begun, created = moment(since), moment(metadata.creation_timestamp)
    return begun is not None and created is not None and created < begun


def decide_confirmed(
    application: Application, seen: Pass, move_limits: MoveLimits | None = None, *, since: str = ""
) -> Decision:
    """Decide about an application; for show only while it waits."""
    waits = is_waiting(application.metadata, application.status, since)
    decision = _decide(application, seen, None if waits else move_limits)
    if not waits or decision.outcome == "Waiting":
        return decision
    metadata, target = application.metadata, decision.target
    # No values of metrics: each new one would be another message.
    where = f"it would be placed on '{target.name}'" if target else "no cluster is suitable now"
    command = f"harbourmaster placement confirm {metadata.name} -n {metadata.namespace}"
    return decision.without_target("NotConfirmed", f"{where}: to have it placed, run {command}")


def _decide(application: Application, seen: Pass, move_limits: MoveLimits | None) -> Decision:
    name = application.metadata.annotations.get(CURRENT_CLUSTER)
    if application.status.scheduled_to is not None or not name:
        return decide(application, seen, move_limits)
    bound = replace(application.status, scheduled_to=TargetReference(name=name))
    decision = decide(replace(application, status=bound), seen)
    if decision.outcome in {"Waiting", "InvalidConstraint"}:
        return decision
    current = next(
        (verdict.target for verdict in decision.verdicts if verdict.target.name == name), None
    )
    if current is None:
        text = f"Cluster '{name}' does not exist: create it, or remove the annotation"
        return decision.without_target("NoSuitableTarget", f"{text} {CURRENT_CLUSTER}")
    if decision.outcome == "Stayed" or decision.is_elective:
        # What runs there is recorded first, so that it can be left properly.
        return decision.with_target(
            "Placed", f"it runs there (annotation {CURRENT_CLUSTER})", current
        )
    return decision
