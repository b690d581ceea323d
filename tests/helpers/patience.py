"""Patience of tests for what has to come, and waiting for what caches show.

Where it comes soon, long patience costs nothing. Nothing that must *not* happen is waited for by
these. A test has ``TEST_SECONDS`` in all, so that the wait that fails says what it waited for
before pytest ends the test.
"""

from __future__ import annotations

import asyncio

PATIENCE = 90.0
"""For what takes a moment, on a machine of which others have the most."""
COLLECTED = 150.0
"""For what a garbage collector or a namespace's end takes along.

kube-controller-manager looks for new kinds every 30 s, and where one went it tries for as long
again to watch it; until its graph is whole it deletes nothing.
"""
DROPPED = 330.0
"""For definitions that are deleted.

An API server that missed a turn with one looks at all of them again after five minutes.
"""
TEST_SECONDS = 300
WAIT = f"--timeout={PATIENCE:.0f}s"
"""PATIENCE as a flag of kubectl."""


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
