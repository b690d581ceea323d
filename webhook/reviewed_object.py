"""The object of a review, decoded in one pass; the fields for gates stay JSON.

Most pods are of namespaces without gates, so these fields are decoded only when they are needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import decode, decode_short, decode_texts
from harbourmaster.api.metadata import OwnerReference
from harbourmaster.gates.critical import Importance, Toleration
from harbourmaster.gates.stage_mistakes import Strategy  # noqa: TC001 - msgspec reads it
from harbourmaster.gates.version import Container
from harbourmaster.policies.pods import (
    PODS_OF,
    ObjectMeta,
    Workload,
    WorkloadSpec,
    is_absent,
)
from harbourmaster.policies.targets import ALL_CONTROLLERS, CREATORS

if TYPE_CHECKING:
    from harbourmaster.policies.pods import Kind, PodView

_EMPTY: Final = Raw(b"")


class ReviewedMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """Metadata with the owners."""

    owner_references: Raw = _EMPTY


class ReviewedSpec(WorkloadSpec, frozen=True, gc=False, rename="camel"):
    """A spec with what a pod's importance is read from, and how a workload replaces its pods."""

    priority: Raw = _EMPTY
    priority_class_name: Raw = _EMPTY
    strategy: Strategy | None = None
    update_strategy: Strategy | None = None
    progress_deadline_seconds: int | None = None


class _ContainerText(Struct, frozen=True, gc=False):
    name: Raw = _EMPTY
    image: Raw = _EMPTY
    env: Raw = _EMPTY


class ReviewedObject(Workload, frozen=True, gc=False, rename="camel"):
    """An object of any handled kind, as it is reviewed."""

    metadata: ReviewedMeta | None = None
    spec: ReviewedSpec | None = None


_reviewed: Final = msgspec.json.Decoder(ReviewedObject)
_KINDS: Final = {user: ("Pod", f"{PODS_OF}{kind}") for user, kind in CREATORS.items()}
_owners: Final = msgspec.json.Decoder(tuple[OwnerReference, ...])
_containers: Final = msgspec.json.Decoder(tuple[Container, ...])
_container_texts: Final = msgspec.json.Decoder(tuple[_ContainerText, ...])
_tolerations: Final = msgspec.json.Decoder(tuple[Toleration, ...])
_priority: Final = msgspec.json.Decoder(int)
_name: Final = msgspec.json.Decoder(str)


def read_object(data: bytes | Raw) -> ReviewedObject:
    """The object in ``data``. Raises MalformedError."""
    return decode(_reviewed, data, "")


def view_of(kind: Kind, workload: ReviewedObject, user: str) -> PodView | None:
    """View the pod in an object that this user creates. Raises MalformedError.

    The kind that a pod is created for follows from the user: a pod can name any owner.
    """
    if kind.is_template:
        return kind.view(workload)
    if user == ALL_CONTROLLERS and workload.metadata is not None:
        owners = owners_of(workload.metadata)
        creators = (f"{PODS_OF}{owner.kind}" for owner in owners if owner.controller)
        return kind.view(workload, (kind.name, *creators))
    return kind.view(workload, _KINDS.get(user, ()))


def owners_of(meta: ReviewedMeta) -> tuple[OwnerReference, ...]:
    """The owner references of a pod. Raises MalformedError."""
    raw = meta.owner_references
    return () if is_absent(raw) else decode_short(_owners, raw, "metadata.ownerReferences")


def annotations_of(meta: ObjectMeta) -> dict[str, str]:
    """The annotations of a pod. Raises MalformedError."""
    raw = meta.annotations
    return {} if is_absent(raw) else decode_texts(raw, "metadata.annotations")


def labels_of(meta: ObjectMeta) -> dict[str, str]:
    """The labels of an object. Raises MalformedError."""
    return {} if is_absent(meta.labels) else decode_texts(meta.labels, "metadata.labels")


def containers_of(spec: ReviewedSpec) -> tuple[Container, ...]:
    """The containers of a pod, init containers left out. Raises MalformedError."""
    raw = spec.containers
    return () if is_absent(raw) else decode(_containers, raw, "spec.containers")


def container_texts(spec: ReviewedSpec) -> tuple[bytes, ...]:
    """All of the containers that a version depends on, as it came: equal for equal versions.

    The rest of a container may differ between pods of one owner. Raises MalformedError.
    """
    raw = spec.containers
    if is_absent(raw):
        return ()
    texts: list[bytes] = []
    for container in decode(_container_texts, raw, "spec.containers"):
        texts += (bytes(container.name), bytes(container.image), bytes(container.env))
    return tuple(texts)


def importance_of(spec: ReviewedSpec) -> Importance:
    """Return the fields that say how critical the pod is. Raises MalformedError."""
    priority, name, tolerations = spec.priority, spec.priority_class_name, spec.tolerations
    return Importance(
        None if is_absent(priority) else decode(_priority, priority, "spec.priority"),
        None if is_absent(name) else decode(_name, name, "spec.priorityClassName"),
        None if is_absent(tolerations) else decode(_tolerations, tolerations, "spec.tolerations"),
    )
