"""Writes the status of an Application, each time against the last version, and its events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.objects import reference
from harbourmaster.controller.placement.writes import write
from harbourmaster.placement.cluster_state import UNKNOWN
from harbourmaster.placement.deployed import DEPLOYED, FINALIZER, READY, fields_of, record_of
from harbourmaster.placement.leaving import given_up, leaving, moving
from harbourmaster.placement.model import FALSE, TRUE, Condition, TargetReference, updated
from harbourmaster.placement.readiness import summary

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.controller.placement.applying import Applied
    from harbourmaster.controller.placement.context import DeploymentContext
    from harbourmaster.controller.placement.session import Session
    from harbourmaster.kube.event_series import EventType
    from harbourmaster.placement.deployed import DeployedApplication
    from harbourmaster.placement.inventory import Inventory, Key
    from harbourmaster.placement.manifests import Prepared
    from harbourmaster.placement.readiness import Readiness
    from harbourmaster.placement.rollout import Record, Rest


RESYNC: Final = 600.0
"""Seconds after which everything is applied again, as a safety net."""


class Known:
    """The objects of one application on one cluster, as they were applied."""

    def __init__(self, session: Session, prepared: Prepared, now: float) -> None:
        self.session = session
        self.prepared = prepared
        self.at = now
        self._applied: dict[Key, Applied] = {}
        self._settled: set[Key] = set()

    def note(self, applied: tuple[Applied, ...]) -> None:
        """All were applied, and were so then."""
        self._applied = {each.ref.key: each for each in applied}

    @property
    def refs(self) -> Inventory:
        """What was applied, with uids and origins."""
        return tuple(each.ref for each in self._applied.values())

    @property
    def is_complete(self) -> bool:
        """Whether everything was applied."""
        return len(self._applied) == len(self.prepared.items)

    def drift(self) -> str:
        """What of it is not as it was applied, in words; empty where all is, or is yet to be seen.

        A watch that has not brought our own change yet says nothing.
        """
        for key, each in self._applied.items():
            watch = self.session.watches.get(each.resource, each.ref)
            if key not in self._settled and watch == each.before:
                continue
            self._settled.add(key)
            if watch is None:
                return f"{each.ref.text} was deleted"
            if watch.uid != each.ref.uid:
                return f"{each.ref.text} was replaced"
            if watch.fields != each.state.fields:
                return f"{each.ref.text} was changed"
        return ""

    @property
    def is_blind(self) -> bool:
        """Whether some of it may change without our being told."""
        return any(self.session.watches.is_blind(each.resource) for each in self._applied.values())

    def unready(self) -> str:
        """What is not ready, in one line; empty where all is."""
        return summary((each.ref.text, self._readiness(each)) for each in self._applied.values())

    def _readiness(self, each: Applied) -> Readiness:
        watch = self.session.watches.get(each.resource, each.ref)
        if watch is None or (each.ref.key not in self._settled and watch == each.before):
            return each.state.readiness
        return watch.readiness


_MAX_TEXT: Final = 1024
_PHASES: Final = {"Deploying": "Reconciling", "Migrating": "Migrating"}
_CLEANING: Final = frozenset(("CleanupPending", "ClusterNotFound"))


class StatusWriter:
    """The record of an application during one pass; ``replaced`` are versions before our writes."""

    def __init__(self, context: DeploymentContext, found: DeployedApplication) -> None:
        self.record = record_of(found.status)
        self.replaced: set[str] = set()
        self._context = context
        self._metadata: Metadata = found.metadata
        self._status = found.status
        self._written = self.record
        self._changed = found.status

    @property
    def has_finalizer(self) -> bool:
        """Whether ours is there."""
        return FINALIZER in self._metadata.finalizers

    async def record_now(self, record: Record, reason: str) -> None:
        """Write a record before what it announces is done. Raises ApiError."""
        self._announce(record, reason)
        self.record = record
        await self.write()

    async def set_finalizer(self, *, present: bool) -> None:
        """Put ours on the object or take it off. Raises ApiError."""
        others = tuple(
            finalizer for finalizer in self._metadata.finalizers if finalizer != FINALIZER
        )
        finalizers = (*others, FINALIZER) if present else others
        await self._patch({"metadata": {"finalizers": finalizers}}, subresource=None)

    async def close(self, rest: Rest, unready: str | None) -> None:
        """Write how things stand at the end of a pass; ``unready`` is None where nobody knows."""
        changes = []
        left = ", ".join(self.record.pending)
        beside = f"; what is left on cluster {left} may run too until it answers" if left else ""
        if not rest.reason:
            phase, observed = "Running", self._metadata.generation
            self._changed = replace(self._changed, phase=phase, observed_generation=observed)
            text = f"on cluster {self.record.running_on}{beside}"
            changes.append(self._condition(DEPLOYED, TRUE, "Applied", text))
        elif rest.reason != "NotScheduled" or not self.record.running_on:
            changes.append(self._condition(DEPLOYED, FALSE, rest.reason, rest.text + beside))
        if self._metadata.deletion_timestamp:
            self._changed = replace(self._changed, phase="Deleting")
        if not self.record.running_on:
            changes.append(self._condition(READY, FALSE, "NotDeployed", rest.text))
        elif rest.reason == "ClusterUnreachable":
            changes.append(self._condition(READY, UNKNOWN, rest.reason, rest.text))
        elif unready is not None:
            reason = "ObjectsNotReady" if unready else "ObjectsReady"
            changes.append(self._condition(READY, FALSE if unready else TRUE, reason, unready))
            awaits_ready = bool(unready) and self._changed.awaits_ready
            self._changed = replace(self._changed, awaits_ready=awaits_ready)
        self._change(changes)
        await self.write()

    async def write(self) -> None:
        """Write what is new, if anything is. Raises ConflictError, and any other ApiError."""
        changed = self._changed
        running, references = changed.running_on, self._references()
        if running is not None and self.record.running_on == running.name:
            # A Cluster that was made anew is another one.
            changed = replace(changed, running_on=references.get(running.name, running))
        if self.record == self._written and changed == self._status:
            return
        fields: dict[str, Any] = {
            **fields_of(self.record, changed, references),
            "phase": changed.phase or None,
            "observedGeneration": changed.observed_generation,
            "awaitsReady": changed.awaits_ready or None,
            "conditions": changed.conditions,
        }
        await self._patch({"status": fields}, subresource="status")
        self._written, self._status = self.record, changed

    def tell(self, reason: str, text: str, kind: EventType = "Normal") -> None:
        """Have people see it among the events of the application."""
        regarding = reference(APPLICATIONS, self._metadata)
        self._context.events.emit(regarding, kind, reason, text)

    def _announce(self, record: Record, reason: str) -> None:
        """Tell of a step that people should know of."""
        before = self.record
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
            self.tell(reason, moving(before, record.scheduled_to))
        elif reason == "Migrated":
            self.tell(reason, f"to cluster {record.running_on}")
        elif reason == "RolledBack":
            # It ran there before.
            self._changed = replace(self._changed, awaits_ready=False)
            text = (
                f"cluster {before.scheduled_to} did not get ready in time: the application stays "
                f"on {record.scheduled_to} (failure {record.migration.failures}); "
                f"on {before.scheduled_to}: {leaving(before.objects(before.scheduled_to))}"
            )
            self.tell(reason, text, "Warning")
        elif reason in _CLEANING:
            for text in given_up(before, record):
                self.tell(reason, text, "Warning")

    def _change(self, changes: list[Condition]) -> None:
        now = format_rfc3339(self._context.now())
        conditions = updated(self._changed.conditions, now, *changes)
        self._changed = replace(self._changed, conditions=conditions)

    def _condition(self, kind: str, status: str, reason: str, text: str) -> Condition:
        return Condition(
            type=kind,
            status=status,
            reason=reason,
            message=text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…",
            observed_generation=self._metadata.generation,
        )

    def _references(self) -> dict[str, TargetReference]:
        """The clusters of the record that there are now."""
        clusters = self._context.caches.clusters.store
        names = {self.record.scheduled_to, self.record.running_on} - {""}
        found = {name: clusters.get(f"{self._metadata.namespace}/{name}") for name in names}
        return {
            name: TargetReference(name=name, uid=each.metadata.uid)
            for name, each in found.items()
            if each is not None
        }

    async def _patch(self, fields: dict[str, Any], *, subresource: str | None) -> None:
        before, client = self._metadata, self._context.client
        stored = await write(client, APPLICATIONS, before, fields, subresource=subresource)
        if stored.resource_version != before.resource_version:
            self.replaced.add(before.resource_version)
        self._metadata = stored
