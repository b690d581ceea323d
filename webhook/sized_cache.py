"""A cache that is emptied before it takes more than its share of memory, and when it is old."""

from __future__ import annotations

from time import monotonic
from typing import Final, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")

MAX_BYTES: Final = 4 * 1024 * 1024
"""The most bytes of one cache, keys included."""
MAX_SECONDS: Final = 600.0
"""Until it is emptied: most pods whose decisions it keeps are long there by then."""
_ENTRY_BYTES: Final = 1024
"""Added for each entry."""


class SizedCache(dict[Key, Value]):
    """Values by key; ``size`` is about the bytes that they take."""

    __slots__ = ("begun", "size")

    def __init__(self) -> None:
        super().__init__()
        self.size = 0
        self.begun = monotonic()

    def keep(self, key: Key, value: Value, size: int) -> bool:
        """Keep an entry of ``size`` bytes; False for one that is larger than all room."""
        size += _ENTRY_BYTES
        now = monotonic()
        if self.size + size > MAX_BYTES or now - self.begun > MAX_SECONDS:
            self.clear()
            self.size, self.begun = 0, now
        if size > MAX_BYTES:
            return False
        self[key] = value
        self.size += size
        return True
