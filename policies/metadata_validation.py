"""Checks of the object metadata of a policy (kupid-spec 5.2, item 1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.field_errors import forbidden, invalid, required, unsupported
from harbourmaster.api.names import dns_label, dns_subdomain, qualified_name
from harbourmaster.policies.enforcement import ENFORCEMENT_KEY, ENFORCEMENTS, MODE_KEY, MODES
from harbourmaster.policies.label_validation import labels
from harbourmaster.policies.model import DENY, ON_TOO_LARGE, WARN

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from harbourmaster.api.field_errors import FieldError
    from harbourmaster.policies.model import ManagedFieldsEntry, OwnerReference, PolicyMetadata

SUPPORTED_VALUES: Final = {
    ON_TOO_LARGE: (DENY, WARN),
    ENFORCEMENT_KEY: ENFORCEMENTS,
    MODE_KEY: MODES,
}
"""The values of our annotations on policies; the last one is the default."""
MAX_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all keys and values together."""
MAX_MANAGER: Final = 128
MAX_SUBRESOURCE: Final = 256
_ORPHAN: Final = "orphan"
_FOREGROUND: Final = "foregroundDeletion"
_STANDARD_FINALIZERS: Final = frozenset(("kubernetes", _ORPHAN, _FOREGROUND))


def object_metadata(metadata: PolicyMetadata, *, is_cluster_scoped: bool) -> Iterator[FieldError]:
    """Check the metadata, in the order of the spec."""
    yield from _name(metadata.name)
    yield from _namespace(metadata.namespace, is_cluster_scoped=is_cluster_scoped)
    yield from labels(metadata.labels, "metadata.labels")
    yield from _annotations(metadata.annotations or {}, "metadata.annotations")
    yield from _owners(metadata.owner_references or (), "metadata.ownerReferences")
    if (metadata.generation or 0) < 0:
        yield invalid("metadata.generation", metadata.generation, "must not be negative")
    for index, entry in enumerate(metadata.managed_fields or ()):
        yield from _managed_fields(entry, f"metadata.managedFields[{index}]")
    yield from _finalizers(metadata.finalizers or (), "metadata.finalizers")


def _name(name: str | None) -> Iterator[FieldError]:
    if not name:
        yield required("metadata.name", "the policy needs a name")
        return
    for fault in dns_subdomain(name):
        yield invalid("metadata.name", name, fault)


def _namespace(namespace: str | None, *, is_cluster_scoped: bool) -> Iterator[FieldError]:
    path = "metadata.namespace"
    if is_cluster_scoped:
        if namespace:
            yield forbidden(path, "the kind is cluster-scoped")
    elif not namespace:
        yield required(path)
    else:
        for fault in dns_label(namespace):
            yield invalid(path, namespace, fault)


def _annotations(annotations: Mapping[str, str], path: str) -> Iterator[FieldError]:
    for key, supported in SUPPORTED_VALUES.items():
        value = annotations.get(key)
        if value is not None and value not in supported:
            yield unsupported(f"{path}[{key}]", value, supported)
    for key in annotations:
        # Unlike the keys of labels, those of annotations may have capitals in their prefix.
        for fault in qualified_name(key.lower()):
            yield invalid(path, key, fault)
    size = sum(
        len(text.encode(errors="replace")) for entry in annotations.items() for text in entry
    )
    if size > MAX_ANNOTATIONS:
        yield invalid(path, size, f"more than {MAX_ANNOTATIONS} bytes of keys and values")


def _owners(owners: Sequence[OwnerReference], path: str) -> Iterator[FieldError]:
    controllers = 0
    for owner in owners:
        yield from _owner(owner, path)
        if owner.controller:
            controllers += 1
    if controllers > 1:
        yield invalid(path, list(owners), "only one owner may be the controller")


def _owner(owner: OwnerReference, path: str) -> Iterator[FieldError]:
    """Check one owner; the errors stand at the list's path, without an index, as upstream."""
    api_version = owner.api_version or ""
    if not api_version.rpartition("/")[2] or api_version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", api_version, "the version is missing")
    for field, value in (("kind", owner.kind), ("name", owner.name), ("uid", owner.uid)):
        if not value:
            yield invalid(f"{path}.{field}", "", "must not be empty")
    if (api_version, owner.kind) == ("v1", "Event"):
        yield invalid(path, owner, "an Event cannot own objects")


def _managed_fields(entry: ManagedFieldsEntry, path: str) -> Iterator[FieldError]:
    if entry.operation not in {"Apply", "Update"}:
        yield invalid(f"{path}.operation", entry.operation or "", "must be Apply or Update")
    if entry.fields_type not in {None, "", "FieldsV1"}:
        yield invalid(f"{path}.fieldsType", entry.fields_type, "must be FieldsV1")
    manager = entry.manager or ""
    if len(manager) > MAX_MANAGER:
        yield invalid(f"{path}.manager", manager, f"more than {MAX_MANAGER} characters")
    if not manager.isprintable():
        yield invalid(f"{path}.manager", manager, "holds characters that do not print")
    subresource = entry.subresource or ""
    if len(subresource) > MAX_SUBRESOURCE:
        yield invalid(f"{path}.subresource", subresource, f"more than {MAX_SUBRESOURCE} characters")


def _finalizers(finalizers: Sequence[str], path: str) -> Iterator[FieldError]:
    for finalizer in finalizers:
        for fault in qualified_name(finalizer):
            yield invalid(path, finalizer, fault)
    for index, finalizer in enumerate(finalizers):
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            yield invalid(
                f"{path}[{index}]", finalizer, "neither a standard finalizer nor domain/name"
            )
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        yield invalid(path, list(finalizers), f"{_ORPHAN} and {_FOREGROUND} exclude each other")
