"""Builds workloads as their pods describe them, and their versions (keptn-spec 2.6, 3.4). Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from harbourmaster.api.durations import parse_duration
from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.api.resources import WORKLOADS
from harbourmaster.gates.metadata import DEPLOYMENT_TIMEOUT_KEY
from harbourmaster.gates.names import (
    NAME_LEAST,
    NAME_LIMIT,
    resource_name,
    version_name,
    workload_name,
)
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.release import OURS, Approval, annotation
from harbourmaster.lifecycle.model import (
    DEPRECATED,
    PROGRESSING,
    ResourceReference,
    Workload,
    WorkloadSpec,
    WorkloadVersion,
    WorkloadVersionSpec,
    is_generated,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.lifecycle.model import AppVersion


OWNERS_KEY: Final = f"{OURS}owners"
"""Annotation of a workload version: uids of the owners of its pods, the newest last, with commas.
"""
SINCE_KEY: Final = f"{OURS}since"
"""Annotation of a workload: creation time of the pod that it follows."""
WRITTEN_KEY: Final = f"{OURS}written-version"
"""Annotation of a workload and its version: the version as pods have it, in upper and lower case.
"""
_COPIED: Final = (WRITTEN_KEY, DEPLOYMENT_TIMEOUT_KEY)
MOST_OWNERS: Final = 16
BY_HAND: Final = "not generated, so it decides on no pod: delete it"
"""The text about a version that a person created, or that lost its owner."""


class Names(Struct, frozen=True, gc=False):
    """The names of the objects of a workload in a version."""

    app: str
    workload: str
    version: str


class DesiredWorkload(Struct, frozen=True):
    """A workload as one of its pods describes it; ``since`` is when that pod was created.

    ``written_version`` is the version as that pod has it, ``deployment_timeout`` its annotation.
    """

    names: Names
    spec: WorkloadSpec
    owner: OwnerReference
    since: str
    written_version: str
    deployment_timeout: str

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the workload, which its version gets too."""
        timeout = self.deployment_timeout
        return {
            WRITTEN_KEY: self.written_version,
            **({DEPLOYMENT_TIMEOUT_KEY: timeout} if timeout else {}),
        }


@lru_cache(maxsize=128)
def names_of(app: str, workload: str, version: str) -> Names:
    """Return the names for the sanitised values of a pod."""
    app = resource_name(NAME_LIMIT, NAME_LEAST, app)
    name = workload_name(app, workload)
    return Names(app, name, version_name(name, version))


def names_of_pod(metadata: WorkloadMetadata) -> Names:
    """Return the names for a pod's description."""
    return names_of(metadata.app, metadata.workload, metadata.version)


def desired_workload(
    metadata: WorkloadMetadata, owner: OwnerReference, since: str
) -> DesiredWorkload:
    """Return the workload of a pod with this description and this owner."""
    names = names_of_pod(metadata)
    spec = WorkloadSpec(
        app=names.app,
        version=metadata.version,
        resource_reference=ResourceReference(uid=owner.uid, kind=owner.kind, name=owner.name),
        pre_deployment_tasks=metadata.pre_deployment_tasks,
        post_deployment_tasks=metadata.post_deployment_tasks,
        pre_deployment_evaluations=metadata.pre_deployment_evaluations,
        post_deployment_evaluations=metadata.post_deployment_evaluations,
        metadata=metadata.metadata,
        **metadata.stages,
    )
    plain = OwnerReference(
        api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid
    )
    return DesiredWorkload(
        names, spec, plain, since, metadata.written_version, metadata.deployment_timeout
    )


def new_workload(wish: DesiredWorkload, namespace: str) -> Workload:
    """Return the KeptnWorkload to create."""
    return Workload(
        metadata=Metadata(
            name=wish.names.workload,
            namespace=namespace,
            annotations={SINCE_KEY: wish.since, **wish.annotations},
            owner_references=(wish.owner,),
        ),
        spec=wish.spec,
    )


