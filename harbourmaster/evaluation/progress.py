"""The progress of an evaluation, which is measured until it succeeds or its retries run out.

All of it is in the status of the object, so that a restarted controller continues.
"""

from __future__ import annotations

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

    from harbourmaster.evaluation.objectives import Objective, Reading


class Progress(Struct, frozen=True, gc=False):
    """The number of measurements of an evaluation, and the results of the last one."""

    tries: int = 0
    results: dict[str, Result] = {}
    state: str = PENDING

    @property
    def is_over(self) -> bool:
        """Whether the state is final."""
        return self.state in {SUCCEEDED, FAILED}


def max_tries(retries: int) -> int:
    """Return the number of measurements after which an evaluation fails, at least 1."""
    return max(retries, 1)


def measure(
    progress: Progress,
    objectives: Iterable[Objective],
    read: Callable[[Objective], Reading],
    *,
    is_sticky: bool = True,
) -> Progress:
    """Return the progress after another measurement.

    Objectives that were met are not read again, unless ``is_sticky`` is false: then one measurement
    must meet all.
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
    """Return the failed progress, one interval after the last measurement."""
    return msgspec.structs.replace(progress, state=FAILED)


def summarize_unmet(progress: Progress) -> str:
    """Return a text with the objectives that are not met, and those without a usable value."""
    unmet = {key: result for key, result in progress.results.items() if result.status != SUCCEEDED}
    inconclusive = sorted(key for key, result in unmet.items() if is_inconclusive(result))
    failed = sorted(unmet.keys() - set(inconclusive))
    parts = (("not met", failed), ("inconclusive", inconclusive))
    return "; ".join(f"{word}: {', '.join(keys)}" for word, keys in parts if keys)


def wait_for_definition(progress: Progress, definition: str) -> Progress:
    """Return the progress while the definition is missing, which is not a measurement."""
    waiting = Result("", PENDING, f"keptnevaluationdefinition '{definition}' not found")
    return msgspec.structs.replace(progress, results={definition: waiting, **progress.results})


def wait_for_consent(
    progress: Progress, objectives: Iterable[Objective], texts: Mapping[Objective, str]
) -> Progress:
    """Return the progress while references lack consent, which is not a measurement.

    ``texts`` has the refusal of each objective.
    """
    waiting = {
        key: Result("", PENDING, texts[objective])
        for key, objective in by_result_key(objectives).items()
        if objective in texts
    }
    return msgspec.structs.replace(progress, results={**progress.results, **waiting})
