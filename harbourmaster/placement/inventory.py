"""The record of an application's objects on its clusters, for pruning and cleanup (krake-spec 7.5).

The record is written before the objects: it has every object on a cluster, and may have objects
that were never created.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Key: TypeAlias = tuple[str, str, str, str]
"""Group, kind, namespace and name: the same in every version of the group."""
MADE: Final = "Made"
ADOPTED: Final = "Adopted"
"""Origins of an object; an adopted one existed before and is never deleted."""


class ObjectName(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """The name of an object; ``namespace`` is empty for a cluster-scoped one only."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""

    @property
    def group(self) -> str:
        """The API group, empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> Key:
        """The identity of the object."""
        return (self.group, self.kind, self.namespace, self.name)

    @property
    def text(self) -> str:
        """For people: ``Deployment shop/web``."""
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ")


class ObjectSelector(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """Selects the objects of a kind; without a group or a name, those of any."""

    kind: str
    group: str | None = None
    name: str | None = None

    def covers(self, ref: ObjectName) -> bool:
        """Return whether an object is one of them."""
        is_named = self.name is None or self.name == ref.name
        return self.kind == ref.kind and self.group in {None, ref.group} and is_named


class ObjectRef(ObjectName, frozen=True, gc=False, kw_only=True):
    """An object of a member cluster."""

    uid: str = ""
    """Empty until it was applied."""
    origin: str = ""
    """Empty until it was applied, or if an earlier version applied it."""


class Observation(ObjectName, frozen=True, gc=False, kw_only=True):
    """A fact about an object that lasts longer than the object does."""

    finished: str = ""
    """The digest of the manifest with which a Job finished."""
    cluster: str = ""
    """The cluster on which it finished."""
    replicas: int | None = None
    """The replicas of the manifest when others scaled the object."""
    scaled: int | None = None
    """The replicas to which others scaled the object."""


Inventory: TypeAlias = tuple[ObjectRef, ...]
"""References of objects in the order in which they are applied."""


def merge(recorded: Iterable[ObjectRef], further: Iterable[ObjectRef]) -> Inventory:
    """Both records as one; for an object in both, the second record counts.

    A uid and an origin that only the first record has are kept.
    """
    refs = {ref.key: ref for ref in recorded}
    for ref in further:
        known = refs.get(ref.key)
        refs[ref.key] = (
            ref if ref.uid or known is None else replace(ref, uid=known.uid, origin=known.origin)
        )
    return tuple(refs.values())


def without(recorded: Iterable[ObjectRef], others: Iterable[ObjectRef]) -> Inventory:
    """The recorded objects that are not among the others."""
    keys = {ref.key for ref in others}
    return tuple(ref for ref in recorded if ref.key not in keys)


def with_objects(
    inventories: Mapping[str, Inventory], cluster: str, objects: Inventory
) -> dict[str, Inventory]:
    """The records of all clusters after a change of one; without objects its entry is removed."""
    others = {name: inventory for name, inventory in inventories.items() if name != cluster}
    return {**others, cluster: objects} if objects else others
