"""Leader election by a Lease: never two processes work at the same time.

A leader works until ``renew_deadline`` after it *began* to send its last renewal that succeeded;
others count ``lease_duration`` from when they saw it. Between the two, work is cancelled and has
ended, or the process has. Every write carries the resourceVersion that it is based on, so of two
candidates one wins, and a late write of a former leader does nothing.
"""

from __future__ import annotations

import asyncio
import math
import random
import secrets
from collections import deque
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from harbourmaster.api.resources import LEASES
from harbourmaster.api.times import format_rfc3339
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.deadline import Watchdog, read_boottime, run_while
from harbourmaster.kube.errors import ApiError, BadAnswerError, ConflictError, NotFoundError
from harbourmaster.kube.lease import (
    LeaseWait,
    StepDown,
    Timing,
    acquire,
    decide,
    decide_as_leader,
    decode_lease,
    encode_lease,
    mark,
    micro_time,
    new_lease,
    observe,
    release,
    renew,
)
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from harbourmaster.kube.client import Client
    from harbourmaster.kube.lease import Lease, LeaseObservation, LeaseSpec

_T = TypeVar("_T")

RELEASE_TIMEOUT: Final = 2.0
"""Seconds for releasing the Lease."""
_RELEASE_ATTEMPTS: Final = 3
_FAILED_WORK: Final = Backoff(first=1.0, limit=60.0)
_REMEMBERED: Final = 16
"""Maximum number of attempts without an answer that may still turn up in the Lease."""


class _End(Enum):
    """The end of a leader's term."""

    DONE = "work returned"
    FAILED = "work failed"
    LOST = "the Lease was lost"


