"""A queue of keys for reconcilers: each key once, for one worker at a time, retried after a fault.

A key says only that there is something to look at, so a hundred adds cost one look. What is added
while a worker has the key is looked at again afterwards: the worker may have read before it came.
Namespaces take turns, and leave workers to each other, so that a thousand keys of one, or some that
take long, do not delay the first key of another. In a namespace, the pods of its owners take turns.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from harbourmaster.api.turns import Turns, namespace_of
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.errors import ApiError
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

RETRIES: Final = Backoff(first=0.05, limit=60.0)


class QueueMetrics(Protocol):
    """The metrics of a queue; ``queue`` is its name."""

    def set_depth(self, queue: str, keys: int) -> None:
        """Set the number of waiting keys."""

    def count_retry(self, queue: str) -> None:
        """Count a key that is retried after a fault."""

    def observe_wait(self, queue: str, seconds: float) -> None:
        """Record how long a key waited, in seconds."""

    def observe_work(self, queue: str, seconds: float) -> None:
        """Record how long a key was processed, in seconds."""


class NoQueueMetrics:
    """Counts nothing."""

    def set_depth(self, queue: str, keys: int) -> None:
        """Do nothing."""

    def count_retry(self, queue: str) -> None:
        """Do nothing."""

    def observe_wait(self, queue: str, seconds: float) -> None:
        """Do nothing."""

    def observe_work(self, queue: str, seconds: float) -> None:
        """Do nothing."""


class QueueShutDownError(Exception):
    """The queue is shut down and empty: a worker's work is over."""


class WorkQueue:
    """Keys to look at. Belongs to one event loop; only ``get`` waits."""

    def __init__(
        self,
        name: str = "",
        *,
        backoff: Backoff = RETRIES,
        metrics: QueueMetrics | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.name = name
        self._backoff = backoff
        self._metrics = metrics or NoQueueMetrics()
        self._chance = chance
        # What waits, with the time since when: in _ready, or in _active until its worker is done.
        self._dirty: dict[str, float] = {}
        self._ready: Turns[str] = Turns()
        self._active: dict[str, float] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()
        self._shut_down = False

    def __len__(self) -> int:
        """Number of waiting keys, without delayed ones."""
        return len(self._dirty)

    def limit(self, workers: int) -> None:
        """Give out as many keys at a time, besides those that are ``waiting``."""
        self._ready.places = workers

    def add(self, key: str) -> None:
        """Queue ``key`` unless it waits already or the queue is shut down."""
        if self._shut_down or key in self._dirty:
            return
        self._dirty[key] = _now()
        self._metrics.set_depth(self.name, len(self._dirty))
        if key not in self._active:
            self._ready.put(namespace_of(key), key, _family(key))
            self._changed.set()

    def add_after(self, key: str, seconds: float) -> None:
        """Queue ``key`` after a delay, or earlier if that was requested before.

        An ``add`` meanwhile does not undo it.
        """
        if self._shut_down:
            return
        if not seconds > 0:
            self.add(key)
            return
        loop = asyncio.get_running_loop()
        timer = self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._due, key)

    async def get(self) -> str:
        """Wait for a key and take it; ``done`` gives it back.

        Raises QueueShutDownError once the queue is shut down and nothing waits.
        """
        while (key := self._ready.pop()) is None:
            if self._shut_down and not self._dirty:
                raise QueueShutDownError
            self._changed.clear()
            await self._changed.wait()
        self._ready.take(namespace_of(key))
        now = _now()
        self._metrics.observe_wait(self.name, now - self._dirty.pop(key))
        self._metrics.set_depth(self.name, len(self._dirty))
        self._active[key] = now
        return key

    def done(self, key: str) -> None:
        """Give ``key`` back. Raises ValueError if no worker has it."""
        if key not in self._active:
            raise ValueError(f"no worker has {key}")
        self._metrics.observe_work(self.name, _now() - self._active.pop(key))
        self._ready.leave(namespace_of(key))
        if key in self._dirty:
            self._ready.put(namespace_of(key), key, _family(key))
        self._changed.set()

    @contextmanager
    def waiting(self, key: str) -> Iterator[None]:
        """Leave the worker of ``key`` to others meanwhile: another limit bounds this wait."""
        namespace = namespace_of(key)
        self._ready.leave(namespace)
        self._changed.set()
        try:
            yield
        finally:
            self._ready.take(namespace)

    def retry(self, key: str) -> None:
        """Queue ``key`` again after a delay that grows until ``forget``."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        self._metrics.count_retry(self.name)
        self.add_after(key, self._backoff.delay(failures, self._chance()))

    def forget(self, key: str) -> None:
        """Forget the faults of ``key``: its next retry comes after the shortest wait."""
        self._failures.pop(key, None)

    def shutdown(self) -> None:
        """Take no more keys and drop the delayed ones; what waits is still given to workers."""
        self._shut_down = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._changed.set()

    def _due(self, key: str) -> None:
        del self._timers[key]
        self.add(key)


def _family(key: str) -> str:
    """Return what the names of an owner's pods have in common."""
    return key.rpartition("-")[0]


async def work(
    queue: WorkQueue,
    reconcile: Callable[[str], Awaitable[float | None]],
    *,
    workers: int = 1,
    on_error: Callable[[str, Exception], None] | None = None,
) -> None:
    """Reconcile keys until cancelled, or until the queue is shut down and empty.

    ``reconcile`` returns the seconds after which to look again, or None. Its exception is passed to
    ``on_error``, by default the log, and the key is tried again after a growing wait. A key whose
    worker is cancelled goes back into the queue, for the next worker.
    """
    tell = on_error or partial(_log_error, queue.name)
    queue.limit(workers)
    async with asyncio.TaskGroup() as group:
        with suppress(QueueShutDownError):
            while True:
                key = await queue.get()
                group.create_task(_work_on(key, queue, reconcile, tell))
                # A reconcile that never awaits must not block the event loop for all others.
                await asyncio.sleep(0)


async def _work_on(
    key: str,
    queue: WorkQueue,
    reconcile: Callable[[str], Awaitable[float | None]],
    tell: Callable[[str, Exception], None],
) -> None:
    try:
        requeue_after = await reconcile(key)
    except Exception as error:  # noqa: BLE001 - one key's fault, whatever it is
        queue.retry(key)
        tell(key, error)
    except BaseException:
        queue.add(key)
        raise
    else:
        queue.forget(key)
        if requeue_after is not None:
            queue.add_after(key, requeue_after)
    finally:
        queue.done(key)


def _log_error(queue: str, key: str, error: Exception) -> None:
    log = get_logger("workqueue")
    # What the API server says is one line; anything else is a bug, to be found by its traceback.
    if isinstance(error, ApiError):
        log.warning("reconcile failed", queue=queue, key=key, error=str(error))
    else:
        log.error("reconcile failed", queue=queue, key=key, exc_info=error)


def _now() -> float:
    return asyncio.get_running_loop().time()
