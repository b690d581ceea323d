"""Coroutines that run beside a test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager


@asynccontextmanager
async def background(coroutine):
    """Run it as a task, which is cancelled at the end of the block."""
    task = asyncio.create_task(coroutine)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


class Calls:
    """Takes the place of an object: any method may be called, and ``seen`` has all calls."""

    def __init__(self):
        self.seen = []

    def __getattr__(self, name):
        return lambda *args: self.seen.append((name, *args))
