"""Defines a controller: caches of every replica, and a reconciler that only the leader runs."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from harbourmaster.kube.errors import ApiError, ConflictError
from harbourmaster.kube.workqueue import WorkQueue, work
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer

    Guard = Callable[[Coroutine[Any, Any, Any]], Awaitable[Any]]
    """Awaits a coroutine while this process leads, and cancels it otherwise."""


class Reconciler(Protocol):
    """The work of the leader. It starts from stored objects and keeps no state between terms."""

    def map_changes(self, keys: Iterable[str] | None) -> Iterable[str]:
        """Map changed keys of the caches, or None for all keys, to the keys to reconcile."""

    async def reconcile(self, key: str) -> float | None:
        """Reconcile one key; return ``requeue_after``, the seconds until the next time, or None."""


@runtime_checkable
class Closable(Protocol):
    """A reconciler with tasks of its own besides ``reconcile``."""

    async def close(self) -> None:
        """End these tasks at the end of a term."""


async def run_unguarded(coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
    """Await the coroutine, for a process that needs no leader election."""
    return await coroutine


class Controller:
    """A named controller; ``start`` creates its reconciler, which may add keys to the queue."""

    def __init__(
        self,
        name: str,
        start: Callable[[WorkQueue], Reconciler],
        metrics: ControllerMetrics,
        *,
        workers: int = 1,
        reflectors: Sequence[Reflector[Any]] = (),
    ) -> None:
        self.name = name
        self.reflectors = reflectors
        """The caches that it reads; they call ``enqueue``."""
        self.tracer: Tracer | None = None
        self._start = start
        self._metrics = metrics
        self._workers = workers
        self._queue: WorkQueue | None = None
        self._reconciler: Reconciler | None = None
        self._log = get_logger(name)

    def enqueue(self, keys: Iterable[str] | None) -> None:
        """Queue the keys that these changes affect if this process leads; None stands for all."""
        if self._queue is None or self._reconciler is None:
            return
        for key in self._reconciler.map_changes(keys):
            self._queue.add(key)

    def enqueue_all(self) -> None:
        """Queue all keys if this process leads."""
        self.enqueue(None)

    def unfilled_caches(self) -> str | None:
        """Return the caches that are not filled yet, and why; None if all are filled."""
        missing = [
            f"{reflector.name} ({reflector.error or 'being listed'})"
            for reflector in self.reflectors
            if not reflector.synced.is_set()
        ]
        return f"waiting for {', '.join(missing)}" if missing else None

    async def lead(self, guard: Guard = run_unguarded) -> None:
        """Wait until the caches are filled, then reconcile until cancelled."""
        for reflector in self.reflectors:
            await reflector.synced.wait()
        queue = WorkQueue(self.name, metrics=self._metrics.queues)
        reconciler = self._start(queue)

        def reconcile(key: str) -> Awaitable[float | None]:
            return guard(reconciler.reconcile(key))

        traced = partial(self._trace, self.tracer, reconcile) if self.tracer else reconcile
        self._queue, self._reconciler = queue, reconciler
        try:
            self.enqueue_all()
            await work(queue, traced, workers=self._workers, on_error=self._note_error)
        finally:
            self._queue = self._reconciler = None
            queue.shutdown()
            if isinstance(reconciler, Closable):
                await reconciler.close()

    async def _trace(
        self, tracer: Tracer, reconcile: Callable[[str], Awaitable[float | None]], key: str
    ) -> float | None:
        context = tracer.sample()
        if context is None:
            return await reconcile(key)
        begun, outcome, error = time.time(), "cancelled", ""
        try:
            requeue_after = await reconcile(key)
            outcome = "done"
        except Exception as failure:
            outcome, error = "failed", type(failure).__name__
            raise
        finally:
            attributes = {
                "harbourmaster.controller": self.name,
                "harbourmaster.key": clean(key),
                "harbourmaster.outcome": outcome,
            }
            if error:
                attributes["error.type"] = error
            tracer.record(context, "reconcile", (begun, time.time()), attributes, error=error)
        return requeue_after

    def _note_error(self, key: str, error: Exception) -> None:
        self._metrics.reconcile_errors.labels(self.name, type(error).__name__).inc()
        if isinstance(error, ConflictError):
            # The watch is behind; its next event makes the next attempt succeed.
            self._log.debug("object changed meanwhile", key=key, error=str(error))
        elif isinstance(error, ApiError):
            self._log.warning("reconcile failed", key=key, error=str(error))
        else:
            self._log.error("reconcile failed", key=key, exc_info=error)
