"""A bounded memory of the latest keys."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LatestValues(Generic[K, V]):
    """Keeps values by key; beyond ``size`` it drops the oldest."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._found: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: K) -> bool:
        return key in self._found

    def add(self, key: K, value: V) -> bool:
        """Keep the first value of ``key``; return whether it is new."""
        if key in self._found:
            return False
        self._found[key] = value
        if len(self._found) > self._size:
            self._found.popitem(last=False)
        return True

    def take(self, key: K) -> V | None:
        """Remove and return the value of ``key``, or None if there is none."""
        return self._found.pop(key, None)
