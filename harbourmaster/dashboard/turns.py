"""Long work in pieces: a page that is made of thousands of objects lets others have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Sliced: TypeAlias = Generator[None, None, T]
"""Work that pauses wherever it yields, and returns its result."""


async def in_turns(work: Sliced[T]) -> T:
    """Its result; other work is done at each pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            found: T = done.value
            return found
        await asyncio.sleep(0)
