"""Applications and Clusters as the deployer reads and writes them (krake-spec 7.1).

Projections like those of ``model``, of the fields that reach member clusters; with the Secrets that
are applied like manifests, and the texts about objects that are deleted. Users that write an
Application must not be able to read every Secret by this, so each Secret has to name the
applications that may copy it. Kubeconfigs of member clusters are never copied.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.placement.inventory import ADOPTED, MADE, ObjectRef, Observation
from harbourmaster.placement.live_fields import IgnoredFields
from harbourmaster.placement.manifests import for_deletion
from harbourmaster.placement.model import (
    GROUP,
    ApplicationChecks,
    KubeconfigKey,
    MemberStatus,
    MigrationVolumes,
    Part,
    PlacedStatus,
    TargetReference,
)
from harbourmaster.placement.readiness import ReadinessTest
from harbourmaster.placement.rollout import Migration, MigrationOrder, Record

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harbourmaster.placement.inventory import Inventory


FINALIZER: Final = "placement.harbourmaster.dev/deployed"
DEPLOYED: Final = "Deployed"
READY: Final = "Ready"
MALFORMED: Final = "MalformedManifest"
"""The reason of an application with a manifest that no cluster takes."""
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
    migration_volumes: MigrationVolumes = "Refuse"
    conflict_policy: str = FORCE
    ignore_fields: tuple[IgnoredFields, ...] = ()
    readiness: tuple[ReadinessTest, ...] = ()
    checks: ApplicationChecks | None = None


class DeployedStatus(PlacedStatus, frozen=True, kw_only=True):
    """The deployer's record, and the decision of the scheduler."""

    inventory: tuple[ClusterObjects, ...] = ()
    pending_cleanup: tuple[ClusterObjects, ...] = ()
    migration_to: str = ""
    migration_start_time: str = ""
    observations: tuple[Observation, ...] = ()


class DeployedApplication(Part, frozen=True, kw_only=True):
    """An Application."""

    metadata: Metadata
    spec: DeployedSpec = DeployedSpec()
    status: DeployedStatus = DeployedStatus()


class MemberSpec(Part, frozen=True, kw_only=True):
    """The credentials of a member cluster, and what it allows."""

    kubeconfig_secret_ref: KubeconfigKey | None = None
    server: str = ""
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
        observations={entry.key: entry for entry in status.observations},
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
        "observations": tuple(record.observations.values()) or None,
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


ALLOW_COPY: Final = f"{GROUP}/allow-copy"
"""The annotation of a Secret: the names of applications, separated by commas, or ``*`` for all."""


class Secret(Struct, frozen=True):
    """A Secret as the API gives it; the values are base64."""

    metadata: Metadata
    type: str = "Opaque"
    data: dict[str, str] | None = None


class Copies(Struct, frozen=True):
    """The manifests of the copies, or why there are none, in one line."""

    manifests: tuple[dict[str, Any], ...] = ()
    fault: str = ""
    generation: int = 0
    """The generation of the application."""
    until: float = 0.0
    """The time to read the Secrets again."""


def refusal(application: Metadata, secret: Secret, clusters: Sequence[str]) -> str:
    """Why an application is not allowed to copy a Secret; empty if it is.

    ``clusters`` are the names of the Clusters whose kubeconfig is in it.
    """
    name, namespace = secret.metadata.name, secret.metadata.namespace
    if clusters:
        text = f"has the kubeconfig of Cluster {clusters[0]}, which is never copied"
        return f"Secret {namespace}/{name} {text}: use another Secret"
    allowed = secret.metadata.annotations.get(ALLOW_COPY, "")
    if not {"*", application.name}.isdisjoint(word.strip() for word in allowed.split(",")):
        return ""
    names = f"{allowed},{application.name}" if allowed else application.name
    command = f"kubectl annotate --overwrite secret {name} -n {namespace} {ALLOW_COPY}={names}"
    return f"Secret {namespace}/{name} does not allow this application to copy it: run {command}"


def copy_of(wanted: SecretCopy, secret: Secret) -> dict[str, Any]:
    """The manifest of a copy."""
    metadata = {"name": wanted.target_name or wanted.name}
    if wanted.target_namespace:
        metadata["namespace"] = wanted.target_namespace
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": secret.type,
        "data": secret.data or {},
    }


NAMED: Final = 8
"""Objects of a kind of end that are named; the rest is counted."""
_CLAIM: Final = ("", "PersistentVolumeClaim")


def describe_cleanup(objects: Inventory) -> str:
    """Return which objects are deleted, volumes first, and which stay, in one line."""
    refs_in_order = sorted(for_deletion(objects), key=lambda ref: (ref.group, ref.kind) != _CLAIM)
    texts = {
        "deletes {}": [ref for ref in refs_in_order if ref.origin == MADE],
        # As the deletion will find them.
        "deletes {}, unless others created them": [ref for ref in refs_in_order if not ref.origin],
        "keeps {}, which existed before": [ref for ref in refs_in_order if ref.origin == ADOPTED],
    }
    parts = [text.format(_join_first(refs)) for text, refs in texts.items() if refs]
    return "; ".join(parts) or "deletes nothing"


def describe_move(before: Record, to: str) -> str:
    """Return what a move to a cluster deletes on the other clusters, in one line."""
    others = [entry for entry in before.inventory.items() if entry[0] != to]
    parts = [f"from cluster {before.running_on or ', '.join(before.inventory)} to {to}"]
    parts += [f"on {name}: {describe_cleanup(objects)}" for name, objects in others]
    return "; ".join(parts)


def describe_abandoned(before: Record, after: Record) -> Iterator[str]:
    """Yield a line for each cluster that does not answer or has no Cluster any more."""
    forgotten = set(before.clusters) - set(after.clusters)
    for name in sorted(forgotten or set(before.inventory) - set(after.inventory)):
        objects = before.objects(name)
        if forgotten:
            yield f"Cluster {name} does not exist, so these stay there: {_join_first(objects)}"
        else:
            yield f"once cluster {name} is reachable: {describe_cleanup(objects)}"


def _join_first(refs: Sequence[ObjectRef]) -> str:
    more = f" and {len(refs) - NAMED} more" if len(refs) > NAMED else ""
    return ", ".join(ref.text for ref in refs[:NAMED]) + more
