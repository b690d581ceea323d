"""What an application has on its clusters, which pruning and cleaning go by (krake-spec 7.5).

A record is written before the objects are: what is on a cluster is always in the record, and a
record may hold what never came to be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Key: TypeAlias = tuple[str, str, str, str]
"""Group, kind, namespace and name: an object is the same one in each version of its group."""
MADE: Final = "Made"
ADOPTED: Final = "Adopted"
"""Origins: what was there before is never deleted."""


class ObjectRef(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """An object of a member cluster; ``namespace`` is empty for a cluster-scoped one only."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    """Empty until it was applied."""
    origin: str = ""
    """Empty until it was applied, and where an earlier version did that."""

    @property
    def group(self) -> str:
        """The API group, empty for the core."""
        return self.api_version.rpartition("/")[0]

    @property
    def key(self) -> Key:
        """What makes it this object and no other."""
        return (self.group, self.kind, self.namespace, self.name)

    @property
    def text(self) -> str:
        """For people: ``Deployment shop/web``."""
        return f"{self.kind} {self.namespace}/{self.name}".replace(" /", " ")


Inventory: TypeAlias = tuple[ObjectRef, ...]
"""In the order of application."""


def merged(recorded: Iterable[ObjectRef], further: Iterable[ObjectRef]) -> Inventory:
    """Both records as one; where they differ about an object, the second one counts.

    A uid and an origin that only the first one knows are kept.
    """
    found = {each.key: each for each in recorded}
    for each in further:
        known = found.get(each.key)
        found[each.key] = (
            each if each.uid or known is None else replace(each, uid=known.uid, origin=known.origin)
        )
    return tuple(found.values())


def without(recorded: Iterable[ObjectRef], others: Iterable[ObjectRef]) -> Inventory:
    """The recorded objects that are not among the others."""
    keys = {each.key for each in others}
    return tuple(each for each in recorded if each.key not in keys)


def placed(
    inventories: Mapping[str, Inventory], cluster: str, objects: Inventory
) -> dict[str, Inventory]:
    """The records of all clusters, where ``cluster`` now has ``objects``; none is an entry less."""
    others = {name: each for name, each in inventories.items() if name != cluster}
    return {**others, cluster: objects} if objects else others
