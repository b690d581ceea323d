"""Objects of the lifecycle: an app, its workload, their owners, and what is run for them."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata, OwnerReference
from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.lifecycle.model import (
    APPLICATION_PREFIX,
    App,
    AppSpec,
    AppVersion,
    AppVersionSpec,
    AppVersionStatus,
    Evaluation,
    EvaluationSpec,
    EvaluationStatus,
    ResourceReference,
    Task,
    TaskContext,
    TaskSpec,
    TaskStatus,
    Workload,
    WorkloadEntry,
    WorkloadSpec,
    WorkloadStatus,
    WorkloadVersion,
    WorkloadVersionSpec,
    WorkloadVersionStatus,
)


def owner(kind="KeptnWorkload", uid="w", name="owner"):
    """The reference of the model."""
    return OwnerReference(
        api_version="lifecycle.keptn.sh/v1", kind=kind, name=name, uid=uid, controller=True
    )


def owners(kind="KeptnWorkload", uid="w", name="owner"):
    """The owner references of a generated object, as metadata hold them."""
    return {"ownerReferences": [msgspec.to_builtins(owner(kind, uid, name))]}


CREATED = "2026-03-01T12:00:00Z"
STARTED = "2026-03-01T12:00:10Z"
ENDED = "2026-03-01T12:01:10Z"
OWNER = ResourceReference(uid="rs-1", kind="ReplicaSet", name="front-abc")
REPLICA_SET = OwnerReference(api_version="apps/v1", kind=OWNER.kind, name=OWNER.name, uid=OWNER.uid)


def metadata(name, *, uid=None, namespace="prod", owner=None, **more):
    owners = (owner,) if owner is not None else ()
    return Metadata(
        name=name,
        namespace=namespace,
        uid=uid or f"uid of {name}",
        creation_timestamp=CREATED,
        owner_references=owners,
        **more,
    )


def owner_by(kind, obj):
    """A reference to ``obj`` as the controller of what carries it."""
    return OwnerReference(
        api_version="lifecycle.keptn.sh/v1",
        kind=kind,
        name=obj.metadata.name,
        uid=obj.metadata.uid,
        controller=True,
    )


def app(**more):
    return App(metadata=metadata("shop", **more), spec=AppSpec(version="1", revision=3))


def app_version(version="1", *, previous="", status=None, name=None, **spec):
    return AppVersion(
        metadata=metadata(name or f"shop-{version}-6b86b273", owner=owner_by("KeptnApp", app())),
        spec=AppVersionSpec(
            app_name="shop",
            version=version,
            previous_version=previous,
            workloads=(WorkloadEntry(name="front", version="7"),),
            **spec,
        ),
        status=status or AppVersionStatus(status="Succeeded", start_time=STARTED, end_time=ENDED),
    )


def of_application(version):
    """The version as that of an Application, which placement deploys."""
    owned = OwnerReference(
        api_version=APPLICATIONS.api_version,
        kind=APPLICATIONS.kind,
        name="shop",
        uid="uid of the Application",
        controller=True,
    )
    return replace(
        version,
        metadata=replace(version.metadata, owner_references=(owned,)),
        spec=replace(version.spec, app_name=f"{APPLICATION_PREFIX}shop"),
    )


def workload(**more):
    return Workload(
        metadata=metadata("shop-front", **{"owner": REPLICA_SET, **more}),
        spec=WorkloadSpec(app="shop", version="7", resource_reference=OWNER),
        status=WorkloadStatus(owners=(REPLICA_SET.uid,)),
    )


def workload_version(version="7", *, previous="", status=None, **spec):
    return WorkloadVersion(
        metadata=metadata(f"shop-front-{version}", owner=owner_by("KeptnWorkload", workload())),
        spec=WorkloadVersionSpec(
            app="shop",
            version=version,
            workload_name="shop-front",
            previous_version=previous,
            resource_reference=OWNER,
            **spec,
        ),
        status=status
        or WorkloadVersionStatus(status="Succeeded", start_time=STARTED, end_time=ENDED),
    )


def waiter_version(*, uid="rs-1", deleted="", spec=None, **status):
    """A version of the workload ``waiter`` whose pods have the ReplicaSet with that uid."""
    return WorkloadVersion(
        metadata=Metadata(
            name="shop-waiter-1.0",
            namespace="prod",
            deletion_timestamp=deleted,
            owner_references=(owner(),),
        ),
        spec=WorkloadVersionSpec(
            app="shop",
            version="1.0",
            workload_name="shop-waiter",
            resource_reference=ResourceReference(uid=uid, kind="ReplicaSet", name="waiter-rs"),
            **(spec or {}),
        ),
        status=WorkloadVersionStatus(**status),
    )


def task(owner=None, *, check_type="pre", name="pre-entry-12345", context=None, status=None):
    return Task(
        metadata=metadata(name, owner=owner),
        spec=TaskSpec(
            task_definition="entry",
            check_type=check_type,
            context=context
            or TaskContext(
                app_name="shop", app_version="1", task_type=check_type, object_type="App"
            ),
        ),
        status=status or TaskStatus(status="Succeeded", start_time=STARTED, end_time=ENDED),
    )


def evaluation(owner=None, *, status="Failed", name="pre-eval-cpu-54321"):
    return Evaluation(
        metadata=metadata(name, owner=owner),
        spec=EvaluationSpec(
            evaluation_definition="cpu",
            app_name="shop",
            workload="shop-front",
            workload_version="7",
            check_type="pre-eval",
        ),
        status=EvaluationStatus(overall_status=status, start_time=STARTED, end_time=ENDED),
    )
