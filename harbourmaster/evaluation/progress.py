"""Progress of an evaluation: it is measured until all objectives are met or retries run out.

All of it is in the object's status, so a restarted controller continues where it stopped.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from harbourmaster.evaluation.model import PENDING, PROGRESSING
from harbourmaster.evaluation.objectives import (
    FAILED,
    SUCCEEDED,
    Result,
    by_result_key,
    is_inconclusive,
    is_still_met,
    judge,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

    from harbourmaster.evaluation.objectives import Objective, Reading


class Progress(Struct, frozen=True, gc=False):
    """How far an evaluation is; ``tries`` are its measurements, ``results`` those of the last."""

    tries: int = 0
    results: dict[str, Result] = {}
    state: str = PENDING

    @property
    def is_over(self) -> bool:
        """Whether the result is final."""
        return self.state in {SUCCEEDED, FAILED}


def max_tries(retries: int) -> int:
    """Measurements before an evaluation fails: at least one."""
    return max(retries, 1)


def measure(
    progress: Progress,
    objectives: Iterable[Objective],
    read: Callable[[Objective], Reading],
    *,
    is_sticky: bool = True,
) -> Progress:
    """One more try.

    Objectives that were met are not read again, whatever their metric is now; without
    ``is_sticky`` all must be met by the same try.
    """
    results = {}
    for key, objective in by_result_key(objectives).items():
        before = progress.results.get(key)
        if is_sticky and before is not None and is_still_met(objective, before):
            results[key] = before
        else:
            results[key] = judge(objective, read(objective))
    is_met = all(result.status == SUCCEEDED for result in results.values())
    return Progress(progress.tries + 1, results, SUCCEEDED if is_met else PROGRESSING)


def fail_after_tries(progress: Progress) -> Progress:
    """The verdict after the last try, one interval later."""
    return msgspec.structs.replace(progress, state=FAILED)


def summarize_unmet(progress: Progress) -> str:
    """What kept an evaluation from succeeding: its last results, the inconclusive ones apart."""
    unmet = {key: each for key, each in progress.results.items() if each.status != SUCCEEDED}
    unjudged = sorted(key for key, each in unmet.items() if is_inconclusive(each))
    failed = sorted(unmet.keys() - set(unjudged))
    parts = (("not met", failed), ("inconclusive", unjudged))
    return "; ".join(f"{word}: {', '.join(keys)}" for word, keys in parts if keys)


def wait_for_definition(progress: Progress, definition: str) -> Progress:
    """Waiting for its definition; this does not count as a try."""
    waiting = Result("", PENDING, f"keptnevaluationdefinition '{definition}' not found")
    return msgspec.structs.replace(progress, results={definition: waiting, **progress.results})


def wait_for_consent(
    progress: Progress, objectives: Iterable[Objective], texts: Mapping[Objective, str]
) -> Progress:
    """Waiting for the consent to references, by objective; this does not count as a try."""
    waiting = {
        key: Result("", PENDING, texts[each])
        for key, each in by_result_key(objectives).items()
        if each in texts
    }
    return msgspec.structs.replace(progress, results={**progress.results, **waiting})


def seconds_left(last: datetime, interval: float, now: datetime) -> float:
    """Seconds until the next look, given the time of the last measurement."""
    return (last + timedelta(seconds=interval) - now).total_seconds()
