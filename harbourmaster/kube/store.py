"""Objects by key with indexes, written by a reflector and read by all others.

A key is ``namespace/name``, or ``name`` for a cluster-scoped object. There are no locks: readers
and the one writer share an event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import (
        Callable,
        Hashable,
        Iterable,
        Iterator,
        KeysView,
        Mapping,
        ValuesView,
    )

T = TypeVar("T")
_ABSENT: Final = object()


class Store(Generic[T]):
    """The objects of one resource; only its reflector calls ``put``, ``remove``, ``replace_all``.

    An index function gives the values under which an object is found. It must not raise.
    """

    def __init__(
        self, indexes: Mapping[str, Callable[[T], Iterable[Hashable]]] | None = None
    ) -> None:
        self._objects: dict[str, T] = {}
        self._functions = dict(indexes or {})
        self._indexes: dict[str, dict[Hashable, dict[str, T]]] = {
            name: {} for name in self._functions
        }

    def __len__(self) -> int:
        return len(self._objects)

    def __contains__(self, key: object) -> bool:
        return key in self._objects

    def __iter__(self) -> Iterator[str]:
        return iter(self._objects)

    def get(self, key: str) -> T | None:
        """Return the object, or None."""
        return self._objects.get(key)

    def keys(self) -> KeysView[str]:
        """A live view of the keys; copy it to iterate with an await in between."""
        return self._objects.keys()

    def values(self) -> ValuesView[T]:
        """A live view of the objects; copy it to iterate with an await in between."""
        return self._objects.values()

    def by_index(self, name: str, value: Hashable) -> tuple[T, ...]:
        """The objects for which the index function ``name`` gives ``value``, in no fixed order.

        Raises KeyError if there is no such index.
        """
        return tuple(self._indexes[name].get(value, {}).values())

    def put(self, key: str, obj: T) -> bool:
        """Store ``obj`` under ``key``; returns whether anything changed."""
        before = self._objects.get(key, _ABSENT)
        if before == obj:
            return False
        self._forget(key)
        self._objects[key] = obj
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in function(obj):
                index.setdefault(value, {})[key] = obj
        return True

    def remove(self, key: str) -> bool:
        """Remove ``key``; returns whether anything changed."""
        is_known = key in self._objects
        self._forget(key)
        self._objects.pop(key, None)
        return is_known

    def replace_all(self, objects: Mapping[str, T]) -> set[str]:
        """Replace all objects; returns the keys that were added, changed or removed."""
        changed = {key for key, obj in objects.items() if self.put(key, obj)}
        gone = self._objects.keys() - objects.keys()
        for key in gone:
            self.remove(key)
        return changed | gone

    def _forget(self, key: str) -> None:
        """Remove ``key`` from the indexes, with the values that have no other key."""
        if key not in self._objects:
            return
        before = self._objects[key]
        for name, function in self._functions.items():
            index = self._indexes[name]
            for value in function(before):
                keys = index.get(value)
                if keys is not None:
                    keys.pop(key, None)
                    if not keys:
                        del index[value]
