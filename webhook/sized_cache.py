"""A cache that is emptied before it takes more than its share of memory."""

from __future__ import annotations

from typing import Final, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

MAX_BYTES: Final = 4 * 1024 * 1024
"""Of what one cache keeps, keys included."""
_ENTRY_BYTES: Final = 1024
"""Added for each entry."""


class SizedCache(dict[Key, Value]):
    """Values by key; ``size`` is about the bytes that they take."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        super().__init__()
        self.size = 0

    def keep(self, key: Key, value: Value, size: int) -> bool:
        """Keep an entry of ``size`` bytes; False for one that is larger than all room."""
        size += _ENTRY_BYTES
        if self.size + size > MAX_BYTES:
            self.clear()
            self.size = 0
        if size > MAX_BYTES:
            return False
        self[key] = value
        self.size += size
        return True
