"""Brings applications to the clusters that the scheduler chose: the shell around the rollout (7.5).

Every pass does what ``harbourmaster.placement.rollout`` says next until that is to rest. A pass
never waits for an end: deletions, readiness, clusters that return and objects that others change
wake it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.controller.placement.context import BY_CLUSTER, BY_UID
from harbourmaster.controller.placement.session import BusyError
from harbourmaster.controller.placement.turn import Memory, Turn
from harbourmaster.kube.errors import NotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harbourmaster.controller.placement.context import DeploymentContext
    from harbourmaster.placement.rollout import Rest

_AGAIN: Final = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds until the next attempt at what has failed or is not done yet."""
_BUSY: Final = 5.0


class Deployer:
    """Reconciles one Application; keys are ``namespace/name``; ``wake`` has one looked at again."""

    def __init__(self, context: DeploymentContext, wake: Callable[[str], None]) -> None:
        self._context = context
        self._wake = wake
        self._applications = context.caches.applications.store
        self._replaced: dict[str, frozenset[str]] = {}
        """The versions that our writes have replaced, until the watch shows a later one."""
        self._memories: dict[str, Memory] = {}

    def due(self, keys: Iterable[str] | None) -> Iterable[str]:
        """All: what is to be done stands in no single field."""
        return list(self._applications.keys()) if keys is None else keys

    def of_cluster(self, key: str) -> Iterator[str]:
        """The applications that a change of a cluster matters to."""
        return (each.metadata.key for each in self._applications.by_index(BY_CLUSTER, key))

    def of_objects(self, uids: Iterable[str]) -> Iterator[str]:
        """The applications of these uids: their objects changed."""
        for uid in uids:
            for each in self._applications.by_index(BY_UID, uid):
                yield each.metadata.key

    async def reconcile(self, key: str) -> float | None:
        """Bring one application on its way. Raises ApiError of the management cluster."""
        found = self._applications.get(key)
        if found is None:
            self._memories.pop(key, None)
            self._replaced.pop(key, None)
            return None
        if found.metadata.resource_version in self._replaced.get(key, ()):
            return None
        memory = self._memories.get(key)
        if memory is None or memory.uid != found.metadata.uid:
            memory = self._memories[key] = Memory(found.metadata.uid)
        turn = Turn(self._context, found, memory, wake=lambda: self._wake(key))
        try:
            rest = await turn.run()
        except BusyError:
            # Who leaves there wakes us; this is for the case that nobody does.
            return _BUSY
        except NotFoundError:
            # It went meanwhile, and the watch is about to tell.
            return None
        finally:
            self._replaced[key] = frozenset(turn.book.replaced)
        return self._wait(rest, turn, memory)

    def _wait(self, rest: Rest, turn: Turn, memory: Memory) -> float | None:
        """Seconds until a look that no change asks for."""
        if not turn.is_unfinished:
            memory.attempts = 0
            return memory.seconds_left(turn.now, rest.until)
        seconds = _AGAIN[min(memory.attempts, len(_AGAIN) - 1)]
        memory.attempts += 1
        left = rest.until - turn.now
        return min(seconds, left) if left > 0 else seconds
