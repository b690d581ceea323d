"""Work on many objects a few at a time, and short texts for many names."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence
    from typing import TypeVar

    Item = TypeVar("Item")

WIDTH: Final = 16
"""Objects that are worked on at one time."""
_SHOWN: Final = 5
"""Names in a line; the rest is counted."""
_UNITS: Final = {"d": 86400, "h": 3600, "m": 60}


async def for_each(items: Iterable[Item], act: Callable[[Item], Awaitable[None]]) -> list[ApiError]:
    """Run ``act`` on every item, a few at a time; returns the errors."""
    width = asyncio.Semaphore(WIDTH)
    errors: list[ApiError] = []

    async def run(item: Item) -> None:
        async with width:
            try:
                await act(item)
            except ApiError as error:
                errors.append(error)

    async with asyncio.TaskGroup() as group:
        for item in items:
            group.create_task(run(item))
    return errors


def plural(number: int, noun: str, nouns: str = "") -> str:
    """Return a number with its noun in the singular or plural: ``2 pods``."""
    return f"{number} {noun if number == 1 else nouns or f'{noun}s'}"


def shorten(names: Sequence[str], most: int = _SHOWN) -> str:
    """Return the first names, and the number of the others."""
    listed = ", ".join(names[:most])
    more = len(names) - most
    return f"{listed} and {more} more" if more > 0 else listed


def short_age(seconds: int) -> str:
    """Format an age as kubectl does: ``40s``, ``14m``, ``3h``."""
    unit = next((name for name in _UNITS if seconds >= 2 * _UNITS[name]), "s")
    return f"{seconds // _UNITS.get(unit, 1)}{unit}"
