"""Creates the objects of a pod: workload, recorded owner and creation request (2.6, 2.7).

For most pods all of them exist, so nothing is requested.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct, structs

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.api.resources import APP_CREATION_REQUESTS, WORKLOAD_VERSIONS, WORKLOADS
from harbourmaster.controller.lifecycle.owners import (
    has_template_of,
    have_same_images,
    replaced_owners,
)
from harbourmaster.controller.lifecycle.writes import (
    WrittenObjects,
    create,
    fetch,
    is_end_of_namespace,
    patch_object,
    write_status,
)
from harbourmaster.gates.owners import is_parent, is_replica_set
from harbourmaster.kube.errors import AlreadyExistsError, ForbiddenError, InvalidError
from harbourmaster.lifecycle.apps import APP_TYPE_KEY, SINGLE_SERVICE, lacks_workload
from harbourmaster.lifecycle.functions import is_name
from harbourmaster.lifecycle.model import (
    AppCreationRequest,
    AppCreationRequestSpec,
    Workload,
    WorkloadVersion,
)
from harbourmaster.lifecycle.workload_owners import (
    SHARING_ADVICE,
    beside,
    describe_owners,
    follow_operations,
    is_to_follow,
    owned_versions,
    owner_uids,
)
from harbourmaster.lifecycle.workloads import (
    BY_HAND,
    desired_workload,
    has_unrecorded_owner,
    is_by_hand,
    is_version_of,
    is_written_otherwise,
    names_of_pod,
    new_version,
    new_workload,
    owner_operations,
    owners_of_pods,
    recorded_owners,
    sync_operations,
    version_of_pod,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.kube.errors import ApiError
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.workloads import DesiredWorkload, Names

T = TypeVar("T")

PATIENCE: Final = 30.0
"""Seconds in which a version is created, if that is possible."""
FAILED: Final = "Failed"
CREATE_WORKLOAD: Final = "CreateWorkload"
UPDATE_WORKLOAD: Final = "UpdateWorkload"
CREATE_VERSION: Final = "CreateWorkloadVersion"
CREATE_REQUEST: Final = "CreateAppCreationRequest"


class Obstacle(Struct, frozen=True):
    """The reason why a pod gets no workload: phase, state and text of its event."""

    phase: str
    state: str
    text: str


class ObstacleError(Exception):
    """An obstacle to report. If ``error`` is set, a retry may help; otherwise only a change can.

    ``is_other``: the version of the pod's name is another one, and does not decide on the pod.
    ``is_serving``: the pod replaces one of a template that served before its namespace had gates.
    """

    def __init__(
        self,
        obstacle: Obstacle,
        error: ApiError | None = None,
        *,
        is_other: bool = False,
        is_serving: bool = False,
    ) -> None:
        super().__init__(obstacle.text)
        self.obstacle = obstacle
        self.error = error
        self.is_other = is_other
        self.is_serving = is_serving


class PodWorkloads:
    """Creates and finds the objects of pods."""

    def __init__(self, context: Context) -> None:
        caches = context.caches
        self._client = context.client
        self._signals = context.signals
        self._apps = caches.newest_apps
        self._workloads = caches.newest_workloads
        self._versions = WrittenObjects(caches.workload_versions.store)
        # By key of a version: the time until which its workload is not given to it again.
        self._turns: dict[str, float] = {}
        self._requests = caches.newest_requests
        self._find_owner = caches.find_owner
        self._by_tag = context.settings.version_from_tag

    def find_version(self, pod: Pod, described: WorkloadMetadata) -> WorkloadVersion | None:
        """Return the pod's version, or None if it does not exist or belongs to another workload."""
        names = names_of_pod(described)
        version = self._versions.get(f"{pod.namespace}/{names.version}")
        workload = self._workloads.get(f"{pod.namespace}/{names.workload}")
        return version_of_pod(described, version, workload) if workload is not None else None

    async def ensure(
        self, pod: Pod, owner: OwnerReference, described: WorkloadMetadata
    ) -> WorkloadVersion | None:
        """Create the objects that the pod lacks; return its version, if it exists already.

        Calls for pods of one workload must not overlap. Raises ObstacleError, ApiError.
        """
        wish = desired_workload(described, owner, pod.creation_timestamp)
        _check(wish.names)
        workload = await self._workload(pod, wish)
        if workload.metadata.deletion_timestamp:
            return None
        _check_app(workload, wish)
        version = self.find_version(pod, described)
        if version is None:
            self._check_version(pod, workload, wish)
        elif is_written_otherwise(version, wish):
            await self._check_images(version, wish, owner)
        workload = await self._follow_pod(pod, workload, version, wish)
        own = beside(workload, wish)
        if own is not None and version is None:
            version = await self._create_version(own)
        if version is not None and owner.uid not in recorded_owners(version):
            version = await self._record(version, owner, own)
        await self._request(pod, workload, wish, described)
        return version

    async def _follow_pod(
        self, pod: Pod, workload: Workload, version: WorkloadVersion | None, wish: DesiredWorkload
    ) -> Workload:
        """Return the workload after it follows the pod, if it has to. Raises ObstacleError."""
        owner = wish.owner
        if is_to_follow(workload, version, wish) and (
            version is not None or self._is_turn(pod, wish)
        ):
            replaced = await replaced_owners(
                self._client,
                pod,
                owner,
                owners_of_pods(workload),
                self._find_owner,
                has_version=version is not None,
            )
            if replaced is not None:
                workload = await self._follow(pod, workload, wish, replaced)
                # Not before: a write that fails is tried again at once.
                self._turns[_turn(pod, wish)] = asyncio.get_running_loop().time() + PATIENCE
                return workload
            if version is None:
                text = (
                    f"{owner.kind} {owner.name} is replaced by a newer one, and version "
                    f"{wish.spec.version} of its pods was never checked: delete pod {pod.name}"
                )
                obstacle = Obstacle(CREATE_VERSION, FAILED, text)
                raise ObstacleError(obstacle, is_serving=self._is_serving(owner))
        elif version is not None and await self._is_rolled_back(pod, workload, wish):
            return await self._follow(pod, workload, wish, {owner.uid: True})
        return workload

    def _is_serving(self, owner: OwnerReference) -> bool:
        """Whether it is a ReplicaSet with available pods, which is older than its gates then."""
        present = self._find_owner(owner.uid)
        if present is None or not is_replica_set(owner):
            return False
        return present.status.available_replicas > 0

    async def _is_rolled_back(self, pod: Pod, workload: Workload, wish: DesiredWorkload) -> bool:
        """Whether a StatefulSet or DaemonSet went back to the version of this older pod."""
        owner = wish.owner
        owned = owned_versions(workload).get(owner.uid)
        if not is_parent(owner) or owned is None or owned.version == wish.spec.version:
            return False
        return await has_template_of(
            self._client, pod.namespace, owner, wish.names, by_tag=self._by_tag
        )

    async def _create_version(self, own: Workload) -> WorkloadVersion | None:
        """Return a new version beside that of the workload, or None if the watch brings it."""
        making = create(self._client, WORKLOAD_VERSIONS, new_version(own), own.metadata.namespace)
        try:
            version = await _attempt(CREATE_VERSION, making)
        except AlreadyExistsError:
            return None
        self._signals.report_created(version)
        self._versions.put(version.metadata.key, version)
        return version

    async def _workload(self, pod: Pod, wish: DesiredWorkload) -> Workload:
        namespace, name = pod.namespace, wish.names.workload
        key = f"{namespace}/{name}"
        workload = self._workloads.get(key)
        if workload is not None:
            return workload
        making = create(self._client, WORKLOADS, new_workload(wish, namespace), namespace)
        try:
            workload = await _attempt(CREATE_WORKLOAD, making)
        except AlreadyExistsError:
            workload = await fetch(self._client, WORKLOADS, Workload, name, namespace)
            if workload is None:
                raise
        else:
            self._signals.report_created(workload)
            self._workloads.put(key, workload)
            return await self._record_owner(workload, wish.owner)
        self._workloads.put(key, workload)
        return workload

    async def _record_owner(self, workload: Workload, owner: OwnerReference) -> Workload:
        """Record in the status that the controller gives the workload this owner.

        A workload that a user creates in its place, with whatever owner, has no such status.
        """
        uids = owner_uids(workload)
        if owner.uid in uids:
            return workload
        status = structs.replace(workload.status, owners=(*uids, owner.uid))
        writing = write_status(self._client, WORKLOADS, workload.metadata, status)
        answer = await _attempt(UPDATE_WORKLOAD, writing, again=True)
        recorded = msgspec.json.decode(answer, type=Workload)
        if recorded.status.owners is None:
            text = (
                f"the definition of {WORKLOADS.name} has no field status.owners: it is older than "
                "the controller: kubectl apply --server-side -k deploy/crds"
            )
            raise ObstacleError(Obstacle(UPDATE_WORKLOAD, FAILED, text))
        self._workloads.put(workload.metadata.key, recorded)
        return recorded

    def _is_turn(self, pod: Pod, wish: DesiredWorkload) -> bool:
        """Whether the workload may be given to a version that was not created yet.

        Two versions that cannot be created would otherwise take it from each other forever.
        """
        now = asyncio.get_running_loop().time()
        self._turns = {key: until for key, until in self._turns.items() if until > now}
        return _turn(pod, wish) not in self._turns

    async def _follow(
        self, pod: Pod, workload: Workload, wish: DesiredWorkload, replaced: Mapping[str, bool]
    ) -> Workload:
        operations = follow_operations(workload, wish, replaced)
        answer = await self._patch(WORKLOADS, workload.metadata, operations)
        followed = msgspec.json.decode(answer, type=Workload)
        self._workloads.put(workload.metadata.key, followed)
        # Not before: until then the owner does not count, and a user may have written the spec.
        followed = await self._record_owner(followed, wish.owner)
        if has_unrecorded_owner(workload) and workload.spec != wish.spec:
            text = (
                "its owner was not set by harbourmaster, so its spec was replaced by that of pod "
                f"{pod.name}: unless it was restored from a backup, find out who created it"
            )
            self._signals.emit(followed, UPDATE_WORKLOAD, "OwnerUnknown", text)
        owners = describe_owners(followed)
        if owners and replaced.keys().isdisjoint(owned_versions(workload)):
            text = f"{owners}: {SHARING_ADVICE}"
            self._signals.emit(followed, UPDATE_WORKLOAD, "OwnersShared", text)
        return followed

    async def _record(
        self, version: WorkloadVersion, owner: OwnerReference, own: Workload | None
    ) -> WorkloadVersion:
        """Add one more owner to the version's record, and its checks if ``own`` has them."""
        owners = (*recorded_owners(version), owner.uid)
        operations = sync_operations(version, own) if own is not None else []
        operations = operations or owner_operations(version, owners)
        answer = await self._patch(WORKLOAD_VERSIONS, version.metadata, operations)
        recorded = msgspec.json.decode(answer, type=WorkloadVersion)
        self._versions.put(version.metadata.key, recorded)
        return recorded

    async def _patch(
        self, resource: Resource, metadata: Metadata, operations: list[dict[str, Any]]
    ) -> bytes:
        patching = patch_object(self._client, resource, metadata, operations)
        return await _attempt(UPDATE_WORKLOAD, patching, again=True)

    async def _request(
        self, pod: Pod, workload: Workload, wish: DesiredWorkload, described: WorkloadMetadata
    ) -> None:
        """Request the app if it seems missing, or if we manage it and it lacks the workload."""
        name, namespace = wish.names.app, pod.namespace
        key = f"{namespace}/{name}"
        if not lacks_workload(self._apps.get(key), workload) or self._requests.get(key):
            return
        single = {APP_TYPE_KEY: SINGLE_SERVICE} if described.is_single_service else {}
        request = AppCreationRequest(
            metadata=Metadata(name=name, namespace=namespace, annotations=single),
            spec=AppCreationRequestSpec(app_name=name),
        )
        making = create(self._client, APP_CREATION_REQUESTS, request, namespace)
        with contextlib.suppress(AlreadyExistsError):
            self._requests.put(key, await _attempt(CREATE_REQUEST, making))

    def _check_version(self, pod: Pod, workload: Workload, wish: DesiredWorkload) -> None:
        """Reject a name that belongs to another version or workload: one of them must change."""
        version = self._versions.get(f"{pod.namespace}/{wish.names.version}")
        if version is None or version.metadata.deletion_timestamp:
            return
        spec = version.spec
        if not is_version_of(version, wish.spec.app, wish.names.workload, wish.spec.version):
            text = (
                f"KeptnWorkloadVersion {version.metadata.name} is of the workload "
                f"{spec.workload_name} of the app {spec.app} in the version {spec.version}"
            )
            raise ObstacleError(Obstacle(CREATE_VERSION, FAILED, text))
        if is_by_hand(version, workload):
            text = f"KeptnWorkloadVersion {version.metadata.name} is {BY_HAND}"
            raise ObstacleError(Obstacle(CREATE_VERSION, FAILED, text))

    async def _check_images(
        self, version: WorkloadVersion, wish: DesiredWorkload, owner: OwnerReference
    ) -> None:
        """Reject a version that differs from an older one in upper and lower case and in images."""
        followed = version.spec.resource_reference
        former = OwnerReference(kind=followed.kind, name=followed.name, uid=followed.uid)
        namespace = version.metadata.namespace
        if not await have_same_images(self._client, namespace, owner, former):
            text = (
                f'version "{wish.written_version}" differs only in upper and lower case from that '
                f"of {former.kind} {former.name}, and its images differ: change the version"
            )
            raise ObstacleError(Obstacle(CREATE_VERSION, FAILED, text), is_other=True)


