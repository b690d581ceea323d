"""Moves a version through its stages: how many of its pods may be released, and what comes next.

A stage is complete when its pods have been ready for the pause. Then its checks run once, all at
the same time, and the next stage begins. A failed stage is held until a person promotes it or
another version takes its place.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.gates.stages import (
    PROMOTE_BY_KEY,
    PROMOTE_KEY,
    PROMOTE_REASON_KEY,
    Stages,
    parse_stages,
)
from harbourmaster.lifecycle.model import (
    COMPLETED,
    DEPRECATED,
    FAILED,
    PROGRESSING,
    SUCCEEDED,
    WARNING,
    StageResult,
    StageStatus,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.phases import stage_phases
from harbourmaster.lifecycle.steps import PhaseNotice, Step

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from harbourmaster.lifecycle.model import WorkloadVersion
    from harbourmaster.lifecycle.phases import Phase
    from harbourmaster.lifecycle.steps import Inputs, Rules, StagedPods

    RunChecks = Callable[[Phase, WorkloadVersionStatus], Step]

RELEASING: Final = "Releasing"
"""Pods are released, and not all of them are ready."""
PAUSED: Final = "Paused"
"""All pods of the stage are ready, and the pause has not ended."""
CHECKING: Final = "Checking"
HELD: Final = "Held"
"""The stage has failed."""
COMPLETE: Final = "Completed"
SKIPPED: Final = "Skipped"
"""No other version served when this one began."""
REFUSED: Final = "Refused"
"""The stages cannot be read, or do not apply to the owner of the pods."""
OVER: Final = frozenset((COMPLETE, SKIPPED, REFUSED))
"""The states in which all pods are released."""
PHASE: Final = "WorkloadStage"
_PASSED: Final = "Passed"
_PROMOTED: Final = "Promoted"
_NO_ITEMS: Final = {phase.items: () for phase in stage_phases(0)}
NO_STAGE: Final = {"stage": None, **_NO_ITEMS}
"""The fields of a version that begins, or begins again."""


def is_staging(version: WorkloadVersion) -> bool:
    """Whether the number of pods that may be released is limited by stages."""
    status, stage = version.status, version.status.stage
    is_over = status.deployment_status == SUCCEEDED or (stage is not None and stage.state in OVER)
    return bool(version.spec.stages) and not is_over


def pods_allowed(version: WorkloadVersion, wanted: int | None) -> int | None:
    """Return how many pods of the version may be released in all; None for all of them.

    A stage that is held allows no more than it had released, however many pods are wanted. A
    superseded version releases none.
    """
    stage = version.status.stage
    if not is_staging(version):
        return None
    if stage is None or version.status.status == DEPRECATED:
        return 0
    stages = _read(version)
    if stage.state == HELD or wanted is None or stages is None or stage.of != len(stages.steps):
        return stage.allowed
    return stages.allowance(stage.number, wanted)


def advance_stages(
    version: WorkloadVersion, inputs: Inputs, rules: Rules, now: datetime, run: RunChecks
) -> Step:
    """Bring a version as far as its stages go: its Step succeeds when all pods may be released.

    ``run`` follows the checks of a phase. The state of the Step is never Failed: a failed stage is
    held.
    """
    if inputs.pods is None:
        return Step(status=version.status, state=PROGRESSING, needs_look=True)
    notices: list[PhaseNotice] = []
    while True:
        step = _advance_once(version, inputs.pods, rules, now, run)
        notices += step.notices
        status = step.status
        if (
            step.creations
            or step.state == SUCCEEDED
            or not isinstance(status, WorkloadVersionStatus)
            or status.stage == version.status.stage
        ):
            return replace(step, notices=tuple(notices))
        version = replace(version, status=status)


def _advance_once(
    version: WorkloadVersion, pods: StagedPods, rules: Rules, now: datetime, run: RunChecks
) -> Step:
    status = version.status
    stage = status.stage
    if stage is None:
        return _begin(version, pods, rules, now)
    if stage.state in OVER:
        return Step(status=status, state=SUCCEEDED)
    stages = _read(version)
    if not pods.wanted or stages is None:
        # Its owner has not observed its newest template, is scaled to zero, or has another text by
        # now that cannot be read. No event comes if it works for another workload for good.
        return Step(status=status, state=PROGRESSING, requeue_after=rules.observability_timeout)
    if stage.of != len(stages.steps):
        return _enter(status, stage, stages, pods, now, _last_within(stages, stage.allowed, pods))
    if promotion := _promotion(version, stage):
        return _promote(version, stage, stages, pods, promotion, now)
    if stage.state == CHECKING:
        return _check(version, stage, stages, pods, now, run)
    ready = moment(pods.ready_since) if _is_complete(stage, stages, pods) else None
    if stage.state == HELD and (ready is None or _has_failed(stage)):
        return Step(status=status, state=PROGRESSING)
    if stage.state == HELD or (stage.state == PAUSED and ready is None):
        return _change(status, pods, now, state=RELEASING, message="")
    if ready is not None:
        return _pause(status, stage, pods, stages.pause, ready, now)
    return _await_pods(status, stage, stages, pods, rules, now)


def _has_failed(stage: StageStatus) -> bool:
    """Whether the stage is held for a check, and not for pods that may still get ready."""
    return bool(stage.results) and stage.results[-1].number == stage.number


def _last_within(stages: Stages, allowed: int, pods: StagedPods) -> int:
    """Return the last stage that allows no more pods, for a new template of the same version."""
    numbers = range(len(stages.steps), 0, -1)
    wanted = pods.wanted or 0
    return next((number for number in numbers if stages.allowance(number, wanted) <= allowed), 1)


def _is_complete(stage: StageStatus, stages: Stages, pods: StagedPods) -> bool:
    """Whether all pods of the stage are released."""
    allowed = stages.allowance(stage.number, pods.wanted or 0)
    return pods.released >= (min(allowed, stage.allowed) if stage.state == HELD else allowed)


def _pause(
    status: WorkloadVersionStatus,
    stage: StageStatus,
    pods: StagedPods,
    pause: float | None,
    ready: datetime,
    now: datetime,
) -> Step:
    """Wait until the pods have been ready for the pause, forever if it is None."""
    left = None
    if pause is not None:
        left = (ready + timedelta(seconds=pause) - now).total_seconds()
        if left <= 0:
            return _change(status, pods, now, state=CHECKING)
    if stage.state != PAUSED:
        return _change(status, pods, now, state=PAUSED)
    return Step(status=status, state=PROGRESSING, requeue_after=left)


def _begin(version: WorkloadVersion, pods: StagedPods, rules: Rules, now: datetime) -> Step:
    """Begin with the first stage, or release all pods where stages do not apply."""
    status, refusal = version.status, pods.refusal
    stages = Stages(())
    try:
        stages = parse_stages(version.spec.stages, version.spec.stage_pause)
    except ValueError as error:
        refusal = str(error)
    if refusal:
        step = _change(status, pods, now, state=REFUSED, message=refusal)
        text = f"all pods are released at once: {refusal}"
        return replace(step, notices=(PhaseNotice(phase=PHASE, state="Refused", text=text),))
    if not pods.wanted:
        # An owner that is scaled to zero is deployed as without stages.
        state = PROGRESSING if pods.wanted is None else SUCCEEDED
        return Step(status=status, state=state, requeue_after=rules.observability_timeout)
    if not (pods.are_others_serving or version.spec.stages_on_first):
        return _change(status, pods, now, state=SKIPPED)
    first = stages.next(0, pods.wanted) or 1
    # A request that was carried out before the version was superseded is spent.
    _, token = _promotion(version, StageStatus()) or (0, "")
    return _enter(status, StageStatus(token=token), stages, pods, now, first)


def _enter(
    status: WorkloadVersionStatus,
    stage: StageStatus,
    stages: Stages,
    pods: StagedPods,
    now: datetime,
    number: int,
) -> Step:
    """Begin with a stage, or end them if that number is higher than the last."""
    stage, wanted = replace(stage, of=len(stages.steps)), pods.wanted or 0
    status = replace(status, stage=stage, **_NO_ITEMS)
    if number > stage.of:
        return _change(status, pods, now, state=COMPLETE, message="")
    allowed = stages.allowance(number, wanted)
    text = f"stage {number} of {stage.of}: {allowed} of {wanted} pods"
    step = _change(status, pods, now, number=number, state=RELEASING, message="", allowed=allowed)
    return replace(step, notices=(PhaseNotice(phase=PHASE, state="Started", text=text),))


def _await_pods(
    status: WorkloadVersionStatus,
    stage: StageStatus,
    stages: Stages,
    pods: StagedPods,
    rules: Rules,
    now: datetime,
) -> Step:
    """Hold a stage of which no pod became ready for the time in which a deployment must be done."""
    began = max(moment(stage.since) or now, moment(pods.progressed) or moment(stage.since) or now)
    left = (began + timedelta(seconds=rules.observability_timeout) - now).total_seconds()
    if left > 0:
        return Step(status=status, state=PROGRESSING, requeue_after=left)
    text = f"its pods are not ready after {rules.observability_timeout:g} s"
    allowed = stages.allowance(stage.number, pods.wanted or 0)
    return _hold(status, stage, pods, text, allowed, now)


def _hold(
    status: WorkloadVersionStatus,
    stage: StageStatus,
    pods: StagedPods,
    text: str,
    allowed: int,
    now: datetime,
) -> Step:
    status = replace(status, stage=stage)
    step = _change(status, pods, now, state=HELD, message=text, allowed=allowed)
    text = f"stage {stage.number} of {stage.of} is held: {text}"
    return replace(step, notices=(PhaseNotice(phase=PHASE, state="Held", text=text),))


def _check(
    version: WorkloadVersion,
    stage: StageStatus,
    stages: Stages,
    pods: StagedPods,
    now: datetime,
    run: RunChecks,
) -> Step:
    """Follow the checks of a stage, which has passed when all of them have."""
    status = version.status
    notices: list[PhaseNotice] = []
    steps = []
    for phase in stage_phases(stage.number):
        steps.append(run(phase, status))
        fields = {phase.items: getattr(steps[-1].status, phase.items)}
        status = replace(status, **fields)
        notices += steps[-1].notices
    creations = tuple(creation for step in steps for creation in step.creations)
    states = {step.state for step in steps}
    if FAILED in states and states <= COMPLETED:
        failed = [
            f"{phase.kind.removeprefix('Keptn').lower()} {item.definition_name}"
            for phase in stage_phases(stage.number)
            for item in getattr(status, phase.items)
            if item.status == FAILED
        ]
        text = f"{', '.join(failed)} failed"
        # A pod that is being replaced keeps its room. Those that the owner wanted later have none.
        allowance = stages.allowance(stage.number, pods.wanted or 0)
        allowed = max(pods.released, min(stage.released, allowance))
        stage = _with_result(stage, FAILED, pods, now, text)
        held = _hold(status, stage, pods, text, allowed, now)
        return replace(held, notices=(*notices, *held.notices))
    if not states <= COMPLETED:
        return Step(status=status, state=PROGRESSING, notices=tuple(notices), creations=creations)
    result = WARNING if WARNING in states else _PASSED
    stage = _with_result(stage, result, pods, now, "")
    number, wanted = stage.number, pods.wanted or 0
    text = f"stage {number} of {stage.of} has passed with {pods.released} pods"
    notices.append(PhaseNotice(phase=PHASE, state="Finished", text=text))
    following = stages.next(number, wanted) or len(stages.steps) + 1
    step = _enter(status, stage, stages, pods, now, following)
    return replace(step, notices=(*notices, *step.notices))


def _promotion(version: WorkloadVersion, stage: StageStatus) -> tuple[int, str] | None:
    """Return the stage that a person releases and the token of the request, unless it is spent."""
    notes = version.metadata.annotations
    number, _, token = notes.get(PROMOTE_KEY, "").partition("/")
    is_request = bool(notes.get(PROMOTE_BY_KEY)) and number.isdecimal() and bool(token)
    return (int(number), token) if is_request and token != stage.token else None


def _promote(
    version: WorkloadVersion,
    stage: StageStatus,
    stages: Stages,
    pods: StagedPods,
    promotion: tuple[int, str],
    now: datetime,
) -> Step:
    number, token = promotion
    stage = replace(stage, token=token)
    if number <= stage.number:
        return Step(status=replace(version.status, stage=stage), state=PROGRESSING)
    notes = version.metadata.annotations
    why = notes.get(PROMOTE_REASON_KEY) or "no reason is given"
    text = f"stage {stage.number} of {stage.of} was ended by {notes[PROMOTE_BY_KEY]}: {why}"
    following = stages.next(stage.number, pods.wanted or 0) or len(stages.steps) + 1
    stage, number = _with_result(stage, _PROMOTED, pods, now, text), max(number, following)
    step = _enter(version.status, stage, stages, pods, now, number)
    notice = PhaseNotice(phase=PHASE, state="Promoted", text=text)
    return replace(step, notices=(notice, *step.notices))


def _with_result(
    stage: StageStatus, state: str, pods: StagedPods, now: datetime, message: str
) -> StageStatus:
    result = StageResult(
        number=stage.number,
        state=state,
        end_time=format_rfc3339(now),
        released=pods.released,
        message=message,
    )
    return replace(stage, results=(*stage.results, result))


def _change(
    status: WorkloadVersionStatus, pods: StagedPods, now: datetime, **fields: object
) -> Step:
    """Return the Step with a changed stage, and the numbers of pods at this time."""
    stage = replace(
        status.stage or StageStatus(),
        since=format_rfc3339(now),
        wanted=pods.wanted or 0,
        released=pods.released,
        **fields,
    )
    state = SUCCEEDED if stage.state in OVER else PROGRESSING
    return Step(status=replace(status, stage=stage), state=state)


def _read(version: WorkloadVersion) -> Stages | None:
    """Return the stages of a version, or None if they cannot be read any more."""
    with suppress(ValueError):
        return parse_stages(version.spec.stages, version.spec.stage_pause)
    return None
