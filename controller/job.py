"""One controller: caches that every replica keeps, and a reconciler that only the leader has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from harbourmaster.controller.spans import traced
from harbourmaster.kube.errors import ApiError, ConflictError
from harbourmaster.kube.workqueue import WorkQueue, work
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.telemetry.controller_metrics import ControllerMetrics
    from harbourmaster.telemetry.spans import Tracer


class Reconciler(Protocol):
    """What the leader does. It begins with what is stored, and remembers no earlier term."""

    def due(self, keys: Iterable[str] | None) -> Iterable[str]:
        """What to reconcile when these keys changed in the caches; None for: all of it."""

    async def reconcile(self, key: str) -> float | None:
        """Bring one key to where it should be; seconds until a look that no change asks for."""


@runtime_checkable
class Closes(Protocol):
    """A reconciler that has something under way besides ``reconcile``."""

    async def close(self) -> None:
        """End it, at the end of the term."""


class Guard(Protocol):
    """Awaits a coroutine as long as we lead."""

    def __call__(self, coroutine: Coroutine[Any, Any, Any]) -> Awaitable[Any]:
        """Its result; or it is cancelled."""


async def unguarded(coroutine: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
    """Await the coroutine, for nobody else can lead."""
    return await coroutine


class Job:
    """A controller by name. ``start`` makes its reconciler, which may add keys to the queue."""

    def __init__(
        self,
        name: str,
        start: Callable[[WorkQueue], Reconciler],
        metrics: ControllerMetrics,
        *,
        workers: int = 1,
    ) -> None:
        self.name = name
        self.reflectors: Sequence[Reflector[Any]] = ()
        """The caches that it reads; they tell ``changed``."""
        self.tracer: Tracer | None = None
        self._start = start
        self._metrics = metrics
        self._workers = workers
        self._queue: WorkQueue | None = None
        self._reconciler: Reconciler | None = None
        self._log = get_logger(name)

    def changed(self, keys: Iterable[str]) -> None:
        """Take note of changes in a cache; nothing where we do not lead."""
        if self._queue is None or self._reconciler is None:
            return
        for key in self._reconciler.due(keys):
            self._queue.add(key)

    def changed_all(self) -> None:
        """Have everything looked at, where we lead: what all of it depends on has changed."""
        if self._queue is not None and self._reconciler is not None:
            for key in self._reconciler.due(None):
                self._queue.add(key)

    def waiting_for(self) -> str | None:
        """The caches that are not filled yet, and why; None when all are."""
        missing = [
            f"{each.name} ({each.error or 'being listed'})"
            for each in self.reflectors
            if not each.synced.is_set()
        ]
        return f"waiting for {', '.join(missing)}" if missing else None

    async def lead(self, guard: Guard = unguarded) -> None:
        """Reconcile until cancelled, from the moment at which the caches are filled."""
        for reflector in self.reflectors:
            await reflector.synced.wait()
        queue = WorkQueue(self.name, metrics=self._metrics.queues)
        reconciler = self._start(queue)

        async def reconcile(key: str) -> float | None:
            wait: float | None = await guard(reconciler.reconcile(key))
            return wait

        self._queue, self._reconciler = queue, reconciler
        try:
            for key in reconciler.due(None):
                queue.add(key)
            await work(
                queue,
                traced(self.name, reconcile, self.tracer),
                workers=self._workers,
                on_error=self._note_error,
            )
        finally:
            self._queue = self._reconciler = None
            queue.shutdown()
            if isinstance(reconciler, Closes):
                await reconciler.close()

    def _note_error(self, key: str, error: Exception) -> None:
        self._metrics.reconcile_errors.labels(self.name, type(error).__name__).inc()
        if isinstance(error, ConflictError):
            # The watch is behind; it brings what the next attempt needs.
            self._log.debug("changed meanwhile", key=key, error=str(error))
        elif isinstance(error, ApiError):
            self._log.warning("reconcile failed", key=key, error=str(error))
        else:
            self._log.error("reconcile failed", key=key, exc_info=error)
