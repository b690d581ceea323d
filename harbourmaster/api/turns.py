"""Turns of namespaces at a limited number of places, such as workers or queries to one server."""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, deque
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_SHARE: Final = 3
"""Places of one namespace for each that is free: alone it gets three quarters of them."""


def namespace_of(key: str) -> str:
    """Return the namespace of a key, or the name of a cluster-scoped object."""
    return key.partition("/")[0]


def has_room(places: int, taken: int, own: int) -> bool:
    """Whether a namespace with ``own`` of the ``taken`` places may take another one."""
    free = places - taken
    return free > 0 and (not own or (free > 1 and own < _SHARE * free))


class Turns(Generic[T]):
    """Items that wait for a place, in their order within a namespace; namespaces take turns.

    So do the families of a namespace, if its items have any. A namespace leaves places to others,
    and the last one always, so that items that take long do not delay the first item of another. An
    operation looks at no more namespaces than have places.
    """

    def __init__(self, places: int = sys.maxsize) -> None:
        self.places = places
        self._waiting: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        """Items by namespace and family, in the order of their turns."""
        self._count = 0
        self._taken: Counter[str] = Counter()
        self.taken = 0
        """Number of places that all namespaces have."""

    def __len__(self) -> int:
        """Number of items that wait."""
        return self._count

    @property
    def first(self) -> T:
        """The item whose turn it is; there must be one."""
        families = next(iter(self._waiting.values()))
        return next(iter(families.values()))[0]

    def count(self, namespace: str) -> int:
        """Return the number of items of a namespace that wait."""
        return sum(map(len, self._waiting.get(namespace, {}).values()))

    def put(self, namespace: str, item: T, family: str = "") -> None:
        """Let ``item`` wait."""
        self._count += 1
        families = self._waiting.setdefault(namespace, OrderedDict())
        families.setdefault(family, deque()).append(item)

    def pop(self, may_take: Callable[[str, int], bool] = lambda *_: True) -> T | None:
        """Return the item whose turn it is, which may take a place; None if there is none.

        ``may_take`` can refuse a namespace with a number of places.
        """
        if self.taken >= self.places:
            return None
        for namespace, families in self._waiting.items():
            if self.has_room(namespace) and may_take(namespace, self._taken[namespace]):
                self._count -= 1
                family, items = families.popitem(last=False)
                item = items.popleft()
                if items:
                    families[family] = items
                del self._waiting[namespace]
                if families:
                    self._waiting[namespace] = families
                return item
        return None

    def has_room(self, namespace: str) -> bool:
        """Whether a namespace may take a place."""
        return has_room(self.places, self.taken, self._taken[namespace])

    def take(self, namespace: str) -> None:
        """Take a place, also one that does not exist."""
        self._taken[namespace] += 1
        self.taken += 1

    def leave(self, namespace: str) -> None:
        """Leave a place."""
        self._taken[namespace] -= 1
        self.taken -= 1
        if not self._taken[namespace]:
            del self._taken[namespace]
