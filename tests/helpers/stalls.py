"""Lets the process stand still between turns of an event loop, as a busy machine does.

A test that gives itself or the other side tenths of a second for what has to happen fails then.
"""

from __future__ import annotations

import random
import time
from asyncio import BaseEventLoop

import pytest

CHANCE = 0.15
"""Of a stop before a turn."""
SECONDS = (0.1, 0.4)
MOST = 8
"""Stops of a test."""


class Stalls:
    """A plugin of pytest; the same seed gives a test the same stops. uvloop's turns are its own."""

    def __init__(self, seed):
        self._seed = seed
        self._left = 0
        self._random = random.Random()  # noqa: S311
        turn = BaseEventLoop._run_once

        def stalled(loop):
            if self._left and self._random.random() < CHANCE:
                self._left -= 1
                time.sleep(self._random.uniform(*SECONDS))
            turn(loop)

        BaseEventLoop._run_once = stalled

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        self._random.seed(f"{self._seed} {item.nodeid}")
        self._left = MOST
