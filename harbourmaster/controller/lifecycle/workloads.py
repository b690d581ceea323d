"""KeptnWorkloads: each has a KeptnWorkloadVersion of its current version (keptn-spec 3.4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.resources import WORKLOAD_VERSIONS, WORKLOADS
from harbourmaster.controller.lifecycle.caches import BY_WORKLOAD
from harbourmaster.controller.lifecycle.workload_versions import DeploymentCheck
from harbourmaster.controller.lifecycle.writes import (
    create,
    fetch,
    is_end_of_namespace,
    patch_object,
    write_status,
)
from harbourmaster.kube.errors import (
    AlreadyExistsError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
)
from harbourmaster.lifecycle.machine import resume
from harbourmaster.lifecycle.model import (
    DEPRECATED,
    Workload,
    WorkloadStatus,
    WorkloadVersion,
    is_generated,
)
from harbourmaster.lifecycle.workload_owners import current_versions
from harbourmaster.lifecycle.workloads import (
    BY_HAND,
    has_unrecorded_owner,
    is_by_hand,
    is_of_former,
    is_of_pods,
    is_version_of,
    new_version,
    owners_of_pods,
    sync_operations,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.controller.lifecycle.context import Context

LOOK_AGAIN: Final = 10.0
"""Seconds until the reconciler looks again whether the version of a former workload is gone."""


class WorkloadReconciler:
    """Reconciles KeptnWorkloads; the version comes first, then the status that names it."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._signals = context.signals
        self._workloads = context.caches.newest_workloads
        self._versions = context.caches.workload_versions.store
        self._deployed = DeploymentCheck(context)

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Return all keys, because only the caches show whether a workload needs anything."""
        return list(self._workloads.keys()) if keys is None else keys

    async def reconcile(self, key: str) -> float | None:
        """Bring the version of one workload up to date. Raises ApiError."""
        workload = self._workloads.get(key)
        if workload is None or workload.metadata.deletion_timestamp:
            return None
        if has_unrecorded_owner(workload):
            # The next pod replaces its spec.
            return None
        try:
            return await self._reconcile_workload(workload, version_of(workload))
        except ForbiddenError as error:
            if is_end_of_namespace(error):
                return None
            self._report_failure(workload, error.message)
            raise
        except NotFoundError:
            # Deleted meanwhile; the watch brings it.
            return None

    async def _reconcile_workload(self, workload: Workload, name: str) -> float | None:
        version = self._versions.get(f"{workload.metadata.namespace}/{name}")
        if version is None:
            try:
                version = await self._create_version(workload, name)
            except InvalidError as error:
                self._report_failure(workload, error.message)
                return None
        if (
            version is None
            or is_of_former(version, workload)
            or version.metadata.deletion_timestamp
        ):
            return LOOK_AGAIN
        spec = workload.spec
        if not is_version_of(version, spec.app, workload.metadata.name, spec.version):
            self._report_failure(
                workload,
                f"KeptnWorkloadVersion {name} is of the workload {version.spec.workload_name} "
                f"in the version {version.spec.version}",
            )
            return None
        if is_of_pods(workload) and not is_generated(version):
            if is_by_hand(version, workload):
                self._report_failure(workload, f"KeptnWorkloadVersion {name} is {BY_HAND}")
                return None
            # Its deletion brings another one, of pods.
            metadata = version.metadata
            await self._client.delete(WORKLOAD_VERSIONS, name, metadata.namespace, uid=metadata.uid)
            return LOOK_AGAIN
        operations = sync_operations(version, workload)
        if operations:
            await patch_object(self._client, WORKLOAD_VERSIONS, version.metadata, operations)
        await self._resume_versions(workload)
        if workload.status.current_version != spec.version:
            owners = workload.status.owners
            if owners is None:
                owners = tuple(reference.uid for reference in owners_of_pods(workload))
            status = WorkloadStatus(current_version=spec.version, owners=owners)
            answer = await write_status(self._client, WORKLOADS, workload.metadata, status)
            self._workloads.put(workload.metadata.key, msgspec.json.decode(answer, type=Workload))
        return None

    async def _resume_versions(self, workload: Workload) -> None:
        """Let superseded versions go on to which an owner of the workload was rolled back."""
        current = current_versions(workload)
        place = (workload.metadata.namespace, workload.metadata.name)
        for version in self._versions.by_index(BY_WORKLOAD, place):
            is_back = version.status.status == DEPRECATED and version.spec.version in current
            is_ours = is_generated(version) and not is_of_former(version, workload)
            if is_back and is_ours and not await self._deployed.is_gone(workload):
                metadata, status = version.metadata, resume(version)
                await write_status(self._client, WORKLOAD_VERSIONS, metadata, status)

    async def _create_version(self, workload: Workload, name: str) -> WorkloadVersion | None:
        """Return the version, created now or before, or None if it was deleted meanwhile."""
        namespace = workload.metadata.namespace
        try:
            wish = new_version(workload)
            version = await create(self._client, WORKLOAD_VERSIONS, wish, namespace)
        except AlreadyExistsError:
            return await fetch(self._client, WORKLOAD_VERSIONS, WorkloadVersion, name, namespace)
        self._signals.report_created(version)
        return version

    def _report_failure(self, workload: Workload, text: str) -> None:
        self._signals.emit(workload, "CreateWorkloadVersion", "Failed", text)
