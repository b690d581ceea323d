"""Stages in which the pods of a version are released, and the annotations that ask for them.

``gates.harbourmaster.dev/stages: 1, 25%, 100%`` on a pod template; no I/O.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Final

from msgspec import Struct

from harbourmaster.api.durations import parse_duration
from harbourmaster.gates.metadata import cut, limit_value
from harbourmaster.gates.release import OURS

STAGES_KEY: Final = f"{OURS}stages"
"""The pods of the version that may be released in each stage: numbers, or percentages."""
STAGE_EVALUATIONS_KEY: Final = f"{OURS}stage-evaluations"
STAGE_TASKS_KEY: Final = f"{OURS}stage-tasks"
STAGE_ANALYSIS_KEY: Final = f"{OURS}stage-analysis"
STAGE_PAUSE_KEY: Final = f"{OURS}stage-pause"
"""The time for which the pods of a stage must have been ready: a duration, or MANUAL."""
STAGES_ON_FIRST_KEY: Final = f"{OURS}stages-on-first"
"""With the value "true", stages apply where no other version serves, too."""
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
MAX_STAGES: Final = 20

_STEP: Final = re.compile(r"([1-9][0-9]{0,8})|([1-9][0-9]?|100)%")
_SHAPE: Final = "write numbers of pods or percentages that grow, for example 1, 25%, 100%"
_ALL: Final = "100%"


class Step(Struct, frozen=True, gc=False):
    """The pods that a stage allows, in pods or in per cent of those wanted."""

    number: int
    is_percent: bool


class Stages(Struct, frozen=True):
    """All stages of a version; the last one allows all pods."""

    steps: tuple[Step, ...]
    pause: float | None = 0.0
    """Seconds after which a stage whose pods stay ready is checked; None for MANUAL."""

    def allowance(self, stage: int, wanted: int) -> int:
        """Return how many of the wanted pods may be released in a stage, counted from 1.

        Percentages are rounded up. A stage never allows fewer pods than the one before it.
        """
        numbers = (
            -(-wanted * step.number // 100) if step.is_percent else step.number
            for step in self.steps[:stage]
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
    parts = [part.strip(" \t\r\n") for part in limit_value(stages).split(",")]
    if parts[-1] != _ALL:
        parts.append(_ALL)
    if len(parts) > MAX_STAGES:
        raise _fault(f"{len(parts)} stages", f"write at most {MAX_STAGES}, {_ALL} included")
    steps: list[Step] = []
    for part in parts:
        match = _STEP.fullmatch(part)
        if match is None:
            raise _fault(f'"{cut(part)}" is not a number of pods or a percentage')
        step = Step(int(match[1] or match[2]), match[1] is None)
        before = (earlier.number for earlier in steps if earlier.is_percent == step.is_percent)
        if max(before, default=0) >= step.number:
            raise _fault(f"stage {part} adds no pods to those before it")
        steps.append(step)
    return Stages(tuple(steps), _parse_pause(pause))


def _parse_pause(text: str) -> float | None:
    if text == MANUAL:
        return None
    with suppress(ValueError):
        seconds = parse_duration(limit_value(text)) if text else 0.0
        if seconds >= 0:
            return seconds
    to_do = f"write for example 10m, or {MANUAL}"
    raise _fault(f'"{cut(text)}" is not a pause', to_do, STAGE_PAUSE_KEY)


def _fault(wrong: str, to_do: str = _SHAPE, key: str = STAGES_KEY) -> ValueError:
    return ValueError(f"{wrong}: metadata.annotations[{key}]: {to_do}")
