"""Moves a version through its stages: how many of its pods may be released, and what comes next.

A stage is complete when its pods have been ready for the pause. Then its checks run once, all at
the same time, and the next stage begins. A failed stage is held until a person promotes it or
another version takes its place.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

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

    from harbourmaster.lifecycle.model import ItemStatus, WorkloadVersion
    from harbourmaster.lifecycle.phases import Phase
    from harbourmaster.lifecycle.steps import Creation, Inputs, Rules, StagedPods

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
_REQUEST: Final = re.compile(r"([0-9]{1,3})/(.{1,100})", re.ASCII)
_MAX_REASON: Final = 1000
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
    stages, complaint = _read(version)
    is_other = bool(complaint) or stage.of != len(stages.steps)
    if stage.state == HELD or wanted is None or is_other:
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
        step = _Pass(version, *_read(version), inputs.pods, rules, now, run).advance()
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


class _Pass(NamedTuple):
    """One step of a version, and what decides on it."""

    version: WorkloadVersion
    stages: Stages
    complaint: str
    """Why the stages cannot be read, if so."""
    pods: StagedPods
    rules: Rules
    now: datetime
    run: RunChecks

    @property
    def stage(self) -> StageStatus:
        """The current stage; an empty one before the first."""
        return self.version.status.stage or StageStatus()

    @property
    def allowance(self) -> int:
        """The pods that the stage allows of those that are wanted now."""
        return self.stages.allowance(self.stage.number, self.pods.wanted or 0)

    @property
    def following(self) -> int:
        """The next stage that adds pods; more than there are if none does."""
        after = self.stages.next(self.stage.number, self.pods.wanted or 0)
        return after or len(self.stages.steps) + 1

    def advance(self) -> Step:
        """Bring the version into its next state, or wait for that."""
        stage, pods = self.stage, self.pods
        if self.version.status.stage is None:
            return self.begin()
        if stage.state in OVER:
            return Step(status=self.version.status, state=SUCCEEDED)
        if self.complaint and stage.state != HELD:
            return self.hold(self.complaint, stage.allowed)
        if self.complaint or not pods.wanted:
            # Its owner has not observed its newest template, or is scaled to zero. No event comes
            # if it works for another workload for good.
            return self.wait(self.rules.observability_timeout)
        if stage.of != len(self.stages.steps):
            return self.renumber()
        if promotion := _promotion(self.version, stage):
            return self.promote(*promotion)
        if stage.state == CHECKING:
            return self.check()
        return self.follow_pods()

    def renumber(self) -> Step:
        """Begin again with the last stage that allows no more pods, after a new template."""
        numbers, wanted = range(len(self.stages.steps), 0, -1), self.pods.wanted or 0
        sizes = ((number, self.stages.allowance(number, wanted)) for number in numbers)
        number = next((number for number, size in sizes if size <= self.stage.allowed), 1)
        return self.enter(self.stage, number)

    def follow_pods(self) -> Step:
        """Follow the released pods until all of a stage are ready for its pause."""
        stage, pods = self.stage, self.pods
        most = min(self.allowance, stage.allowed) if stage.state == HELD else self.allowance
        ready = moment(pods.ready_since) if pods.released >= most else None
        if stage.state == HELD:
            has_failed = stage.results and stage.results[-1].number == stage.number
            if has_failed or ready is None:
                return self.wait()
            return self.change(stage, state=RELEASING, message="")
        if ready is not None:
            return self.pause(ready)
        if stage.state == PAUSED:
            return self.change(stage, state=RELEASING)
        return self.await_pods()

    def begin(self) -> Step:
        """Begin with the first stage, or release all pods where stages do not apply."""
        stage, pods = self.stage, self.pods
        if refusal := self.complaint or pods.refusal:
            notice = _notice("Refused", f"all pods are released at once: {refusal}")
            return self.change(stage, notice, state=REFUSED, message=refusal)
        if not pods.wanted:
            # An owner that is scaled to zero is deployed as without stages.
            state = PROGRESSING if pods.wanted is None else SUCCEEDED
            return replace(self.wait(self.rules.observability_timeout), state=state)
        if not (pods.are_others_serving or self.version.spec.stages_on_first):
            return self.change(stage, state=SKIPPED)
        # A request that was carried out before the version was superseded is spent.
        _, token = _promotion(self.version, stage) or (0, "")
        return self.enter(replace(stage, token=token), self.following)

    def enter(self, stage: StageStatus, number: int, *notices: PhaseNotice) -> Step:
        """Begin with a stage, or end them if that number is higher than the last."""
        stage, wanted = replace(stage, of=len(self.stages.steps), message=""), self.pods.wanted or 0
        if number > stage.of:
            step = self.change(stage, *notices, state=COMPLETE)
        else:
            allowed = self.stages.allowance(number, wanted)
            text = f"stage {number} of {stage.of}: {allowed} of {wanted} pods"
            stage = replace(stage, number=number, allowed=allowed)
            step = self.change(stage, *notices, _notice("Started", text), state=RELEASING)
        return replace(step, status=replace(step.status, **_NO_ITEMS))

    def pause(self, ready: datetime) -> Step:
        """Wait until the pods have been ready for the pause, forever if it is None."""
        left, pause = None, self.stages.pause
        if pause is not None:
            left = (ready + timedelta(seconds=pause) - self.now).total_seconds()
            if left <= 0:
                return self.change(self.stage, state=CHECKING)
        if self.stage.state != PAUSED:
            return self.change(self.stage, state=PAUSED)
        return self.wait(left)

    def await_pods(self) -> Step:
        """Hold a stage of which no pod became ready for the time of a whole deployment."""
        since, timeout = moment(self.stage.since) or self.now, self.rules.observability_timeout
        began = max(since, moment(self.pods.progressed) or since)
        left = (began + timedelta(seconds=timeout) - self.now).total_seconds()
        if left > 0:
            return self.wait(left)
        return self.hold(f"its pods are not ready after {timeout:g} s", self.allowance)

    def hold(self, text: str, allowed: int, stage: StageStatus | None = None) -> Step:
        """Release no more pods than ``allowed`` until a person does."""
        stage = stage or self.stage
        notice = _notice("Held", f"stage {stage.number} of {stage.of} is held: {text}")
        return self.change(stage, notice, state=HELD, message=text, allowed=allowed)

    def check(self) -> Step:
        """Follow the checks of a stage, which has passed when all of them have."""
        status, stage = self.version.status, self.stage
        notices: list[PhaseNotice] = []
        creations: list[Creation] = []
        states, failed = set(), []
        for phase in stage_phases(stage.number):
            step = self.run(phase, status)
            items: tuple[ItemStatus, ...] = getattr(step.status, phase.items)
            status = replace(status, **{phase.items: items})
            notices += step.notices
            creations += step.creations
            states.add(step.state)
            word = phase.kind.removeprefix("Keptn").lower()
            failed += [f"{word} {item.definition_name}" for item in items if item.status == FAILED]
        after = self._replace(version=replace(self.version, status=status))
        if not states <= COMPLETED:
            return replace(after.wait(), notices=tuple(notices), creations=tuple(creations))
        if FAILED in states:
            text = f"{', '.join(failed)} failed"
            # A pod that is being replaced keeps its room; those that were wanted later have none.
            allowed = max(self.pods.released, min(stage.released, self.allowance))
            step = after.hold(text, allowed, self.with_result(FAILED, text))
            return replace(step, notices=(*notices, *step.notices))
        ended = self.with_result(WARNING if WARNING in states else _PASSED, "")
        passed = f"stage {stage.number} of {stage.of} has passed with {self.pods.released} pods"
        return after.enter(ended, self.following, *notices, _notice("Finished", passed))

    def promote(self, number: int, token: str) -> Step:
        """Carry out a request by hand, unless that stage has begun."""
        stage, notes = replace(self.stage, token=token), self.version.metadata.annotations
        if number <= stage.number:
            return replace(self.wait(), status=replace(self.version.status, stage=stage))
        why = notes.get(PROMOTE_REASON_KEY, "")[:_MAX_REASON] or "no reason is given"
        who = notes[PROMOTE_BY_KEY][:_MAX_REASON]
        text = f"stage {stage.number} of {stage.of} was ended by {who}: {why}"
        ended = replace(self.with_result(_PROMOTED, text), token=token)
        return self.enter(ended, max(number, self.following), _notice("Promoted", text))

    def with_result(self, state: str, message: str) -> StageStatus:
        """Return the stage with its end."""
        result = StageResult(
            number=self.stage.number,
            state=state,
            end_time=format_rfc3339(self.now),
            released=self.pods.released,
            message=message,
        )
        return replace(self.stage, results=(*self.stage.results, result))

    def wait(self, seconds: float | None = None) -> Step:
        """Wait for an event, and not longer than some seconds."""
        return Step(status=self.version.status, state=PROGRESSING, requeue_after=seconds)

    def change(self, stage: StageStatus, *notices: PhaseNotice, **fields: object) -> Step:
        """Return the Step with a changed stage, and the numbers of pods at this time."""
        stage = replace(
            stage,
            since=format_rfc3339(self.now),
            wanted=self.pods.wanted or 0,
            released=self.pods.released,
            **fields,
        )
        state = SUCCEEDED if stage.state in OVER else PROGRESSING
        return Step(status=replace(self.version.status, stage=stage), state=state, notices=notices)


def _notice(state: str, text: str) -> PhaseNotice:
    return PhaseNotice(phase=PHASE, state=state, text=text)


def _promotion(version: WorkloadVersion, stage: StageStatus) -> tuple[int, str] | None:
    """Return the stage that a person releases and the token of the request, unless it is spent."""
    notes = version.metadata.annotations
    request = _REQUEST.fullmatch(notes.get(PROMOTE_KEY, ""))
    if request is None or not notes.get(PROMOTE_BY_KEY) or request[2] == stage.token:
        return None
    return int(request[1]), request[2]


def _read(version: WorkloadVersion) -> tuple[Stages, str]:
    """Return the stages of a version, and why they cannot be read if so."""
    try:
        return parse_stages(version.spec.stages, version.spec.stage_pause), ""
    except ValueError as error:
        return Stages(()), str(error)
