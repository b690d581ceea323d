"""Long work in pieces: a page that is made of thousands of objects lets others have their turn."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Course: TypeAlias = Generator[None, None, T]
"""Work that pauses wherever it yields, and returns what comes of it."""


def at_once(course: Course[T]) -> T:
    """What comes of it, without a pause."""
    while True:
        try:
            next(course)
        except StopIteration as done:
            found: T = done.value
            return found


async def in_turns(course: Course[T]) -> T:
    """What comes of it; whatever else is due is done at each pause."""
    while True:
        try:
            next(course)
        except StopIteration as done:
            found: T = done.value
            return found
        await asyncio.sleep(0)
