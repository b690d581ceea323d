"""Rules for objects that a cluster refuses: what needs them, and what is replaced (krake-spec 7.9).

Only new workloads need the objects that limit or permit what they do: running ones get updates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.placement.data_holders import (
    DATA_KINDS,
    holder_of_data,
    is_custom,
    read_manifest,
)
from harbourmaster.placement.inventory import MADE
from harbourmaster.placement.live_fields import digest
from harbourmaster.placement.manifests import (
    DEFINITIONS,
    DOMAIN,
    INTERCEPTORS,
    NAMESPACES,
    POLICY,
    WORKLOADS,
    definitions,
    rank,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from harbourmaster.placement.inventory import ObjectRef
    from harbourmaster.placement.manifests import Item

REPLACE: Final = f"{DOMAIN}/replace"
"""The annotation of a manifest with the value ``true``: its object may be replaced."""
_MANIFEST: Final = f"{DOMAIN}/manifest-digest"
"""The annotation of such an object: the manifest that was applied last."""
_UNTYPED: Final = "failed to create typed patch object"
_RBAC: Final = "rbac.authorization.k8s.io"


def find_missing(item: Item, missing: Iterable[Item], *, is_new: bool) -> ObjectRef | None:
    """Return the first object that was not applied and that an object needs; None for none."""
    return next((absent.ref for absent in missing if _needs(item.ref, absent, is_new)), None)


def _needs(ref: ObjectRef, absent: Item, is_new: bool) -> bool:
    needed, level = absent.ref, rank(absent.ref)
    if level == NAMESPACES:
        return ref.namespace == needed.name
    if is_new and rank(ref) == INTERCEPTORS:
        # Without its server, it would refuse the requests of others, and what comes late.
        return level in {DEFINITIONS, WORKLOADS} or needed.kind == "Service"
    if level == DEFINITIONS:
        return (ref.api_version, ref.kind) in definitions([absent.body])
    is_guard = needed.group == _RBAC or needed.kind.endswith((POLICY, "ResourceQuota"))
    is_near = needed.namespace in {"", ref.namespace}
    return is_new and is_guard and is_near and rank(ref) == WORKLOADS


def is_malformed(ref: ObjectRef, message: str) -> bool | None:
    """Whether no cluster takes a manifest that an API server refused; None if it does not say.

    The schemas of custom resources differ between clusters.
    """
    if not message.startswith(_UNTYPED):
        return None
    return not is_custom(ref.group) or ": duplicate entries for key " in message


def may_replace(item: Item) -> bool:
    """Whether users allow that an object is replaced."""
    return _annotations(item.body).get(REPLACE) == "true"


def mark_manifest(item: Item, body: dict[str, Any]) -> dict[str, Any]:
    """Return the body with the digest of its manifest if it may be replaced."""
    if not may_replace(item):
        return body
    return annotate(body, _MANIFEST, digest(item.body))


def annotate(body: dict[str, Any], name: str, value: str) -> dict[str, Any]:
    """Return the body with an annotation."""
    annotations = {**_annotations(body), name: value}
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


def find_obstacle(
    item: Item, live: Mapping[str, Any], origin: str, stateless: Collection[str] | None
) -> str:
    """Return why an object must not be replaced; empty if it may be.

    The body of the item is marked with its manifest. ``stateless`` is None if data may be lost.
    """
    ref, body = item.ref, item.body
    if origin != MADE:
        return "it existed before the application"
    if rank(ref) in {NAMESPACES, DEFINITIONS} or f"{ref.kind}.{ref.group}" in DATA_KINDS:
        return f"a {ref.kind} never is"
    manifests = read_manifest(body), read_manifest(live)
    if stateless is not None and holder_of_data(manifests, stateless):
        return "it may hold data: to allow it, set spec.migrationVolumes to Recreate"
    if _annotations(live).get(_MANIFEST) == _annotations(body).get(_MANIFEST):
        # An admission webhook of that cluster may do so, and would again.
        return "it has this manifest, and another client changes it"
    return ""


def _annotations(body: Mapping[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    return annotations if isinstance(annotations, dict) else {}