def owners_of_pods(workload: Workload) -> list[OwnerReference]:
    """Return the owners of pods that the controller gave the workload, as its status records.

    Former releases and Keptn record none: an owner counts if the status is from one of them.
    """
    recorded, has_status = workload.status.owners, bool(workload.status.current_version)
    return [
        reference
        for reference in workload.metadata.owner_references
        if reference.kind in SUPPORTED
        and (has_status if recorded is None else reference.uid in recorded)
    ]


def is_of_pods(workload: Workload) -> bool:
    """Whether the workload was created for pods; otherwise by hand, or it lost its owner."""
    return bool(owners_of_pods(workload))


def has_unrecorded_owner(workload: Workload) -> bool:
    """Whether a user created it with an owner of pods, or its owner is recorded in a moment."""
    references = workload.metadata.owner_references
    return not is_of_pods(workload) and any(owner.kind in SUPPORTED for owner in references)


def _copied(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: text for key in _COPIED if (text := annotations.get(key, ""))}


def copy_operations(now: Mapping[str, str], then: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the operations that copy the annotations of a workload that its version has too."""
    return [
        {"op": "add", "path": annotation(key), "value": then[key]}
        if key in then
        else {"op": "remove", "path": annotation(key)}
        for key in _COPIED
        if now.get(key) != then.get(key)
    ]


def is_written_otherwise(version: WorkloadVersion, wish: DesiredWorkload) -> bool:
    """Whether the version had other upper and lower case when it was created."""
    return version.metadata.annotations.get(WRITTEN_KEY, wish.written_version) != (
        wish.written_version
    )


def annotation_operations(metadata: Metadata, key: str, value: str) -> list[dict[str, Any]]:
    """Return the operations that set one annotation."""
    if not metadata.annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": {key: value}}]
    return [{"op": "add", "path": annotation(key), "value": value}]


def version_of(workload: Workload) -> str:
    """Return the name of the KeptnWorkloadVersion that the workload must have now."""
    return version_name(workload.metadata.name, workload.spec.version)


def new_version(workload: Workload) -> WorkloadVersion:
    """Return the KeptnWorkloadVersion to create; it is only generated if its workload was."""
    metadata = workload.metadata
    owner = metadata.as_controller(WORKLOADS.api_version, WORKLOADS.kind)
    if not is_of_pods(workload):
        owner = structs.replace(owner, controller=None)
    current = workload.status.current_version
    return WorkloadVersion(
        metadata=Metadata(
            name=version_of(workload),
            namespace=metadata.namespace,
            annotations={
                OWNERS_KEY: workload.spec.resource_reference.uid,
                **_copied(metadata.annotations),
            },
            owner_references=(owner,),
        ),
        spec=WorkloadVersionSpec(
            **structs.asdict(workload.spec),
            workload_name=metadata.name,
            previous_version=current if current != workload.spec.version else "",
        ),
    )


def is_version_of(version: WorkloadVersion, app: str, workload: str, text: str) -> bool:
    """Whether the version is that of this workload of this app; names alone may be ambiguous."""
    spec = version.spec
    return (spec.app, spec.workload_name, spec.version) == (app, workload, text)


def is_by_hand(version: WorkloadVersion, workload: Workload) -> bool:
    """Whether a person created it, and not the controller before the workload had pods."""
    owners = {reference.uid for reference in version.metadata.owner_references}
    return not is_generated(version) and workload.metadata.uid not in owners


def is_of_former(version: WorkloadVersion, workload: Workload) -> bool:
    """Whether it belongs to a deleted workload of that name, and will be deleted with it."""
    controller = version.metadata.controller
    return controller is not None and controller.uid != workload.metadata.uid


def version_of_pod(
    described: WorkloadMetadata, version: WorkloadVersion | None, workload: Workload | None
) -> WorkloadVersion | None:
    """Return the version, if the described pod belongs to it and it is not being deleted."""
    names = names_of_pod(described)
    if (
        version is None
        or version.metadata.deletion_timestamp
        or not is_generated(version)
        or not is_version_of(version, names.app, names.workload, described.version)
        or (workload is not None and is_of_former(version, workload))
    ):
        return None
    return version


def sync_operations(version: WorkloadVersion, workload: Workload) -> list[dict[str, Any]]:
    """Return the operations that give the version the workload's spec; none if it has that.

    If only one of the two was generated, there are none, because users could change it.
    """
    if is_generated(version) != is_of_pods(workload):
        return []
    spec = structs.replace(version.spec, **structs.asdict(workload.spec))
    if spec == version.spec:
        return []
    # The owner before stays recorded: its pods are still of this version.
    owners = (*recorded_owners(version), spec.resource_reference.uid)
    now = version.metadata.annotations
    # The version is written as it was when it was created.
    then = {**workload.metadata.annotations, WRITTEN_KEY: now.get(WRITTEN_KEY, "")}
    return [
        {"op": "add", "path": "/spec", "value": spec},
        *owner_operations(version, owners),
        *copy_operations(now, _copied(then)),
    ]


def deployment_timeout(version: WorkloadVersion | AppVersion) -> float | None:
    """Return the seconds in which the deployment must be done, if its workload says so."""
    try:
        seconds = parse_duration(version.metadata.annotations[DEPLOYMENT_TIMEOUT_KEY])
    except (KeyError, ValueError):
        return None
    return seconds if seconds > 0 else None


def recorded_owners(version: WorkloadVersion) -> tuple[str, ...]:
    """Return the uids of owners whose pods are of this version, the newest last."""
    listed = version.metadata.annotations.get(OWNERS_KEY, "").split(",")
    current = version.spec.resource_reference.uid
    # The owner in the spec counts even if the annotation had no room for it.
    return tuple(dict.fromkeys(uid for uid in (*listed, current) if uid))


def owner_operations(version: WorkloadVersion, owners: Sequence[str]) -> list[dict[str, Any]]:
    """Return the operations that record these owners of the version's pods, at most MOST_OWNERS."""
    # An owner that is repeated is the newest again.
    kept = list(dict.fromkeys(reversed(owners)))[:MOST_OWNERS]
    return annotation_operations(version.metadata, OWNERS_KEY, ",".join(reversed(kept)))


def approval(version: WorkloadVersion) -> Approval:
    """Return the version's decision on its pods, which a superseded version keeps."""
    status = version.status
    deployment = status.deployment_status
    if status.status == DEPRECATED and status.deployment_start_time:
        deployment = PROGRESSING
    return Approval(
        pre_tasks=status.pre_deployment_status,
        pre_evaluations=status.pre_deployment_evaluation_status,
        deployment=deployment,
        owners=frozenset(recorded_owners(version)),
    )


class Rollout(Struct, frozen=True, gc=False, kw_only=True):
    """The progress of the owner of a workload's pods, in numbers of pods."""

    generation: int
    observed_generation: int | str | None
    """The generation that the owner's controller has observed; Argo writes text."""
    wanted: int
    ready: int
    updated: int
    """Pods of the newest template."""
    is_healthy: bool = True
    """Whether an owner that reports its health is healthy."""
    is_superseded: bool = False
    """Whether its pods are replaced by those of another version."""


def is_deployed(rollout: Rollout) -> bool:
    """Whether all pods are ready, after the owner's controller observed its newest template."""
    return (
        has_observed(rollout.generation, rollout.observed_generation)
        and not rollout.is_superseded
        and rollout.is_healthy
        and rollout.ready == rollout.wanted
        and rollout.updated >= rollout.wanted
    )


def has_observed(generation: int, observed: int | str | None) -> bool:
    """Whether a status is of the current spec. Other text is a hash of former Argo versions."""
    if observed is None or observed == "":
        return False
    if isinstance(observed, str):
        return not observed.isdecimal() or int(observed) >= generation
    return observed >= generation
