"""Applications and Clusters as the deployer reads and writes them (krake-spec 7.1).

Projections like those of ``model``, of the fields that reach member clusters.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.placement.inventory import ObjectRef
from harbourmaster.placement.model import (
    KubeconfigKey,
    MemberStatus,
    Part,
    PlacedStatus,
    TargetReference,
)
from harbourmaster.placement.rollout import Migration, MigrationOrder, Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.placement.inventory import Inventory

FINALIZER: Final = "placement.harbourmaster.dev/deployed"
DEPLOYED: Final = "Deployed"
READY: Final = "Ready"
FORCE: Final = "Force"


class ClusterObjects(Part, frozen=True, kw_only=True):
    """The objects of an application on one cluster."""

    cluster: str
    objects: tuple[ObjectRef, ...] = ()


class SecretCopy(Part, frozen=True, kw_only=True):
    """A Secret of the application's namespace, and what its copy is called; empty: the same."""

    name: str
    target_name: str = ""
    target_namespace: str = ""


class DeployedSpec(Part, frozen=True, kw_only=True):
    """The manifests, and how they are deployed."""

    manifests: tuple[Any, ...] = ()
    secrets: tuple[SecretCopy, ...] = ()
    migration_order: MigrationOrder = "DeleteFirst"
    conflict_policy: str = FORCE


class DeployedStatus(PlacedStatus, frozen=True, kw_only=True):
    """The deployer's record, and the decision of the scheduler."""

    inventory: tuple[ClusterObjects, ...] = ()
    pending_cleanup: tuple[ClusterObjects, ...] = ()
    migration_to: str = ""
    migration_start_time: str = ""


class DeployedApplication(Part, frozen=True, kw_only=True):
    """An Application."""

    metadata: Metadata
    spec: DeployedSpec = DeployedSpec()
    status: DeployedStatus = DeployedStatus()


class MemberSpec(Part, frozen=True, kw_only=True):
    """The credentials of a member cluster, and what it allows."""

    kubeconfig_secret_ref: KubeconfigKey | None = None
    allow_cluster_scoped: bool = False
    discover_custom_resources: bool = True


class MemberCluster(Part, frozen=True, kw_only=True):
    """A Cluster."""

    metadata: Metadata
    spec: MemberSpec = MemberSpec()
    status: MemberStatus = MemberStatus()


def record_of(status: DeployedStatus) -> Record:
    """The record of a status."""
    return Record(
        scheduled_to=_name(status.scheduled_to),
        running_on=_name(status.running_on),
        inventory={
            objects.cluster: objects.objects for objects in status.inventory if objects.objects
        },
        pending={
            objects.cluster: objects.objects
            for objects in status.pending_cleanup
            if objects.objects
        },
        migration=Migration(
            to=status.migration_to,
            since=_seconds(status.migration_start_time),
            failures=status.migration_retries,
            suspended_until=_seconds(status.suspended_until),
        ),
    )


def fields_of(
    record: Record, status: DeployedStatus, references: Mapping[str, TargetReference]
) -> dict[str, Any]:
    """The fields of a status for this record; None removes a field.

    For a cluster that is not among ``references`` the status may have the uid.
    """
    known = {target.name: target for target in (status.running_on, status.scheduled_to) if target}
    known.update(references)

    def reference(name: str) -> TargetReference | None:
        return known.get(name, TargetReference(name=name)) if name else None

    migration = record.migration
    fields: dict[str, Any] = {
        "runningOn": reference(record.running_on),
        "inventory": _objects(record.inventory),
        "pendingCleanup": _objects(record.pending),
        "migrationTo": migration.to or None,
        "migrationStartTime": _stamp(migration.since),
        "migrationRetries": migration.failures or None,
        "suspendedUntil": _stamp(migration.suspended_until),
    }
    if record.scheduled_to != _name(status.scheduled_to):
        fields["scheduledTo"] = reference(record.scheduled_to)
    return fields


def _objects(inventories: Mapping[str, Inventory]) -> list[ClusterObjects] | None:
    entries = [
        ClusterObjects(cluster=name, objects=objects) for name, objects in inventories.items()
    ]
    return entries or None


def _name(reference: TargetReference | None) -> str:
    return reference.name if reference else ""


def _seconds(text: str) -> float:
    time = moment(text)
    return time.timestamp() if time else 0.0


def _stamp(seconds: float) -> str | None:
    return format_rfc3339(datetime.fromtimestamp(seconds, UTC)) if seconds else None
