"""Stages in which the pods of a version are released, and the annotations that ask for them.

``gates.harbourmaster.dev/stages: 1, 25%, 100%`` on a pod template; no I/O.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise
from typing import Final

from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.gates.metadata import MAX_VALUE, cut
from harbourmaster.gates.release import OURS

STAGES_KEY: Final = f"{OURS}stages"
"""The pods of the version that may be released in each stage: numbers, or percentages."""
STAGE_EVALUATIONS_KEY: Final = f"{OURS}stage-evaluations"
STAGE_TASKS_KEY: Final = f"{OURS}stage-tasks"
STAGE_ANALYSIS_KEY: Final = f"{OURS}stage-analysis"
STAGE_PAUSE_KEY: Final = f"{OURS}stage-pause"
"""The time for which the pods of a stage must have been ready, or MANUAL."""
STAGES_ON_FIRST_KEY: Final = f"{OURS}stages-on-first"
"""With the value ON_FIRST, stages apply where no other version serves, too."""
STAGE_LISTS: Final = (STAGE_EVALUATIONS_KEY, STAGE_TASKS_KEY, STAGE_ANALYSIS_KEY)
"""The annotations that name the checks of a stage."""
STAGE_KEYS: Final = (STAGES_KEY, STAGE_PAUSE_KEY, STAGES_ON_FIRST_KEY, *STAGE_LISTS)
STAGED_LABEL: Final = f"{OURS}staged"
"""On a pod that is released in stages; admission sets it, to STAGED."""
STAGED: Final = "true"
STAGE_KEY: Final = f"{OURS}stage"
"""On a released pod: the number of the stage that released it, from 1."""
PROMOTE_KEY: Final = f"{OURS}promote"
"""On a version: a request by hand for its next stage, ``STAGE/TOKEN``."""
PROMOTE_BY_KEY: Final = f"{OURS}promote-by"
PROMOTE_REASON_KEY: Final = f"{OURS}promote-reason"
MANUAL: Final = "Manual"
ON_FIRST: Final = "true"
MAX_STAGES: Final = 20

_STEP: Final = re.compile(r"([1-9][0-9]{0,8})(%?)")
_ALL: Final = 100
_SHAPE: Final = "write numbers of pods or percentages that grow, for example 1, 25%, 100%"


class Step(Struct, frozen=True, gc=False):
    """The pods that a stage allows, in pods or in per cent of those wanted."""

    number: int
    is_percent: bool

    def __str__(self) -> str:
        return f"{self.number}{'%' if self.is_percent else ''}"


class Stages(Struct, frozen=True):
    """All stages of a version; the last one allows all pods."""

    steps: tuple[Step, ...]
    pause: float | None = 0.0
    """Seconds after which a stage whose pods stay ready is checked; None for MANUAL."""

    def allowance(self, stage: int, wanted: int) -> int:
        """Return how many of the wanted pods may be released in a stage, counted from 1.

        Percentages are rounded up. A stage never allows fewer pods than the one before it.
        """
        if stage >= len(self.steps):
            return wanted
        numbers = (
            -(-wanted * step.number // _ALL) if step.is_percent else step.number
            for step in self.steps[: max(stage, 0)]
        )
        return min(wanted, max(numbers, default=0))

    def next(self, stage: int, wanted: int) -> int | None:
        """Return the next stage that adds pods, the first one after 0; None if none does."""
        allowed = self.allowance(stage, wanted)
        later = range(stage + 1, len(self.steps) + 1)
        return next((number for number in later if self.allowance(number, wanted) > allowed), None)


def parse_stages(stages: str, pause: str = "") -> Stages:
    """Parse the values of STAGES_KEY and STAGE_PAUSE_KEY.

    Raises ValueError with a line of the form ``what is wrong: where: what to do``.
    """
    if not stages.strip():
        raise _fault("no stage")
    if len(stages) > MAX_VALUE:
        raise _fault(f"more than {MAX_VALUE} characters")
    steps = [_parse_step(part.strip(" \t\r\n")) for part in stages.split(",")]
    if steps[-1] != Step(_ALL, is_percent=True):
        steps.append(Step(_ALL, is_percent=True))
    if len(steps) > MAX_STAGES:
        to_do = f"write at most {MAX_STAGES}, the last one of 100% included"
        raise _fault(f"{len(steps)} stages", to_do)
    for is_percent in (False, True):
        alike = [step for step in steps if step.is_percent == is_percent]
        for before, after in pairwise(alike):
            if after.number <= before.number:
                raise _fault(f"stage {after} after {before} adds no pods")
    return Stages(tuple(steps), _parse_pause(pause))


def _parse_step(text: str) -> Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise _fault(f'"{cut(text)}" is not a number of pods or a percentage')
    number, is_percent = int(match[1]), bool(match[2])
    if is_percent and number > _ALL:
        raise _fault(f'"{cut(text)}" is more than all pods')
    return Step(number, is_percent)


def _parse_pause(text: str) -> float | None:
    if text == MANUAL:
        return None
    with suppress(ValueError):
        seconds = parse_duration(text[:MAX_VALUE]) if text else 0.0
        if seconds >= 0:
            return seconds
    to_do = f"write for example 10m, or {MANUAL}"
    raise _fault(f'"{cut(text)}" is not a pause', to_do, STAGE_PAUSE_KEY)


def _fault(wrong: str, to_do: str = _SHAPE, key: str = STAGES_KEY) -> ValueError:
    return ValueError(f"{wrong}: metadata.annotations[{key}]: {to_do}")
