"""Answers a scheduler's question, from bytes to bytes, from the cache of workload versions.

It fails closed: where nothing is known, or we have a defect, no pod of a workload is scheduled, and
nobody is evicted. A pod that says of no workload needs nothing to be known.
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
"""Free, but for nodes on which it failed."""
WAITS: Final = "waits"
FOREIGN: Final = "foreign"
"""Of another scheduler than settings name, and of a workload: nobody sees to its checks."""
UNKNOWN: Final = "unknown"
"""The mirror is not filled, or out of contact."""
MALFORMED: Final = "malformed"
REFUSED: Final = "refused"
"""Too large, too slow or otherwise not read."""
DEFECT: Final = "defect"
OUTCOMES: Final = (FREE, AVOIDING, WAITS, FOREIGN, UNKNOWN, MALFORMED, REFUSED, DEFECT)

NAME: Final = "harbourmaster"
"""Begins what the scheduler shows in its own name."""


class CacheOutdatedError(Exception):
    """What workload versions there are is not known; one line."""


class SchedulerAnswer(Struct, frozen=True, gc=False):
    """What to send, and what it counts as; ``fault`` is for the log, empty for none."""

    body: bytes
    outcome: str
    fault: str = ""


class Answers:
    """Answers from ``versions``; ``deadline`` (seconds), ``scheduler`` as of ``permission``."""

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
        """Which nodes a pod may be placed on (FILTER), or which pods to evict for it (PREEMPT)."""
        try:
            return self._answer(read_filter(body) if verb == FILTER else read_preemption(body))
        except ArgumentsError as error:
            return failed(verb, MALFORMED, str(error))
        except CacheOutdatedError as error:
            return failed(verb, UNKNOWN, str(error))

    def _answer(self, question: FilterQuestion | PreemptionQuestion) -> SchedulerAnswer:
        given = scheduling_permission(
            question.pod,
            self._find,
            deadline=self._deadline,
            now=self._now(),
            scheduler=self.scheduler,
        )
        body = question.answer(given)
        if given.is_foreign:
            return SchedulerAnswer(body, FOREIGN, given.refusal)
        return SchedulerAnswer(
            body, WAITS if given.refusal else AVOIDING if given.avoided else FREE
        )

    def _find(self, key: str) -> WorkloadVersion | None:
        mirror = self._versions
        if not mirror.synced.is_set():
            raise CacheOutdatedError(
                f"workload versions are not cached yet: {mirror.error or 'listing'}"
            )
        if mirror.error is not None:
            # What has changed meanwhile could let a pod go by checks that failed.
            raise CacheOutdatedError(f"workload versions are out of date: {mirror.error}")
        return mirror.store.get(key)


def failed(verb: str, outcome: str, fault: str) -> SchedulerAnswer:
    """The answer by which nothing is scheduled and nobody evicted.

    A scheduler shows the text of a filter's; in a preemption's there is no place for one.
    """
    body = filter_error(f"{NAME}: {fault}") if verb == FILTER else preemption_refused()
    return SchedulerAnswer(body, outcome, fault)
