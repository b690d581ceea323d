"""Waiting for what caches show."""

from __future__ import annotations

import asyncio

from helpers.patience import PATIENCE


class Changes:
    """Wakes whoever waits; ``tell`` is for caches to call with whatever changed."""

    def __init__(self):
        self._changed = asyncio.Event()

    def tell(self, *_):
        self._changed.set()

    async def until(self, find, patience=PATIENCE):
        """Wait until ``find`` finds something, at most ``patience`` seconds (None: for ever)."""
        async with asyncio.timeout(patience):
            while not (value := find()):
                self._changed.clear()
                await self._changed.wait()
        return value
