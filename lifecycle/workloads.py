"""Workloads as their pods describe them, and the versions made of them (keptn-spec 2.6, 3.4). Pure.

A KeptnWorkload follows the newest of its pods, and no older one takes it back: two pods that say
different things, for example of two ReplicaSets, would otherwise overwrite it in turns.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct, structs

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.gates.names import (
    NAME_LEAST,
    NAME_LIMIT,
    resource_name,
    version_name,
    workload_name,
)
from harbourmaster.gates.release import OURS, Approval, annotation
from harbourmaster.lifecycle.model import (
    ResourceReference,
    Workload,
    WorkloadSpec,
    WorkloadVersion,
    WorkloadVersionSpec,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.gates.workload import WorkloadMetadata

OWNERS_KEY: Final = f"{OURS}owners"
"""On a workload version: uids of the owners whose pods are of it, the newest last, by commas."""
SINCE_KEY: Final = f"{OURS}since"
"""On a workload: when the pod was created that it follows."""
MOST_OWNERS: Final = 16


class Names(Struct, frozen=True, gc=False):
    """Names of the objects of a workload in a version."""

    app: str
    workload: str
    version: str


class Wanted(Struct, frozen=True):
    """A workload as one of its pods wants it; ``since`` is when that pod was created."""

    names: Names
    spec: WorkloadSpec
    owner: OwnerReference
    since: str


@lru_cache(maxsize=4096)
def names_of(app: str, workload: str, version: str) -> Names:
    """From what a pod says, sanitised already."""
    app = resource_name(NAME_LIMIT, NAME_LEAST, app)
    name = workload_name(app, workload)
    return Names(app, name, version_name(name, version))


def names_of_pod(metadata: WorkloadMetadata) -> Names:
    """The same from a pod's description."""
    return names_of(metadata.app, metadata.workload, metadata.version)


def wanted(metadata: WorkloadMetadata, owner: OwnerReference, since: str) -> Wanted:
    """The workload of a pod with this description and this owner."""
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
    )
    plain = OwnerReference(
        api_version=owner.api_version, kind=owner.kind, name=owner.name, uid=owner.uid
    )
    return Wanted(names, spec, plain, since)


def new_workload(wish: Wanted, namespace: str) -> Workload:
    """The KeptnWorkload where there is none."""
    return Workload(
        metadata=Metadata(
            name=wish.names.workload,
            namespace=namespace,
            annotations={SINCE_KEY: wish.since},
            owner_references=(wish.owner,),
        ),
        spec=wish.spec,
    )


def differs(workload: Workload, wish: Wanted) -> bool:
    """Whether the workload is not as wanted."""
    return workload.spec != wish.spec or not any(
        each.uid == wish.owner.uid for each in workload.metadata.owner_references
    )


def is_to_follow(workload: Workload, version: WorkloadVersion | None, wish: Wanted) -> bool:
    """Whether the workload is to become as wanted, unless the pod is of a superseded owner.

    A version that is not there yet comes about only so; else the newer pod is right.
    """
    if not differs(workload, wish):
        return False
    if version is None and workload.spec.version != wish.spec.version:
        return True
    return wish.since > workload.metadata.annotations.get(SINCE_KEY, "")


def follow(workload: Workload, wish: Wanted) -> tuple[Workload, list[dict[str, Any]]]:
    """The workload as wanted, and the operations that make it so."""
    metadata = workload.metadata
    since = max(wish.since, metadata.annotations.get(SINCE_KEY, ""))
    annotations = {**metadata.annotations, SINCE_KEY: since}
    after = structs.replace(
        workload,
        metadata=structs.replace(metadata, annotations=annotations, owner_references=(wish.owner,)),
        spec=wish.spec,
    )
    operations: list[dict[str, Any]] = [
        {"op": "add", "path": "/spec", "value": wish.spec},
        {"op": "add", "path": "/metadata/ownerReferences", "value": [wish.owner]},
        *annotated(metadata, SINCE_KEY, since),
    ]
    return after, operations


def annotated(metadata: Metadata, key: str, value: str) -> list[dict[str, Any]]:
    """The operations that set one annotation."""
    if not metadata.annotations:
        return [{"op": "add", "path": "/metadata/annotations", "value": {key: value}}]
    return [{"op": "add", "path": annotation(key), "value": value}]


def version_of(workload: Workload) -> str:
    """The name of the KeptnWorkloadVersion that the workload is to have now."""
    return version_name(workload.metadata.name, workload.spec.version)


def new_version(workload: Workload, api_version: str, kind: str) -> WorkloadVersion:
    """The KeptnWorkloadVersion where there is none; ``api_version``, ``kind``: the workload's."""
    metadata = workload.metadata
    current = workload.status.current_version
    return WorkloadVersion(
        metadata=Metadata(
            name=version_of(workload),
            namespace=metadata.namespace,
            annotations={OWNERS_KEY: workload.spec.resource_reference.uid},
            owner_references=(metadata.as_controller(api_version, kind),),
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


def is_of_former(version: WorkloadVersion, workload: Workload) -> bool:
    """Whether it belongs to a deleted workload of that name, and is about to go with it."""
    controller = version.metadata.controller
    return controller is not None and controller.uid != workload.metadata.uid


def version_of_pod(
    described: WorkloadMetadata, version: WorkloadVersion | None, workload: Workload | None
) -> WorkloadVersion | None:
    """The version of that name, if the pod so described is of it and it is not about to go."""
    names = names_of_pod(described)
    if (
        version is None
        or version.metadata.deletion_timestamp
        or not is_version_of(version, names.app, names.workload, described.version)
        or (workload is not None and is_of_former(version, workload))
    ):
        return None
    return version


def synchronised(
    version: WorkloadVersion, workload: Workload
) -> tuple[WorkloadVersion, list[dict[str, Any]]]:
    """The version with the workload's spec, and the operations for it; none where it has that."""
    spec = structs.replace(version.spec, **structs.asdict(workload.spec))
    if spec == version.spec:
        return version, []
    # The owner before stays recorded: its pods are still of this version.
    owners = (*recorded_owners(version), spec.resource_reference.uid)
    after, operations = with_owners(version, owners)
    return structs.replace(after, spec=spec), [
        {"op": "add", "path": "/spec", "value": spec},
        *operations,
    ]


def recorded_owners(version: WorkloadVersion) -> tuple[str, ...]:
    """The uids of owners whose pods are of this version, the newest last."""
    listed = version.metadata.annotations.get(OWNERS_KEY, "").split(",")
    current = version.spec.resource_reference.uid
    # Of many, those that the annotation has no room for go, the one in the spec never does.
    return tuple(dict.fromkeys(uid for uid in (*listed, current) if uid))


def with_owners(
    version: WorkloadVersion, owners: Sequence[str]
) -> tuple[WorkloadVersion, list[dict[str, Any]]]:
    """The version with these owners recorded, of too many the last, and the operations for it."""
    # Whoever comes again is the newest again.
    kept = list(dict.fromkeys(reversed(owners)))[:MOST_OWNERS]
    text = ",".join(reversed(kept))
    metadata = version.metadata
    after = structs.replace(
        version,
        metadata=structs.replace(metadata, annotations={**metadata.annotations, OWNERS_KEY: text}),
    )
    return after, annotated(metadata, OWNERS_KEY, text)


def approval(version: WorkloadVersion) -> Approval:
    """What the version says of its pods."""
    status = version.status
    return Approval(
        pre_tasks=status.pre_deployment_status,
        pre_evaluations=status.pre_deployment_evaluation_status,
        deployment=status.deployment_status,
        owners=frozenset(recorded_owners(version)),
    )
