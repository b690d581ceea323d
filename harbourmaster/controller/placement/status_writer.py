"""Writes the status of an Application, each time against the last version, and its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.objects import reference
from harbourmaster.controller.placement.writes import write
from harbourmaster.placement.cluster_state import UNKNOWN
from harbourmaster.placement.deployed import (
    DEPLOYED,
    FINALIZER,
    READY,
    describe_abandoned,
    describe_cleanup,
    describe_move,
    fields_of,
    record_of,
)
from harbourmaster.placement.model import FALSE, TRUE, Condition, TargetReference, with_conditions

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.controller.placement.context import DeploymentContext
    from harbourmaster.kube.event_series import EventType
    from harbourmaster.placement.deployed import DeployedApplication, DeployedStatus
    from harbourmaster.placement.rollout import Record, Rest


_MAX_TEXT: Final = 1024
_PHASES: Final = {"Deploying": "Reconciling", "Migrating": "Migrating"}
_CLEANING: Final = frozenset(("CleanupPending", "ClusterNotFound"))


class StatusWriter:
    """Writes the status of one application during one pass.

    ``replaced`` are the resource versions before our writes.
    """

    def __init__(self, context: DeploymentContext, application: DeployedApplication) -> None:
        self.replaced: set[str] = set()
        self._context = context
        self._metadata: Metadata = application.metadata
        self._status = application.status
        self._written = record_of(application.status)
        self._changed = application.status

    @property
    def has_finalizer(self) -> bool:
        """Whether ours is there."""
        return FINALIZER in self._metadata.finalizers

    @property
    def is_released(self) -> bool:
        """Whether this generation may be deployed."""
        return self._changed.scheduled_generation == self._metadata.generation

    async def write_step(self, before: Record, record: Record, reason: str) -> None:
        """Write a record before the step that it announces is done. Raises ApiError."""
        self._announce(before, record, reason)
        await self.write(record)

    async def set_finalizer(self, *, present: bool) -> None:
        """Put ours on the object or take it off. Raises ApiError."""
        others = tuple(
            finalizer for finalizer in self._metadata.finalizers if finalizer != FINALIZER
        )
        finalizers = (*others, FINALIZER) if present else others
        await self._patch({"metadata": {"finalizers": finalizers}}, subresource=None)

    async def close(self, record: Record, rest: Rest, unready: str | None, reason: str) -> None:
        """Write the conditions at the end of a pass; ``unready`` is None if it is not known.

        ``reason`` is that of the condition Ready. Raises ApiError.
        """
        changes = []
        left = ", ".join(record.pending)
        beside = f"; what is left on cluster {left} may run too until it answers" if left else ""
        if not rest.reason:
            phase, observed = "Running", self._metadata.generation
            self._changed = replace(self._changed, phase=phase, observed_generation=observed)
            text = f"on cluster {record.running_on}{beside}"
            changes.append(self._condition(DEPLOYED, TRUE, "Applied", text))
        elif rest.reason != "NotScheduled" or not record.running_on:
            changes.append(self._condition(DEPLOYED, FALSE, rest.reason, rest.text + beside))
        if self._metadata.deletion_timestamp:
            self._changed = replace(self._changed, phase="Deleting")
        if not record.running_on:
            changes.append(self._condition(READY, FALSE, "NotDeployed", rest.text))
        elif rest.reason == "ClusterUnreachable":
            changes.append(self._condition(READY, UNKNOWN, rest.reason, rest.text))
        elif unready is not None:
            changes.append(self._condition(READY, FALSE if unready else TRUE, reason, unready))
            awaits_ready = bool(unready) and self._changed.awaits_ready
            self._changed = replace(self._changed, awaits_ready=awaits_ready)
        self._change(changes)
        await self.write(record)

    async def write(self, record: Record) -> None:
        """Write the status if anything in it is new. Raises ApiError."""
        changed = self._changed
        running, references = changed.running_on, self._references(record)
        if running is not None and record.running_on == running.name:
            # A Cluster that was recreated is another one.
            changed = replace(changed, running_on=references.get(running.name, running))
        if record == self._written and changed == self._status:
            return
        fields: dict[str, Any] = {
            **fields_of(record, changed, references),
            "phase": changed.phase or None,
            "observedGeneration": changed.observed_generation,
            "awaitsReady": changed.awaits_ready or None,
            "conditions": changed.conditions,
        }
        if changed.scheduled_generation != self._status.scheduled_generation:
            fields["scheduledGeneration"] = changed.scheduled_generation
        await self._patch({"status": fields}, subresource="status")
        self._written, self._status = record, changed

    def report(self, reason: str, text: str, kind: EventType = "Normal") -> None:
        """Record a Kubernetes event on the Application."""
        regarding = reference(APPLICATIONS, self._metadata)
        self._context.events.emit(regarding, kind, reason, text)

    def _announce(self, before: Record, record: Record, reason: str) -> None:
        phase = _PHASES.get(reason, self._changed.phase)
        if reason == "Deploying" and before.running_on != record.scheduled_to:
            phase = "Migrating" if before.migration.to else "Creating"
        self._changed = replace(self._changed, phase=phase)
        if reason in _PHASES and before.running_on != record.scheduled_to:
            # It was true of another cluster; readers must not take it for this one.
            changes = [self._condition(DEPLOYED, FALSE, reason, f"to {record.scheduled_to}")]
            if record.running_on == record.scheduled_to:
                changes.append(self._condition(READY, FALSE, reason, ""))
            self._change(changes)
        if reason == "Migrating":
            self.report(reason, describe_move(before, record.scheduled_to))
        elif reason == "Migrated":
            self.report(reason, f"to cluster {record.running_on}")
        elif reason == "RolledBack":
            # It ran there before, perhaps in an earlier generation that was checked there.
            generation = _generation_on(record.scheduled_to, self._changed)
            self._changed = replace(
                self._changed, awaits_ready=False, scheduled_generation=generation
            )
            text = (
                f"cluster {before.scheduled_to} did not get ready in time: the application stays "
                f"on {record.scheduled_to} (failure {record.migration.failures}); "
                f"on {before.scheduled_to}: {describe_cleanup(before.objects(before.scheduled_to))}"
            )
            self.report(reason, text, "Warning")
        elif reason in _CLEANING:
            for text in describe_abandoned(before, record):
                self.report(reason, text, "Warning")

    def _change(self, changes: list[Condition]) -> None:
        now = format_rfc3339(self._context.now())
        conditions = with_conditions(self._changed.conditions, now, *changes)
        self._changed = replace(self._changed, conditions=conditions)

    def _condition(self, kind: str, status: str, reason: str, text: str) -> Condition:
        return Condition(
            type=kind,
            status=status,
            reason=reason,
            message=text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…",
            observed_generation=self._metadata.generation,
        )

    def _references(self, record: Record) -> dict[str, TargetReference]:
        """Return the clusters of the record that exist now, by name."""
        clusters = self._context.caches.clusters.store
        names = {record.scheduled_to, record.running_on} - {""}
        known = {name: clusters.get(f"{self._metadata.namespace}/{name}") for name in names}
        return {
            name: TargetReference(name=name, uid=cluster.metadata.uid)
            for name, cluster in known.items()
            if cluster is not None
        }

    async def _patch(self, fields: dict[str, Any], *, subresource: str | None) -> None:
        before, client = self._metadata, self._context.client
        stored = await write(client, APPLICATIONS, before, fields, subresource=subresource)
        if stored.resource_version != before.resource_version:
            self.replaced.add(before.resource_version)
        self._metadata = stored


def _generation_on(cluster: str, status: DeployedStatus) -> int:
    there = (record.generation for record in status.checked if record.name == cluster)
    return next(there, status.scheduled_generation)
