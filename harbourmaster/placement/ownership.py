"""Decides which objects placement may delete on a member cluster: only those it created."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.placement.inventory import ADOPTED, MADE
from harbourmaster.placement.manifests import DOMAIN, FIELD_MANAGER, UID_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection

    from harbourmaster.placement.inventory import ObjectRef
    from harbourmaster.placement.manifests import ManifestOwner

ADOPTED_ANNOTATION: Final = f"{DOMAIN}/adopted"
"""The annotation of an adopted object; it survives a crash before the record is written."""
_AUTOMATIC: Final = frozenset((("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")))
"""Objects that Kubernetes creates in each namespace, by kind and name."""


class Present(Struct, frozen=True, rename="camel"):
    """The metadata of an object as it is on a member cluster."""

    name: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None
    managed_fields: tuple[dict[str, Any], ...] | None = None


def is_ours(present: Present | None, owner: ManifestOwner) -> bool:
    """Whether an object carries the application's label."""
    return present is not None and (present.labels or {}).get(UID_LABEL) == owner.uid


def origin(present: Present | None, recorded: ObjectRef | None, owner: ManifestOwner) -> str:
    """Whether an object existed before the application, or is made by applying it now.

    Without a record, as from an earlier version, an object counts as created only if it has our
    label, is not older than the application, and has no other field managers.
    """
    if present is None:
        return MADE
    if recorded is not None and recorded.origin and recorded.uid == present.uid:
        return recorded.origin
    if not is_ours(present, owner) or (present.annotations or {}).get(ADOPTED_ANNOTATION):
        return ADOPTED
    fields = present.managed_fields or ()
    writers = {field.get("manager") for field in fields if not field.get("subresource")}
    is_older = present.creation_timestamp < owner.created
    return ADOPTED if is_older or writers - {FIELD_MANAGER} else MADE


def is_of_others(
    kind: str, present: Present, owner: ManifestOwner, namespaced: Collection[tuple[str, str]]
) -> bool:
    """Whether an object would be missed by others when its namespace or its definition goes.

    ``namespaced`` are group and kind of what a namespace can hold: a part of one of these goes with
    that, or stands for it. What has no uid is computed by an API server, and what is ending goes.
    """
    if not present.uid or present.deletion_timestamp or is_ours(present, owner):
        return False
    whole = {
        (reference.api_version.rpartition("/")[0], reference.kind)
        for reference in present.owner_references or ()
    }
    return (kind, present.name) not in _AUTOMATIC and whole.isdisjoint(namespaced)


def release_patch(present: Present, owner: ManifestOwner) -> dict[str, Any]:
    """The patch that gives up ownership of an object; its values stay."""
    fields = [
        field for field in present.managed_fields or () if field.get("manager") != FIELD_MANAGER
    ]
    metadata = {
        "uid": present.uid,
        "resourceVersion": present.resource_version,
        "labels": dict.fromkeys(owner.labels),
        "annotations": {ADOPTED_ANNOTATION: None},
        # An empty list would change nothing.
        "managedFields": fields or [{}],
    }
    return {"metadata": metadata}
