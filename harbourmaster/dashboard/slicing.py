"""Runs long work in slices, so that a page of thousands of objects does not block the process."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Sliced: TypeAlias = Generator[None, None, T]
"""Work that can be interrupted where it yields, and returns its result."""


async def run_sliced(work: Sliced[T]) -> T:
    """Run ``work``, let other tasks run where it yields, and return its result."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)
