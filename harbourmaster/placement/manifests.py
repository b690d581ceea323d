"""An application's manifests made ready for one cluster, or what is wrong with them.

See krake-spec 7.5.

Which kinds have namespaces is the cluster's knowledge, so it is given. All faults are found at
once, and manifests with any fault are not applied at all. Only objects that placement has created
may be deleted on a member cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.placement.brought_kinds import brought_kinds, is_brought
from harbourmaster.placement.data_holders import is_custom
from harbourmaster.placement.inventory import ADOPTED, MADE, ObjectRef

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from harbourmaster.placement.inventory import Inventory


DOMAIN: Final = "placement.harbourmaster.dev"
FIELD_MANAGER: Final = f"{DOMAIN}/deployer"
UID_LABEL: Final = f"{DOMAIN}/application-uid"
"""The label that marks an object as ours; the two other labels are for users."""
NAMESPACE_LABEL: Final = f"{DOMAIN}/application-namespace"
NAME_LABEL: Final = f"{DOMAIN}/application-name"
_LABEL_LENGTH: Final = 63
_DIGEST_LENGTH: Final = 10

DEEPEST: Final = 100
"""Levels of a manifest."""

NAMESPACES, DEFINITIONS, CLUSTER_WIDE, CONFIGURATION, WORKLOADS, INTERCEPTORS = range(6)
"""Ranks, in the order of application."""
_DEFINITION: Final = ("apiextensions.k8s.io", "CustomResourceDefinition")
_GROUP_RANKS: Final = {
    ("", "Namespace"): NAMESPACES,
    _DEFINITION: DEFINITIONS,
    # What calls a workload must not come before it: it would refuse the rest.
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): INTERCEPTORS,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): INTERCEPTORS,
    ("apiregistration.k8s.io", "APIService"): INTERCEPTORS,
}
_WORKLOAD_KINDS: Final = frozenset(
    (
        ("", "Pod"),
        ("", "ReplicationController"),
        ("apps", "DaemonSet"),
        ("apps", "Deployment"),
        ("apps", "ReplicaSet"),
        ("apps", "StatefulSet"),
        ("batch", "CronJob"),
        ("batch", "Job"),
    )
)
POLICY: Final = "NetworkPolicy"
"""The end of the kinds that limit the network of pods, such as CiliumNetworkPolicy."""
_SERVER_FIELDS: Final = frozenset(
    (
        "creationTimestamp",
        "deletionGracePeriodSeconds",
        "deletionTimestamp",
        "generation",
        "managedFields",
        "resourceVersion",
        "selfLink",
        "uid",
    )
)
"""Metadata that only the API server may set; users paste it from kubectl."""


class ManifestOwner(Struct, frozen=True, gc=False):
    """The application that an object belongs to."""

    uid: str
    namespace: str
    name: str
    created: str = ""
    """The creation time of the application, as in its metadata."""

    @property
    def labels(self) -> dict[str, str]:
        """The labels of each object of the application."""
        return {
            UID_LABEL: self.uid,
            NAMESPACE_LABEL: self.namespace,
            NAME_LABEL: label_value(self.name),
        }


class Item(Struct, frozen=True):
    """One object to be applied."""

    ref: ObjectRef
    body: dict[str, Any]


class Prepared(Struct, frozen=True):
    """Manifests in the order of application; with ``faults``, one line each, nothing is applied.

    ``awaited`` says which objects have a kind that others bring and the cluster does not serve
    yet; ``is_malformed``: some faults are the same on every cluster.
    """

    items: tuple[Item, ...] = ()
    faults: tuple[str, ...] = ()
    awaited: tuple[str, ...] = ()
    is_malformed: bool = False

    @property
    def refs(self) -> Inventory:
        """The references of the objects."""
        return tuple(item.ref for item in self.items)


class ManifestTarget(Struct, frozen=True):
    """The cluster for which manifests are prepared; ``scopes``: whether a kind has namespaces."""

    scopes: Mapping[tuple[str, str], bool]
    default_namespace: str = "default"
    allow_cluster_scoped: bool = False


def kinds(manifests: Iterable[Mapping[str, Any]]) -> frozenset[tuple[str, str]]:
    """The apiVersion and kind of each manifest that names both."""
    pairs = ((manifest.get("apiVersion"), manifest.get("kind")) for manifest in manifests)
    return frozenset(
        (version, kind)
        for version, kind in pairs
        if isinstance(version, str) and isinstance(kind, str) and version and kind
    )


def is_name(name: str) -> bool:
    """Whether an object of any kind can have this name, as part of a path."""
    return name not in {".", ".."} and "/" not in name and "%" not in name


def is_too_deep(manifest: object) -> bool:
    """Whether a manifest has more levels than anybody writes, and than can be sent on safely."""
    level = [manifest]
    for _ in range(DEEPEST):
        level = [
            part
            for value in level
            if isinstance(value, dict | list)
            for part in (value.values() if isinstance(value, dict) else value)
        ]
    return any(isinstance(value, dict | list) for value in level)


def definitions(manifests: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], bool]:
    """The scopes of the kinds that the manifests themselves bring."""
    defined: dict[tuple[str, str], bool] = {}
    for manifest in manifests:
        spec = manifest.get("spec")
        group = str(manifest.get("apiVersion")).rpartition("/")[0]
        if (group, manifest.get("kind")) != _DEFINITION or not isinstance(spec, dict):
            continue
        names, versions = spec.get("names"), spec.get("versions")
        if not isinstance(names, dict) or not isinstance(versions, list):
            continue
        for version in versions:
            if isinstance(version, dict):
                key = (f"{spec.get('group')}/{version.get('name')}", str(names.get("kind")))
                defined[key] = spec.get("scope") == "Namespaced"
    return defined


def prepare(
    manifests: Sequence[Any],
    owner: ManifestOwner,
    target: ManifestTarget,
    secrets: Sequence[Any] = (),
) -> Prepared:
    """The manifests as they are applied for ``owner``, whatever people have written there.

    ``secrets`` are the manifests of the Secrets that are copied.
    """
    items: list[Item] = []
    awaited: list[str] = []
    faults: list[str] = []
    places: dict[tuple[str, ...], str] = {}
    known = [manifest for manifest in manifests if isinstance(manifest, dict)]
    own, is_malformed = definitions(known), False
    brought = {kind for manifest in known for kind in brought_kinds(manifest)}
    given = [(f"manifests[{number}]", manifest) for number, manifest in enumerate(manifests)]
    given += [(f"secrets[{number}]", manifest) for number, manifest in enumerate(secrets)]
    for at, manifest in given:
        try:
            item = _item(manifest, owner, target, own, brought)
        except _AwaitedError as error:
            awaited.append(str(error))
            continue
        except _FaultError as error:
            faults.append(f"{at}: {error}")
            is_malformed = is_malformed or not isinstance(error, _LocalFaultError)
            continue
        before = places.setdefault(item.ref.key, at)
        if before != at:
            faults.append(f"{at}: {item.ref.text} repeats {before}")
        items.append(item)
    if faults:
        return Prepared(faults=tuple(faults), is_malformed=is_malformed)
    ordered = sorted(items, key=lambda item: rank(item.ref))
    return Prepared(tuple(ordered), awaited=tuple(awaited))


def rank(ref: ObjectRef) -> int:
    """Return the rank of an object in the order of application; deletion reverses it."""
    kind = (ref.group, ref.kind)
    if kind in _GROUP_RANKS:
        return _GROUP_RANKS[kind]
    if not ref.namespace:
        return CLUSTER_WIDE
    # Kinds outside Kubernetes' own APIs are run by a controller, like a workload.
    is_run = is_custom(ref.group) and not ref.kind.endswith(POLICY)
    return WORKLOADS if is_run or kind in _WORKLOAD_KINDS else CONFIGURATION


def for_deletion(refs: Iterable[ObjectRef]) -> Inventory:
    """Return the objects in the order of deletion: those first that were applied last."""
    backwards = tuple(refs)[::-1]
    return tuple(sorted(backwards, key=lambda ref: -rank(ref)))


def stranger(labels: Mapping[str, str] | None, owner_uid: str) -> str:
    """Return the other application that owns the object with these labels; empty for none."""
    labels = labels or {}
    uid = labels.get(UID_LABEL, "")
    if not uid or uid == owner_uid:
        return ""
    return f"{labels.get(NAMESPACE_LABEL, '?')}/{labels.get(NAME_LABEL, '?')} (uid {uid})"


def label_value(name: str) -> str:
    """A name as a label's value, which may be shorter than names may be."""
    if len(name) <= _LABEL_LENGTH:
        return name
    digest = sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: _LABEL_LENGTH - _DIGEST_LENGTH - 1].rstrip('-._')}-{digest}"


