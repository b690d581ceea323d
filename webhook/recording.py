"""Samples of reviews, written to files for ``replay`` without delaying admission.

A review that is taken waits in a short queue together with what was known, which is immutable.
Owners are not, so they are looked up at once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.metrics import (
    FAILED,
    NOT_KEPT,
    QUEUE_FULL,
    TOO_LARGE,
    UNFAITHFUL,
    WRITTEN,
)
from harbourmaster.telemetry.text import reason
from harbourmaster.webhook.handlers import MALFORMED
from harbourmaster.webhook.recorded import Taken, line_of, parents_now

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import Counter

    from harbourmaster.webhook.engine import Engine
    from harbourmaster.webhook.handlers import Decision
    from harbourmaster.webhook.record_files import RecordFiles

MAX_REVIEW: Final = 256 * 1024
"""Bytes of a review and its answer, if they are kept; working on more would delay other reviews."""
MAX_WAITING: Final = 512
MAX_WAITING_BYTES: Final = 8 * 1024 * 1024
REST: Final = 9.0
"""Pause after the work on a review, in multiples of its time: at most a tenth of a core is used."""
BATCH: Final = 16
"""Lines that are written together, where so many wait."""
LAST_SECONDS: Final = 2.0
"""In which what waits may still be written at the end."""
QUIET: Final = 60.0
"""Seconds between two log lines about files that can't be written."""
_UNDECIDED: Final = frozenset(("internal-error", "deadline", "no-node-matches"))
"""Codes of answers that depend on more than a recording has."""


class Recorder:
    """Takes a share of the reviews and writes them, from ``start`` to ``close``."""

    def __init__(
        self,
        files: RecordFiles,
        share: float,
        outcomes: Mapping[str, Counter],
        *,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """``outcomes`` count the sampled reviews by what became of them."""
        self._files = files
        self._share = share
        self._outcomes = outcomes
        self._chance = chance
        self._waiting: deque[Taken] = deque()
        self._bytes = 0
        self._some = asyncio.Event()
        self._lines: list[bytes] = []
        self._task: asyncio.Task[None] | None = None
        self._writing: asyncio.Future[None] | None = None
        self._told = -QUIET
        self._log = get_logger("recording")

    def start(self) -> None:
        """Write from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def take(
        self, body: bytes, result: bytes, decision: Decision, engine: Engine, *, may_patch: bool
    ) -> None:
        """Keep a review, if it is sampled. Never waits."""
        if self._chance() >= self._share:
            return
        size = len(body) + len(result)
        if size > MAX_REVIEW:
            self._outcomes[TOO_LARGE].inc()
        elif len(self._waiting) >= MAX_WAITING or self._bytes + size > MAX_WAITING_BYTES:
            self._outcomes[QUEUE_FULL].inc()
        elif decision.verdict.outcome == MALFORMED or not _UNDECIDED.isdisjoint(
            decision.verdict.codes
        ):
            self._outcomes[NOT_KEPT].inc()
        else:
            try:
                parents = tuple(parents_now(decision.request, engine))
            except Exception:  # noqa: BLE001 - the review is answered, whatever is wrong here
                self._outcomes[UNFAITHFUL].inc()
                return
            self._waiting.append(
                Taken(time.time(), body, result, decision, engine, may_patch, parents)
            )
            self._bytes += size
            self._some.set()

    async def close(self) -> None:
        """Write what waits, if that can be done soon, and stop."""
        if self._task is None:
            return
        self._task.cancel()
        # One write at a time, and none is torn.
        await asyncio.wait((self._task, *([self._writing] if self._writing else ())))
        self._task = None
        clock = asyncio.get_running_loop().time
        end = clock() + LAST_SECONDS
        while (self._waiting or self._lines) and clock() < end:
            while self._waiting and len(self._lines) < BATCH:
                self._work_off()
            await self._flush()
        self._count(QUEUE_FULL, len(self._waiting))
        self._waiting.clear()
        # What ends after us must end whatever the disk says.
        with suppress(OSError):
            await asyncio.to_thread(self._files.close)

    async def _run(self) -> None:
        clock = time.perf_counter
        while True:
            if not self._waiting:
                self._some.clear()
                await self._some.wait()
            began = clock()
            self._work_off()
            spent = clock() - began
            if len(self._lines) >= BATCH or not self._waiting:
                await self._flush()
            await asyncio.sleep(spent * REST)

    def _work_off(self) -> None:
        """Make the line of the review that waits longest, if it may be kept."""
        taken = self._waiting.popleft()
        self._bytes -= len(taken.body) + len(taken.result)
        try:
            line, outcome = line_of(taken)
        except Exception:  # noqa: BLE001 - what it says may be part of the object
            line, outcome = None, UNFAITHFUL
        if line is None:
            self._count(outcome)
        else:
            self._lines.append(line)

    async def _flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            self._writing = asyncio.ensure_future(self._write(lines))
            await asyncio.shield(self._writing)

    async def _write(self, lines: list[bytes]) -> None:
        try:
            await asyncio.to_thread(self._files.write, lines)
        except OSError as error:
            self._count(FAILED, len(lines))
            now = time.monotonic()
            if now - self._told >= QUIET:
                self._told = now
                self._log.error("reviews can't be recorded", error=reason(error))
        else:
            self._count(WRITTEN, len(lines))

    def _count(self, outcome: str, reviews: int = 1) -> None:
        self._outcomes[outcome].inc(reviews)
