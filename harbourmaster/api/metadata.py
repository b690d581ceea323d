"""Parts that objects of every kind have, as the API writes them.

Empty fields are not written, as by Go programs (``omitempty``). Times are RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
MAX_ANNOTATIONS: Final = 16 * 1024
"""Characters of annotations that a cache keeps of an object."""
NO_OVERRIDE: Final = "gates.harbourmaster.dev/no-override"
"""Annotation of a shared definition: one of the same name in a namespace does not hide it."""


class _Wire(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """A part of an object."""


class OwnerReference(_Wire, frozen=True, kw_only=True):
    """The owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    @property
    def group(self) -> str:
        """The API group of the owner's kind."""
        return self.api_version.rpartition("/")[0]


class Condition(_Wire, frozen=True, kw_only=True):
    """One aspect of an object's state; ``status`` is True, False or Unknown.

    Times are left out on purpose: the API server writes null for those that are not set.
    """

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class Metadata(_Wire, frozen=True, kw_only=True):
    """The metadata of every object."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """The key in stores: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls it."""
        return next(
            (reference for reference in self.owner_references if reference.controller), None
        )

    def is_controlled_by(self, owner: Metadata) -> bool:
        """Whether this object is controlled by the one with that metadata."""
        return self.controller is not None and self.controller.uid == owner.uid

    def as_controller(self, api_version: str, kind: str) -> OwnerReference:
        """The reference by which this object, of that kind, owns what is made for it."""
        return OwnerReference(
            api_version=api_version,
            kind=kind,
            name=self.name,
            uid=self.uid,
            controller=True,
            block_owner_deletion=True,
        )


def compact(metadata: Metadata) -> Metadata:
    """Return the metadata as caches keep it: without the object that kubectl noted in it.

    The longest annotations beyond MAX_ANNOTATIONS bytes are left out. An empty LAST_APPLIED marks
    that some are missing, so that the object is not taken for one without annotations.
    """
    annotations = metadata.annotations
    sizes = {key: len(key) + len(value) for key, value in annotations.items()}
    left = MAX_ANNOTATIONS
    if LAST_APPLIED not in annotations and sum(sizes.values()) <= left:
        return metadata
    kept = {LAST_APPLIED: ""}
    for key in sorted(sizes.keys() - {LAST_APPLIED}, key=lambda key: (sizes[key], key)):
        left -= sizes[key]
        if left < 0:
            break
        kept[key] = annotations[key]
    return replace(metadata, annotations=kept)


class HasMetadata(Protocol):
    """An object with all its metadata."""

    @property
    def metadata(self) -> Metadata:
        """Name, namespace, annotations and so on."""


D = TypeVar("D", bound=HasMetadata)


def choose_definition(candidates: Iterable[D | None]) -> D | None:
    """Return the definition that counts, of those of one name in the namespaces that are searched.

    It is the first that exists, unless one is marked with NO_OVERRIDE.
    """
    existing = [candidate for candidate in candidates if candidate is not None]
    marked = (
        candidate for candidate in existing if candidate.metadata.annotations.get(NO_OVERRIDE)
    )
    return next(marked, existing[0] if existing else None)