class _FaultError(Exception):
    """A manifest is invalid; the text says why."""


class _LocalFaultError(_FaultError):
    """A cluster cannot take a manifest; another one may."""


class _AwaitedError(_FaultError):
    """The kind of a manifest is still to be brought."""


def _item(
    manifest: object,
    owner: ManifestOwner,
    target: ManifestTarget,
    own: Mapping[tuple[str, str], bool],
    brought: Collection[str],
) -> Item:
    """Raises _FaultError."""
    if not isinstance(manifest, dict):
        raise _FaultError("is not an object")
    version, kind = _text(manifest, "apiVersion"), _text(manifest, "kind")
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        raise _FaultError(f"{kind}: metadata is missing")
    name = _text(metadata, "name", "metadata.name")
    if not is_name(name):
        raise _FaultError(f"{kind} {name}: metadata.name cannot be part of a path")
    if is_too_deep(manifest):
        raise _FaultError(f"{kind} {name}: is nested more than {DEEPEST} levels deep")
    if version == "v1" and kind == "List":
        raise _FaultError(f"List {name}: give its items as separate manifests")
    labels = metadata.get("labels") or {}
    if not isinstance(labels, dict):
        raise _FaultError(f"{kind} {name}: metadata.labels is not a mapping")
    namespaced = target.scopes.get((version, kind), own.get((version, kind)))
    if namespaced is None:
        is_awaited = is_brought(version.rpartition("/")[0], kind, brought)
        raise (_AwaitedError if is_awaited else _LocalFaultError)(
            f"{kind} {name}: the cluster does not serve kind {kind} in {version}: "
            "install its CustomResourceDefinition"
        )
    namespace = _namespace(f"{kind} {name}", metadata, target, namespaced=namespaced)
    ref = ObjectRef(api_version=version, kind=kind, name=name, namespace=namespace)
    kept = {key: value for key, value in metadata.items() if key not in _SERVER_FIELDS}
    kept["labels"] = {**labels, **owner.labels}
    if namespace:
        kept["namespace"] = namespace
    body = {key: value for key, value in manifest.items() if key not in {"metadata", "status"}}
    return Item(ref, {**body, "metadata": kept})


def _namespace(
    what: str, metadata: Mapping[str, Any], target: ManifestTarget, *, namespaced: bool
) -> str:
    """Return the namespace of an object; empty if it is cluster-scoped. Raises _FaultError."""
    namespace = metadata.get("namespace") or ""
    if not isinstance(namespace, str):
        raise _FaultError(f"{what}: metadata.namespace is not a string")
    if namespaced:
        return namespace or target.default_namespace
    if not target.allow_cluster_scoped:
        raise _LocalFaultError(
            f"{what}: is cluster-scoped, which its Cluster does not allow (spec.allowClusterScoped)"
        )
    if namespace:
        raise _FaultError(f"{what}: is cluster-scoped and cannot have a namespace")
    return ""


def _text(fields: Mapping[str, Any], field: str, path: str = "") -> str:
    text = fields.get(field)
    if not isinstance(text, str) or not text:
        raise _FaultError(f"{path or field} is missing")
    return text


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
