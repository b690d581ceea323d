"""Watches our objects on a member cluster: one watch for each kind that was applied.

Only objects with our label are watched, and only their metadata where that says enough: what
others hold there is never read.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from hashlib import sha256
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.kube.reflector import Reflector
from harbourmaster.placement.inventory import ObjectName
from harbourmaster.placement.live_fields import is_applied_by_us, is_scaled, wanted_replicas
from harbourmaster.placement.manifests import UID_LABEL
from harbourmaster.placement.readiness import Readiness, has_state, readiness

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.peer_bounds import PeerBounds
    from harbourmaster.placement.inventory import ObjectRef
    from harbourmaster.placement.readiness import ReadinessTest


class Seen(Struct, frozen=True, gc=False):
    """An object of ours; ``fields`` is a digest of the fields that are ours.

    ``generation`` lets an object that was changed back differ from what it was before.
    ``scaled`` are its replicas if another client has set them.
    """

    uid: str
    owner_uid: str
    fields: str
    readiness: Readiness
    scaled: int | None = None
    generation: int = 0
    key: str = ""


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    managed_fields: tuple[dict[str, Any], ...] | None = None


class _Object(Struct, frozen=True):
    metadata: _Metadata
    spec: Any = None
    status: Any = None


_decode: Final = msgspec.json.Decoder(_Object).decode


def decode_observed(
    raw: bytes | msgspec.Raw,
    resource: Resource,
    tests_by_owner: Mapping[str, Sequence[ReadinessTest]] = MappingProxyType({}),
) -> Seen:
    """Decode the observed parts of an object of this kind. Raises msgspec.DecodeError.

    ``tests_by_owner`` are those of applications, by UID.
    """
    if memoryview(raw).nbytes > _LONG:
        text = bytes(raw)
        # Values of a few bytes take many times their size.
        if text.count(b"[") + text.count(b"{") > len(text) // 8:
            raise msgspec.DecodeError("too many values")
    obj = _decode(raw)
    metadata = obj.metadata
    if len(metadata.uid) > _LONGEST_UID:
        raise msgspec.DecodeError("metadata.uid is too long")
    managed_fields = metadata.managed_fields or ()
    owner_uid = (metadata.labels or {}).get(UID_LABEL, "")
    name = ObjectName(api_version=resource.api_version, kind=resource.kind, name=metadata.name)
    tests = [test for test in tests_by_owner.get(owner_uid, ()) if test.covers(name)]
    fields: dict[str, Any] = {
        "metadata": {
            "generation": metadata.generation,
            "deletionTimestamp": metadata.deletion_timestamp,
            "annotations": metadata.annotations,
        },
        "spec": obj.spec,
        "status": obj.status,
    }
    if any(test.field for test in tests):
        fields = msgspec.json.decode(raw)
    state = readiness({**fields, **resource.type_fields}, tests)
    return Seen(
        uid=metadata.uid,
        owner_uid=owner_uid,
        fields=_digest(managed_fields),
        readiness=state,
        scaled=wanted_replicas({"spec": obj.spec}) if is_scaled(managed_fields) else None,
        generation=metadata.generation,
        key=_key(metadata),
    )


def _digest(managed_fields: Iterable[dict[str, Any]]) -> str:
    """Return a digest of our managed fields; it changes if another client takes one over."""
    ours = [entry.get("fieldsV1") for entry in managed_fields if is_applied_by_us(entry)]
    return sha256(msgspec.json.encode(ours, order="deterministic")).hexdigest()[:32]


_LONG: Final = 256 * 1024
_LONGEST_UID: Final = 253
_MAX_REMEMBERED: Final = 4096
"""Objects of a cluster that are remembered until their applications have recorded their end."""


class MemberWatches:
    """The watches on one cluster; ``start`` runs something as long as the cluster is ours."""

    def __init__(
        self,
        client: Client,
        start: Callable[[Callable[[], Coroutine[Any, Any, None]]], None],
        on_change: Callable[[frozenset[str]], None],
        bounds: PeerBounds | None = None,
    ) -> None:
        """``on_change`` gets the uids of the applications whose objects changed."""
        self._client = client
        self._bounds = bounds
        self._start = start
        self._on_change = on_change
        self._mirrors: dict[Resource, Reflector[Seen]] = {}
        self._forwarded: dict[tuple[Resource, str], Seen] = {}
        """The objects as they were when their changes were forwarded."""
        self._added: dict[tuple[Resource, str], Seen] = {}
        """The objects that were added since then; they may be deleted before the next time."""
        self._removed: deque[str] = deque(maxlen=_MAX_REMEMBERED)
        """The uids of the last objects that were deleted."""
        self.tests_by_owner: dict[str, Sequence[ReadinessTest]] = {}
        """The ``spec.readiness`` of applications, by UID, where it is not empty."""
        self._finished: deque[str] = deque(maxlen=_MAX_REMEMBERED)
        """The uids of the last Jobs that finished; a short TTL may have removed them since."""

    def has_finished(self, uid: str) -> bool:
        """Return whether a Job was seen to finish."""
        return uid in self._finished

    def was_removed(self, uid: str) -> bool:
        """Return whether an object was deleted a short time ago."""
        return uid in self._removed

    def set_tests(self, uid: str, tests: Sequence[ReadinessTest]) -> None:
        """Judge the objects of an application by these tests from now on."""
        if tests:
            self.tests_by_owner[uid] = tests
        else:
            self.tests_by_owner.pop(uid, None)

    def _decode(self, raw: bytes | msgspec.Raw, resource: Resource) -> Seen:
        observed = decode_observed(raw, resource, self.tests_by_owner)
        if observed.readiness.is_finished and observed.uid not in self._finished:
            self._finished.append(observed.uid)
        is_new = self._mirrors[resource].store.get(observed.key) is None
        if is_new and len(self._added) < _MAX_REMEMBERED:
            self._added[resource, observed.key] = observed
        return observed

    def follow(self, resource: Resource) -> None:
        """Watch our objects of a kind from now on."""
        if resource in self._mirrors:
            return
        mirror: Reflector[Seen] = Reflector(
            self._client,
            resource,
            partial(self._decode, resource=resource),
            label_selector=UID_LABEL,
            metadata_only=not has_state(resource.group, resource.kind),
            on_change=partial(self._forward_change, resource),
            bounds=self._bounds,
        )
        self._mirrors[resource] = mirror
        self._start(mirror.run)

    def wake(self) -> None:
        """Look again now at what could not be watched."""
        for mirror in self._mirrors.values():
            mirror.wake()

    def is_blind(self, resource: Resource) -> bool:
        """Return whether a kind cannot be watched, so that no event tells of changes."""
        mirror = self._mirrors.get(resource)
        return mirror is None or mirror.error is not None

    def get(self, resource: Resource, ref: ObjectRef) -> Seen | None:
        """Return an object as the watch shows it; None if it does not exist or is not watched."""
        mirror = self._mirrors.get(resource)
        return None if mirror is None else mirror.store.get(_key(ref))

    def _forward_change(self, resource: Resource, keys: frozenset[str]) -> None:
        store = self._mirrors[resource].store
        owners = set()
        for key in keys:
            obj, before = store.get(key), self._forwarded.pop((resource, key), None)
            added = self._added.pop((resource, key), None)
            if obj is not None:
                self._forwarded[resource, key] = obj
            elif last := added or before:
                self._removed.append(last.uid)
            owners |= {known.owner_uid for known in (obj, added, before) if known is not None}
        self._on_change(frozenset(filter(None, owners)))


def _key(ref: ObjectRef | _Metadata) -> str:
    return f"{ref.namespace}/{ref.name}" if ref.namespace else ref.name
