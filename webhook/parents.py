"""The owners from which pods inherit, with nothing of them but what is inherited (keptn-spec 2.4).

Ten thousand ReplicaSets are common, so each object is a few hundred bytes: Keptn's keys, if any,
and of a ReplicaSet its owner.
"""

from __future__ import annotations

from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.gates.known_keys import unknown_keys
from harbourmaster.gates.metadata import READ_KEYS, Metadata, limit_value
from harbourmaster.gates.mistakes import MAX_TOLD
from harbourmaster.gates.owners import SUPPORTED, is_parent, is_replica_set, parent_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_NOTHING: Final = Metadata()
DEFAULT_NAMESPACE: Final = "default"


class Parent(Struct, frozen=True, gc=False):
    """An owner of pods: its keys, and of a ReplicaSet the owner that pods inherit from instead."""

    uid: str
    metadata: Metadata
    owner: OwnerReference | None = None


class _ObjectMeta(Struct, frozen=True, gc=False, rename="camel"):
    name: str = ""
    namespace: str | None = None
    uid: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class ParentObject(Struct, frozen=True, gc=False, rename="camel"):
    """An owner as the API or a file has it, projected."""

    metadata: _ObjectMeta = _ObjectMeta()
    kind: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``; in a file the namespace may be missing."""
        return f"{self.metadata.namespace or DEFAULT_NAMESPACE}/{self.metadata.name}"

    def to_parent(self) -> Parent:
        """The owner as admission keeps it."""
        meta = self.metadata
        annotations, labels = _ours(meta.annotations), _ours(meta.labels)
        owner = parent_of(meta.owner_references or ())
        return Parent(
            meta.uid,
            Metadata(annotations, labels) if annotations or labels else _NOTHING,
            None if owner is None else _same_owner(owner),
        )


class Found(Protocol):
    """Owners of one kind by ``namespace/name``: a store that a watch fills, or a dict."""

    def get(self, key: str, /) -> Parent | None:
        """The owner, or None where it is not known."""


_Step: TypeAlias = tuple[Found, str, Parent | None]


class Lineage(Struct, frozen=True):
    """The metadata that the pods of one owner inherit.

    If it is known and None, there is nothing to inherit, now or later.
    """

    metadata: Metadata | None = None
    is_known: bool = True
    steps: tuple[_Step, ...] = ()
    """The lookups of owners, each with its store, key and result."""

    def holds(self) -> bool:
        """Return whether the lookups would have the same results now."""
        for kind, key, seen in self.steps:  # noqa: SIM110 - half the time of all()
            if kind.get(key) is not seen:
                return False
        return True


class Parents:
    """The current owners of pods, in stores that follow the cluster."""

    __slots__ = ("_kinds",)

    def __init__(self, kinds: Mapping[str, Found]) -> None:
        self._kinds = {kind: kinds.get(kind, _NOBODY) for kind in SUPPORTED}

    def of(self, owner: OwnerReference, namespace: str) -> Lineage:
        """Return the lineage of the pods of an owner of a supported kind."""
        above: tuple[_Step, ...] = ()
        if is_replica_set(owner):
            step = self._step(owner, namespace)
            replica_set = _same(owner, step[2])
            if replica_set is None:
                return Lineage(None, is_known=False, steps=(step,))
            if replica_set.owner is None:
                return Lineage(steps=(step,))
            above, owner = (step,), replica_set.owner
        elif not is_parent(owner):
            return _NO_LINEAGE
        step = self._step(owner, namespace)
        parent = _same(owner, step[2])
        metadata = None if parent is None else parent.metadata
        return Lineage(metadata, parent is not None, (*above, step))

    def _step(self, owner: OwnerReference, namespace: str) -> _Step:
        kind, key = self._kinds[owner.kind], f"{namespace}/{owner.name}"
        return kind, key, kind.get(key)


def _same(owner: OwnerReference, parent: Parent | None) -> Parent | None:
    # One of the same name that came or went since is another object.
    if parent is not None and parent.uid and owner.uid and parent.uid != owner.uid:
        return None
    return parent


def parents_of(objects: Iterable[ParentObject]) -> Parents:
    """The owners among objects of a file; those of other kinds are passed over."""
    kinds: dict[str, dict[str, Parent]] = {kind: {} for kind in SUPPORTED}
    for obj in objects:
        if obj.kind in kinds:
            kinds[obj.kind][obj.key] = obj.to_parent()
    return Parents(kinds)


def decode_parent(raw: msgspec.Raw) -> Parent:
    """The owner in an object of the API, its metadata being enough. Raises MsgspecError."""
    return _decode(raw).to_parent()


_NOBODY: Final[dict[str, Parent]] = {}
_NO_LINEAGE: Final = Lineage()
_NONE: Final[dict[str, str]] = {}
NO_PARENTS: Final = Parents({})
_decode: Final = msgspec.json.Decoder(ParentObject).decode


@lru_cache(maxsize=128)
def _same_owner(owner: OwnerReference) -> OwnerReference:
    """Return one object for equal ones: the ReplicaSets of a Deployment are listed in a row."""
    return replace(owner, api_version=intern(owner.api_version), kind=intern(owner.kind))


def _ours(values: dict[str, str] | None) -> dict[str, str]:
    if not values:
        return _NONE
    unknown = unknown_keys(values)
    if not unknown and READ_KEYS.isdisjoint(values):
        return _NONE
    read = {key: limit_value(value) for key, value in values.items() if key in READ_KEYS and value}
    # Only their names are known.
    return read | dict.fromkeys(unknown[:MAX_TOLD], "")
