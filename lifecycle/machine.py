"""The phase machine: from a version and its inputs to its next status, and what is to be done.

Apps and workloads go through the same code. What is decided follows from the arguments alone, so a
interrupted pass is simply repeated. Finished items are not looked at again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from harbourmaster.api.times import stamp
from harbourmaster.lifecycle.checks import run_checks
from harbourmaster.lifecycle.deployments import deploy_app, deploy_workload
from harbourmaster.lifecycle.model import (
    COMPLETED,
    DEPRECATED,
    FAILED,
    PROGRESSING,
    SUCCEEDED,
    AppVersion,
    AppVersionStatus,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.phases import COMPLETED_PHASE, PASSED, PROMOTION, phases_of, state_of
from harbourmaster.lifecycle.steps import PhaseNotice, VersionStep

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.lifecycle.model import Version
    from harbourmaster.lifecycle.phases import Phase, Status
    from harbourmaster.lifecycle.steps import Inputs, Rules, Step


def advance(version: Version, inputs: Inputs, rules: Rules, now: datetime) -> VersionStep:
    """Bring a version as far as it goes: phase after phase while they complete (keptn-spec 3.0).

    Of a version that is over the status comes back as it is.
    """
    status: Status = version.status
    if status.is_finished:
        return VersionStep(status=status)
    if not status.start_time:
        status = replace(status, start_time=stamp(now))
    notices: list[PhaseNotice] = []
    phases = phases_of(version)
    for number, phase in enumerate(phases):
        is_wanted = phase is not PROMOTION or rules.has_promotion
        if not is_wanted or state_of(status, phase) in PASSED:
            continue
        is_idle = bool(phase.kind) and not getattr(version.spec, phase.checks)
        if status.current_phase != phase.name:
            status = _entered(phase, version, status, rules)
            notices.append(PhaseNotice(phase=phase.name, state="Started", is_minor=is_idle))
        step = _run(phase, version, status, inputs, rules, now)
        status = step.status
        notices += step.notices
        if step.state not in COMPLETED:
            return VersionStep(
                status=replace(status, status=PROGRESSING),
                notices=tuple(notices),
                creations=step.creations,
                wait=step.wait,
                needs_look=step.needs_look,
            )
        if step.state == FAILED:
            notices.append(PhaseNotice(phase=phase.name, state="Failed"))
            status = _failed(status, phases[number + 1 :], stamp(now))
            return VersionStep(status=status, notices=tuple(notices))
        notices.append(PhaseNotice(phase=phase.name, state="Finished", is_minor=is_idle))
    ended = replace(status, current_phase=COMPLETED_PHASE, status=SUCCEEDED, end_time=stamp(now))
    return VersionStep(status=ended, notices=tuple(notices))


def _entered(phase: Phase, version: Version, status: Status, rules: Rules) -> Status:
    status = replace(status, current_phase=phase.name)
    if rules.carrier is None or phase.name in status.phase_trace_ids:
        return status
    carrier = rules.carrier(version.spec.trace_id, version.metadata.uid, phase.name)
    return replace(status, phase_trace_ids={**status.phase_trace_ids, phase.name: carrier})


def _run(
    phase: Phase, version: Version, status: Status, inputs: Inputs, rules: Rules, now: datetime
) -> Step:
    if phase.kind:
        return run_checks(phase, version, status, inputs, rules, now)
    if isinstance(version, AppVersion) and isinstance(status, AppVersionStatus):
        return deploy_app(version, status, inputs)
    if isinstance(status, WorkloadVersionStatus):
        return deploy_workload(status, inputs, rules, now)
    raise TypeError(f"{type(status).__name__} is not a status of a {type(version).__name__}")


def _failed(status: Status, later: Iterable[Phase], now: str) -> Status:
    """The end of a version; the promotion counts as a later phase also where nobody runs it."""
    deprecated = {phase.state: DEPRECATED for phase in later}
    return replace(status, status=FAILED, end_time=now, **deprecated)
