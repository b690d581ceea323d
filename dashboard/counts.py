"""How many pods each policy selects: by the matcher of admission, over the pods that are there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from harbourmaster.dashboard.world import MatchCounts
from harbourmaster.policies.index import policy_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from harbourmaster.dashboard.world import LabelledPod
    from harbourmaster.policies.compiled import CompiledPolicy

SLICE: Final = 500
"""Pods that are matched in one go; others have their turn after each."""
HELD: Final = 2.0
"""Seconds for which counts are given again though something has changed."""


class Counter:
    """Counts when somebody wants to know, and not again until something has changed."""

    def __init__(
        self,
        policies: Callable[[], Iterable[CompiledPolicy]],
        pods: Callable[[], Iterable[LabelledPod]],
        namespace: Callable[[str], Mapping[str, str] | None],
        is_whole: Callable[[], bool] = lambda: True,
    ) -> None:
        """``namespace`` gives its labels; ``is_whole`` whether all of it is known."""
        self._is_whole = is_whole
        self._policies = policies
        self._pods = pods
        self._namespace = namespace
        self._counts = MatchCounts()
        self._is_outdated = True
        self._good_until = 0.0
        self._counting = asyncio.Lock()

    def outdate(self) -> None:
        """Pods, policies or namespaces have changed."""
        self._is_outdated = True

    async def counts(self) -> MatchCounts:
        """What was counted last, or is now."""
        async with self._counting:
            clock = asyncio.get_running_loop().time
            is_due = self._is_outdated and clock() >= self._good_until
            if is_due or not self._counts.is_whole:
                self._is_outdated = False
                try:
                    self._counts = await self._count()
                except BaseException:
                    # Who asked has gone away: whoever comes next counts again.
                    self._is_outdated = True
                    raise
                self._good_until = clock() + HELD
            return self._counts

    async def _count(self) -> MatchCounts:
        is_whole = self._is_whole()
        chosen = policy_set(self._policies())
        by_policy: dict[str, dict[str, int]] = {}
        pods: dict[str, int] = {}
        for number, pod in enumerate(tuple(self._pods()), 1):
            space = pod.namespace
            pods[space] = pods.get(space, 0) + 1
            for policy in chosen.match(space, self._namespace(space) or {}, pod.labels):
                counts = by_policy.setdefault(policy.reference, {})
                counts[space] = counts.get(space, 0) + 1
            if not number % SLICE:
                await asyncio.sleep(0)
        return MatchCounts(by_policy, pods, is_whole)
