"""Coroutines that run beside the main task of a process."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run the coroutines while the block runs, and end them with it.

    One that fails ends the block too, because a process that does half of its work is worse than
    one that is restarted. Its exception is raised as it is; only several are raised in a group.
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
        # An unusable address or file is one line for the user, wherever it was detected.
        first, *others = failed.exceptions
        if others:
            raise
        raise first from first.__cause__
