"""Work that goes on beside what a process waits for."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the coroutines while the block runs, and end them with it.

    One that fails ends the block too, for a process that does only half of its work is worse than
    one that is started again. Its exception comes out as it is, and only several in a group.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(coroutine) for coroutine in coroutines]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
    except BaseExceptionGroup as failed:
        # What can't be listened on or read is one line for the user, wherever it was found.
        first, *others = failed.exceptions
        if others:
            raise
        raise first from first.__cause__
