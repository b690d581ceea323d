"""Answers requests of a scheduler, from bytes to bytes, from the cache of workload versions.

Answers fail closed: without a current cache, or after an internal error, no pod of a workload is
scheduled and no pod is evicted. A pod without a workload does not need the cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.lifecycle.extender import (
    ArgumentsError,
    filter_error,
    preemption_refused,
    read_filter,
    read_preemption,
)
from harbourmaster.lifecycle.scheduling import scheduling_permission

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.lifecycle.extender import FilterQuestion, PreemptionQuestion
    from harbourmaster.lifecycle.model import WorkloadVersion

FILTER: Final = "filter"
PREEMPT: Final = "preempt"
VERBS: Final = (FILTER, PREEMPT)

FREE: Final = "free"
AVOIDING: Final = "avoiding"
"""The pod can be scheduled, except on nodes on which it failed."""
WAITS: Final = "waits"
FOREIGN: Final = "foreign"
"""The pod of a workload has another scheduler than the settings; its checks do not run."""
UNKNOWN: Final = "unknown"
"""The cache is not filled, or its watch is disconnected."""
MALFORMED: Final = "malformed"
REFUSED: Final = "refused"
"""The request was too large, too slow or otherwise not read."""
DEFECT: Final = "defect"
OUTCOMES: Final = (FREE, AVOIDING, WAITS, FOREIGN, UNKNOWN, MALFORMED, REFUSED, DEFECT)

NAME: Final = "harbourmaster"
"""The prefix of texts that the scheduler shows as its own."""


class CacheOutdatedError(Exception):
    """The cache of workload versions is not current; the text is one line."""


class SchedulerAnswer(Struct, frozen=True, gc=False):
    """The body of an answer and its outcome; ``fault`` is for the log, empty without one."""

    body: bytes
    outcome: str
    fault: str = ""


class Answers:
    """Answers from ``versions``.

    ``deadline`` (seconds) and ``scheduler`` are those of ``scheduling_permission``.
    """

    def __init__(
        self,
        versions: Reflector[WorkloadVersion],
        *,
        deadline: float,
        now: Callable[[], datetime],
        scheduler: str = "",
    ) -> None:
        self.scheduler = scheduler
        self._versions = versions
        self._deadline = deadline
        self._now = now

    def answer(self, verb: str, body: bytes) -> SchedulerAnswer:
        """Select the nodes for a pod (FILTER), or the pods to evict for it (PREEMPT)."""
        try:
            return self._answer(read_filter(body) if verb == FILTER else read_preemption(body))
        except ArgumentsError as error:
            return refuse(verb, MALFORMED, str(error))
        except CacheOutdatedError as error:
            return refuse(verb, UNKNOWN, str(error))

    def _answer(self, question: FilterQuestion | PreemptionQuestion) -> SchedulerAnswer:
        permission = scheduling_permission(
            question.pod,
            self._find,
            deadline=self._deadline,
            now=self._now(),
            scheduler=self.scheduler,
        )
        body = question.answer(permission)
        if permission.is_foreign:
            return SchedulerAnswer(body, FOREIGN, permission.refusal)
        return SchedulerAnswer(
            body, WAITS if permission.refusal else AVOIDING if permission.avoided else FREE
        )

    def _find(self, key: str) -> WorkloadVersion | None:
        cache = self._versions
        if not cache.synced.is_set():
            raise CacheOutdatedError(
                f"workload versions are not cached yet: {cache.error or 'listing'}"
            )
        if cache.error is not None:
            # A pod must not be released by checks that have failed meanwhile.
            raise CacheOutdatedError(f"workload versions are out of date: {cache.error}")
        return cache.store.get(key)


def refuse(verb: str, outcome: str, fault: str) -> SchedulerAnswer:
    """Return an answer that schedules nothing and evicts nothing.

    Only a filter's answer has a text, which the scheduler shows.
    """
    body = filter_error(f"{NAME}: {fault}") if verb == FILTER else preemption_refused()
    return SchedulerAnswer(body, outcome, fault)