def _turn(pod: Pod, wish: DesiredWorkload) -> str:
    return f"{pod.namespace}/{wish.names.version}"


async def _attempt(phase: str, call: Awaitable[T], *, again: bool = False) -> T:
    """Return the result of the call; raise ObstacleError for an error that a retry cannot correct.

    ``again``: an invalid request is retried too, because the object may have changed.
    """
    try:
        return await call
    except InvalidError as error:
        obstacle = Obstacle(phase, FAILED, error.message)
        raise ObstacleError(obstacle, error if again else None) from error
    except ForbiddenError as error:
        if is_end_of_namespace(error):
            raise
        raise ObstacleError(Obstacle(phase, FAILED, error.message), error) from error


def _check_app(workload: Workload, wish: DesiredWorkload) -> None:
    """Reject a workload that is of another app."""
    if workload.spec.app != wish.spec.app:
        text = f"KeptnWorkload {workload.metadata.name} is of the app {workload.spec.app}"
        raise ObstacleError(Obstacle(CREATE_WORKLOAD, FAILED, text))


def _check(names: Names) -> None:
    """Reject names that are not valid for objects, before the API does."""
    for what, name in (("app", names.app), ("workload", names.workload)):
        if not is_name(name):
            text = (
                f'"{name}", the name by {what}, has other characters than letters, digits, '
                "- and ., or does not begin and end with a letter or digit"
            )
            raise ObstacleError(Obstacle(CREATE_WORKLOAD, FAILED, text))