class LeaderElection:
    """A candidate. ``identity`` is for people; the holder's name adds a random part to it.

    So two processes of one name, or one after the other, never take each other for themselves.
    ``on_state`` is called before work begins and after it has ended. ``watchdog`` ends the process
    if work does not end in time. ``labels`` are for a Lease that is created here; ``marks`` are
    annotations with the time since when a mark is set. Times are in seconds; raises ValueError for
    times that can't hold together.
    """

    def __init__(  # noqa: PLR0913 - the election's times, and knobs for tests
        self,
        client: Client,
        *,
        name: str,
        namespace: str,
        identity: str,
        lease_duration: float = 15.0,
        renew_deadline: float = 10.0,
        retry_period: float = 2.0,
        on_state: Callable[[bool], None] | None = None,
        labels: Mapping[str, str] | None = None,
        marks: Mapping[str, bool] | None = None,
        watchdog: Watchdog | None = None,
        clock: Callable[[], float] = read_boottime,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.identity = f"{identity}_{secrets.token_hex(8)}"
        self._timing = Timing(lease_duration, renew_deadline, retry_period)
        self._calls = LeaseCalls(
            client, name=name, namespace=namespace, seconds=self._timing.call_timeout
        )
        self._blank = new_lease(name, namespace, labels or {})
        self._marks = marks or {}
        self._on_state = on_state or (lambda _leading: None)
        self._watchdog = watchdog or Watchdog()
        self._clock = clock
        self._now = now
        self._chance = chance
        self._log = get_logger("election").bind(lease=f"{namespace}/{name}", identity=self.identity)
        self._fault = ""

        self._seen: LeaseObservation | None = None
        self._lease: Lease | None = None
        """The Lease as it is stored in our name; None if that is unknown."""
        self._last: Lease = self._blank
        """The Lease as it was stored last."""
        self._written: deque[str] = deque(maxlen=_REMEMBERED)
        self._may_hold = False
        self._deadline = -math.inf
        self._leading = False
        self._must_end = False
        self._ended_itself = False

    @property
    def is_leader(self) -> bool:
        """Whether work may go on at this very instant; cheap, for asking before each write."""
        return self._leading and self._clock() < self._deadline

    @property
    def marks(self) -> dict[str, Any]:
        """The annotations of the Lease as it was stored last."""
        return self._last.annotations

    def guard(self, coroutine: Coroutine[Any, Any, _T]) -> Awaitable[_T]:
        """Await ``coroutine`` step by step, and cancel it before a step after the deadline.

        Work runs like this. Its tasks are stopped with it, but after a standstill of the process
        each may do a step before: start them by ``guard``, or let them check ``is_leader``.
        """
        return run_while(lambda: self._clock() < self._deadline, coroutine)

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run ``work`` whenever this candidate leads, until it returns or this is cancelled.

        Work that fails is logged, the Lease given back, and the next term stood for later. The
        Lease is given back at the end as well, within two seconds.
        """
        failures = 0
        try:
            while True:
                await self._campaign()
                begun = self._clock()
                end = await self._lead(work)
                if end is _End.DONE:
                    return
                if end is _End.FAILED:
                    failures = failures + 1 if self._clock() - begun < _FAILED_WORK.limit else 1
                    await self._release()
                    await asyncio.sleep(_FAILED_WORK.delay(failures - 1, self._chance()))
        finally:
            try:
                await self._release()
            finally:
                self._watchdog.close()

    async def _campaign(self) -> None:
        """Wait until we hold the Lease."""
        while True:
            begun = self._clock()
            pause = 0.0
            try:
                if await self._try_to_lead():
                    return
            except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may do
                pause = self._note_fault(error)
            await self._pause(begun, min(pause, self._timing.lease_duration))

    async def _try_to_lead(self) -> bool:
        lease = await self._read()
        now = self._clock()
        self._seen = observe(self._seen, lease, now, self._timing.lease_duration)
        action = decide(self._seen, self.identity, now, self._written)
        if isinstance(action, LeaseWait):
            return False
        base = mark(lease or self._blank, self._marks, format_rfc3339(self._now()))
        seconds, at = self._timing.whole_duration, self._stamp()
        try:
            await self._write(base, acquire(base.spec, self.identity, seconds, at))
        except (ConflictError, NotFoundError):
            # Another candidate was faster.
            return False
        return self._clock() < self._deadline

    async def _lead(self, work: Callable[[], Awaitable[None]]) -> _End:
        """Work for one term."""

        async def call() -> None:
            await work()

        async def work_while_allowed() -> None:
            await run_while(self._may_step, call())

        self._watchdog.arm(self._deadline + self._timing.grace)
        self._leading, self._must_end, self._ended_itself = True, False, False
        self._on_state(True)
        self._log.info("became leader")
        worker = asyncio.create_task(work_while_allowed())
        renewal = asyncio.create_task(self._keep_renewing())
        try:
            loss = await self._until_over(worker, renewal)
        finally:
            failed = await self._stop(worker, renewal)
        if loss is not None:
            self._log.warning("lost leadership", reason=loss)
            return _End.LOST
        return _End.FAILED if failed else _End.DONE

    async def _until_over(
        self, worker: asyncio.Task[None], renewal: asyncio.Task[str]
    ) -> str | None:
        """Wait for the end of the term; returns why the Lease is lost, None if work has ended."""
        while True:
            left = self._deadline - self._clock()
            if left <= 0 or self._ended_itself:
                return self._overdue()
            if renewal.done():
                return renewal.result()
            if worker.done():
                return None
            # Renewals move the deadline meanwhile, so it is looked at again.
            await asyncio.wait({worker, renewal}, timeout=left, return_when=asyncio.FIRST_COMPLETED)

    async def _stop(self, worker: asyncio.Task[None], renewal: asyncio.Task[str]) -> bool:
        """End work and renewals, wait for both, and return whether work has failed."""
        self._leading = False
        cancelled_itself = worker.cancelled() and not self._ended_itself
        if not self._ended_itself:
            worker.cancel()
            self._must_end = True
        renewal.cancel()
        interrupted = await _until_done(worker)
        self._watchdog.disarm()
        interrupted = await _until_done(renewal) or interrupted
        self._deadline = -math.inf
        error = None if worker.cancelled() else worker.exception()
        if error is not None:
            self._log.error("leader task failed", exc_info=error)
        self._on_state(False)
        if interrupted:
            raise asyncio.CancelledError
        return cancelled_itself or error is not None

    def _may_step(self) -> bool:
        # Cancelled work ends in its own way as long as the watchdog allows.
        if self._must_end or self._clock() < self._deadline:
            return True
        self._ended_itself = True
        return False

    async def _keep_renewing(self) -> str:
        """Renew until the Lease is lost; returns the reason."""
        begun = self._clock()
        pause = 0.0
        while True:
            # Retry-After is respected as long as time remains for another attempt.
            last_chance = self._deadline - self._timing.call_timeout - begun
            await self._pause(begun, min(pause, last_chance))
            begun = self._clock()
            if begun >= self._deadline:
                return self._overdue()
            pause = 0.0
            try:
                loss = await self._renew()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next attempt may do
                pause = self._note_fault(error)
                continue
            if loss is not None:
                return loss

    async def _renew(self) -> str | None:
        """Renew once; returns the reason why the Lease is lost, or None.

        One request; up to three if the Lease is not as we knew it.
        """
        if self._lease is not None:
            try:
                await self._rewrite(self._lease)
            except (ConflictError, NotFoundError):
                self._log.debug("Lease changed by another candidate")
            else:
                return None
        lease = await self._read()
        action = decide_as_leader(lease, self.identity)
        if isinstance(action, StepDown):
            return f"held by {action.holder}" if action.holder else "the Lease names no holder"
        # Deleted, it comes back as it was: others keep the promise that it gave.
        metadata = {**self._blank.metadata, "annotations": self._last.annotations}
        await self._rewrite(lease or replace(self._last, metadata=metadata))
        return None

    async def _rewrite(self, lease: Lease) -> None:
        await self._write(lease, renew(lease.spec, self._timing.whole_duration, self._stamp()))

    async def _read(self) -> Lease | None:
        lease = await self._calls.read()
        self._may_hold = lease is not None and lease.holder == self.identity
        self._note_answer()
        return lease

    async def _write(self, base: Lease, spec: LeaseSpec) -> None:
        """Store ``spec``, which is in our name. From its beginning the deadline counts."""
        begun = self._clock()
        self._lease, self._may_hold = None, True
        self._written.append(spec.renew_time or "")
        self._lease = self._last = await self._calls.store(base, spec)
        self._note_answer()
        self._deadline = begun + self._timing.renew_deadline
        if self._leading:
            self._watchdog.arm(self._deadline + self._timing.grace)

    async def _release(self) -> None:
        """Release the Lease if we may hold it, so that the next candidate need not wait."""
        if not self._may_hold:
            return
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                for _ in range(_RELEASE_ATTEMPTS):
                    if await self._give_back():
                        break
        except Exception as error:  # noqa: BLE001 - it runs out by itself
            self._log.warning("Lease not released", error=_text(error))

    async def _give_back(self) -> bool:
        lease, self._lease = self._lease or await self._read(), None
        if lease is None or lease.holder != self.identity:
            return True
        try:
            await self._calls.store(lease, release(lease.spec, self._stamp()))
        except (ConflictError, NotFoundError):
            # A late write of our own may have come between.
            return False
        self._may_hold = False
        return True

    def _note_fault(self, error: Exception) -> float:
        """Log each kind of fault once; returns the Retry-After of the server, in seconds."""
        text = _text(error)
        if text != self._fault:
            self._fault = text
            role = "leader" if self._leading else "candidate"
            self._log.warning("Lease not accessible", role=role, error=text)
        return (error.retry_after or 0.0) if isinstance(error, ApiError) else 0.0

    def _note_answer(self) -> None:
        if self._fault:
            self._fault = ""
            self._log.info("Lease accessible again")

    async def _pause(self, begun: float, at_least: float) -> None:
        """Wait until an attempt is due that comes after the one of ``begun``."""
        wait = max(self._timing.wait(self._chance()), at_least)
        await asyncio.sleep(max(begun + wait - self._clock(), 0.0))

    def _overdue(self) -> str:
        return f"not renewed within {self._timing.renew_deadline:g} s"

    def _stamp(self) -> str:
        return micro_time(self._now())


async def _until_done(task: asyncio.Task[Any]) -> bool:
    """Wait for the end of ``task``; returns whether this was cancelled meanwhile."""
    interrupted = False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            interrupted = True
    return interrupted


def _text(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "the API server did not answer in time"
    return reason(error)


class LeaseCalls:
    """Reads and stores one Lease. Raises ApiError, TimeoutError and DecodeError."""

    def __init__(self, client: Client, *, name: str, namespace: str, seconds: float) -> None:
        """``seconds`` are for one call."""
        self._client = client
        self._seconds = seconds
        self._all = LEASES.path(namespace)
        self._one = LEASES.path(namespace, name)

    async def read(self) -> Lease | None:
        """Return the Lease, or None if there is none."""
        try:
            return decode_lease(await self._call("GET", self._one))
        except NotFoundError:
            return None

    async def store(self, base: Lease, spec: LeaseSpec) -> Lease:
        """Replace the spec of ``base``, which is created if it was never stored.

        Raises ConflictError or NotFoundError if ``base`` is not what is stored now.
        """
        body = encode_lease(replace(base, spec=spec))
        if base.version:
            stored = decode_lease(await self._call("PUT", self._one, body))
        else:
            stored = decode_lease(await self._call("POST", self._all, body))
        if (stored.holder, stored.spec.renew_time) != (spec.holder_identity, spec.renew_time):
            raise BadAnswerError("the API server stored a different Lease")
        return stored

    async def _call(self, method: str, path: str, body: bytes | None = None) -> bytes:
        # No repetition by the client: the election decides when, by its deadline.
        async with asyncio.timeout(self._seconds):
            return await self._client.request(
                method,
                path,
                body=body,
                content_type=None if body is None else "application/json",
                timeout=self._seconds,
                retries=0,
            )
