"""Moves a version through its phases: from its inputs to its next status and the actions.

Apps and workloads use the same code. The result depends only on the arguments, so an interrupted
pass is simply repeated. Finished items are not read again.

A phase of tasks or evaluations has one child for each definition, all at once (keptn-spec 3.7). The
deployment phase of an app is that of its workloads, that of a workload is that of its pods.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.times import format_rfc3339, moment, parse_rfc3339
from harbourmaster.lifecycle.model import (
    COMPLETED,
    DEPRECATED,
    FAILED,
    PENDING,
    PROGRESSING,
    SUCCEEDED,
    UNKNOWN,
    WARNING,
    AppVersion,
    AppVersionStatus,
    ItemStatus,
    WorkloadState,
    WorkloadVersion,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.phases import (
    ANALYSIS,
    APP_CHECKS,
    COMPLETED_PHASE,
    EVALUATION,
    PROMOTION,
    SETTLED,
    TASK,
    WORKLOAD_DEPLOY,
    checks_in_status,
    has_passed,
    phases_of,
    state_of,
)
from harbourmaster.lifecycle.reruns import checks_to_repeat, is_rerun_wanted, rerun_notice
from harbourmaster.lifecycle.stages import NO_STAGE, advance_stages, is_staging
from harbourmaster.lifecycle.steps import Creation, PhaseNotice, Step

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import datetime

    from harbourmaster.lifecycle.model import Version
    from harbourmaster.lifecycle.phases import Phase, Status
    from harbourmaster.lifecycle.steps import Inputs, Rules

_OPEN: Final = frozenset(("", PENDING, PROGRESSING, UNKNOWN))
"""States of a phase that has not ended."""


def overall_state(states: Collection[str], expected: int) -> str:
    """Return the worst of the states, or Pending if some of the ``expected`` ones are missing.

    An empty state is Pending. A Warning counts as passed; in Keptn it never passes.
    """
    if FAILED in states or DEPRECATED in states:
        return FAILED
    if PROGRESSING in states:
        return PROGRESSING
    if PENDING in states or "" in states:
        return PENDING
    if UNKNOWN in states:
        return UNKNOWN
    passed = sum(state in {SUCCEEDED, WARNING} for state in states)
    if passed != expected:
        return PENDING
    return WARNING if WARNING in states else SUCCEEDED


_WORDS: Final = {TASK: "Task", EVALUATION: "Evaluation", ANALYSIS: "Analysis"}


def _run_checks(
    phase: Phase, version: Version, status: Status, inputs: Inputs, rules: Rules, now: datetime
) -> Step:
    """Follow the children, and request those that are missing.

    A definition that is listed twice counts once. A missing one keeps only its own item waiting.
    """
    items: tuple[ItemStatus, ...] = getattr(status, phase.items)
    # In reverse, so that of two items of one definition the first counts.
    before = {item.definition_name: item for item in reversed(items)}
    after: list[ItemStatus] = []
    notices: list[PhaseNotice] = []
    creations: list[Creation] = []
    for definition in dict.fromkeys(getattr(version.spec, phase.checks)):
        old = before.get(definition)
        item = _follow_item(phase, old, definition, inputs, format_rfc3339(now))
        if isinstance(item, Creation):
            creations.append(item)
            item = replace(old or ItemStatus(definition_name=definition), status=PENDING)
        after.append(item)
        notices += _changes(phase, old, item, inputs)
    state = overall_state([item.status for item in after], len(after))
    if state == FAILED and not rules.is_blocking:
        state = WARNING
    # The state of a stage's checks is that of the stage.
    fields = {phase.items: tuple(after), **({phase.state: state} if phase.state else {})}
    return Step(
        status=replace(status, **fields),
        state=state,
        notices=tuple(notices),
        creations=tuple(creations),
    )


def _follow_item(
    phase: Phase, old: ItemStatus | None, definition: str, inputs: Inputs, now: str
) -> ItemStatus | Creation:
    """Return the item with its current state, or the child that it needs."""
    is_repeated = old is not None and old.name in inputs.repeated
    if old is not None and not is_repeated:
        if old.status in SETTLED:
            return old
        state = inputs.children.get((phase.kind, old.name))
        if state is not None:
            return _in_state(old, state, now)
    made = inputs.made.get((phase.name, definition))
    if made is not None:
        fresh = ItemStatus(definition_name=definition, name=made.name, start_time=now)
        return _in_state(fresh, made.state, now)
    is_defined = (phase.kind, definition) in inputs.definitions
    if is_defined and (phase.name, definition) not in inputs.refused:
        return Creation(phase, definition, previous=old.name if old is not None else "")
    if old is not None and (is_defined or is_repeated):
        # The deleted child's name is what its successor's follows from.
        return replace(old, status=PENDING)
    return ItemStatus(definition_name=definition)


def _in_state(item: ItemStatus, state: str, now: str) -> ItemStatus:
    state = state or PENDING
    return replace(item, status=state, end_time=now if state in COMPLETED else item.end_time)


def _changes(
    phase: Phase, old: ItemStatus | None, new: ItemStatus, inputs: Inputs
) -> Iterator[PhaseNotice]:
    """Return the notices about an item: each change once, because the old status was written."""
    word = _WORDS[phase.kind]
    was = old.status if old is not None else ""
    if new.status != was:
        text = f"{word.lower()} status changed from {was} to {new.status}"
        failed = new.name if new.status == FAILED and phase.kind == TASK else ""
        yield PhaseNotice(
            phase=f"Reconcile{word}",
            state="StatusChanged",
            text=text,
            failed_task=failed,
            is_minor=new.status == PENDING,
        )
        if new.status == FAILED and phase.kind == EVALUATION:
            yield PhaseNotice(phase="ReconcileEvaluation", state="Failed", about=new.name)
    is_undefined = (phase.kind, new.definition_name) not in inputs.definitions
    is_lost = not new.name and (old is None or old.name)
    if is_undefined and (is_lost or (was == FAILED and new.status == PENDING)):
        missing = f'{phase.kind}Definition "{new.definition_name}"'
        text = f"{missing} not found; waiting for it to be created"
        yield PhaseNotice(phase=f"Create{word}", state="NotFound", text=text, warning=True)


def _deploy_app(version: AppVersion, status: AppVersionStatus, inputs: Inputs) -> Step:
    """Follow the workloads (keptn-spec 3.3); there is no time limit for one that never comes."""
    before = {state.workload: state.status for state in status.workload_status}
    notices: list[PhaseNotice] = []
    for entry in dict.fromkeys(version.spec.workloads):
        if entry not in inputs.workloads and before.get(entry) != PENDING:
            text = f"could not find KeptnWorkloadVersion for KeptnWorkload: {entry.name}"
            notices.append(PhaseNotice(phase="ReconcileWorkload", state="NotFound", text=text))
    states = tuple(
        WorkloadState(workload=entry, status=inputs.workloads.get(entry) or PENDING)
        for entry in version.spec.workloads
    )
    state = overall_state([state.status for state in states], len(states))
    return Step(
        status=replace(status, workload_status=states, workload_overall_status=state),
        state=state,
        notices=tuple(notices),
    )


def _deploy_workload(
    version: WorkloadVersion,
    status: WorkloadVersionStatus,
    inputs: Inputs,
    rules: Rules,
    now: datetime,
) -> Step:
    """Wait until the pods are ready, and not longer than the timeout (keptn-spec 3.5).

    The phase Progressing releases the pods' gates, all at once or in stages. Pods that are ready
    count also after the timeout, which begins again after a pause of the rollout, as a progress
    deadline does, and after the last stage.
    """
    started = status.deployment_start_time or format_rfc3339(now)
    status = replace(status, deployment_start_time=started, deployment_status=PROGRESSING)
    notices: tuple[PhaseNotice, ...] = ()
    version = replace(version, status=status)
    if is_staging(version):

        def run(phase: Phase, status: WorkloadVersionStatus) -> Step:
            return _run_checks(phase, version, status, inputs, rules, now)

        step = advance_stages(version, inputs, rules, now, run)
        if step.state != SUCCEEDED or not isinstance(step.status, WorkloadVersionStatus):
            return step
        status, notices = step.status, step.notices
    if inputs.is_deployed:
        status = replace(status, deployment_status=SUCCEEDED)
        return Step(status=status, state=SUCCEEDED, notices=notices)
    if inputs.resumed is None:
        return Step(status=status, state=PROGRESSING, notices=notices)
    began = parse_rfc3339(started)
    began = max(began, min(moment(inputs.resumed) or began, now))
    if status.stage is not None:
        began = max(began, parse_rfc3339(status.stage.since))
    left = (began + timedelta(seconds=rules.observability_timeout) - now).total_seconds()
    if left > 0 or inputs.is_deployed is None:
        return Step(
            status=status,
            state=PROGRESSING,
            notices=notices,
            requeue_after=left,
            needs_look=inputs.is_deployed is None,
        )
    name = WORKLOAD_DEPLOY.name
    late = PhaseNotice(phase=name, state="Finished", text="has reached timeout", warning=True)
    status = replace(status, deployment_status=FAILED)
    return Step(status=status, state=FAILED, notices=(*notices, late))


def advance(version: Version, inputs: Inputs, rules: Rules, now: datetime) -> Step:
    """Bring a version as far as it goes: phase after phase while they complete (keptn-spec 3.0).

    A finished version goes on only if its deployment failed and is done now, or if its failed
    checks are to be repeated.
    """
    status: Status = version.status
    notices: list[PhaseNotice] = []
    inputs = replace(inputs, repeated=checks_to_repeat(version))
    if is_rerun_wanted(version):
        notices.append(rerun_notice(version))
        status = _reopen(version)
    elif status.is_finished:
        if status.is_final or not _is_deployed_late(version, inputs):
            needs_look = not status.is_final and inputs.is_deployed is None
            return Step(status=status, needs_look=needs_look)
        status = _reopen(version)
    if not status.start_time:
        status = replace(status, start_time=format_rfc3339(now))
    phases = phases_of(version)
    for number, phase in enumerate(phases):
        is_wanted = phase is not PROMOTION or rules.has_promotion
        if not is_wanted or has_passed(version, phase):
            continue
        is_idle = bool(phase.kind) and not getattr(version.spec, phase.checks)
        is_minor = is_idle and not rules.has_idle_events
        if status.current_phase != phase.name:
            status = _enter(phase, version, status, rules)
            notices.append(PhaseNotice(phase=phase.name, state="Started", is_minor=is_minor))
        step = _run(phase, version, status, inputs, rules, now)
        status = step.status
        notices += step.notices
        if step.state not in COMPLETED:
            status = replace(status, status=PROGRESSING)
            return replace(step, status=status, notices=tuple(notices))
        if step.state == FAILED:
            notices.append(PhaseNotice(phase=phase.name, state="Failed"))
            status = _fail(status, phases[number + 1 :], format_rfc3339(now))
            return Step(status=status, notices=tuple(notices))
        notices.append(PhaseNotice(phase=phase.name, state="Finished", is_minor=is_minor))
    ended = replace(
        status, current_phase=COMPLETED_PHASE, status=SUCCEEDED, end_time=format_rfc3339(now)
    )
    return Step(status=ended, notices=tuple(notices))


def _is_deployed_late(version: Version, inputs: Inputs) -> bool:
    """Return whether a deployment that failed is done, or may be done if it is an app's."""
    if isinstance(version, AppVersion):
        states = {inputs.workloads.get(entry) for entry in version.spec.workloads}
        return states.isdisjoint((FAILED, None))
    return bool(inputs.is_deployed)


def retry_changed_checks(version: AppVersion) -> Status | None:
    """Return the status in which checks that failed go on because their list changed, or None."""
    for phase in APP_CHECKS:
        wanted = set(getattr(version.spec, phase.checks))
        if state_of(version.status, phase) == FAILED and checks_in_status(version, phase) != wanted:
            return _reopen(version)
    return None


def _reopen(version: Version) -> Status:
    """Return the status without the phase that failed and what followed from it."""
    left = _states(version, {FAILED, DEPRECATED}, PENDING)
    return replace(version.status, status=PROGRESSING, end_time="", **left)


def _states(version: Version, states: Collection[str], state: str) -> dict[str, str]:
    """Return the fields of those phases that are in one of ``states``, with another state."""
    return {
        phase.state: state
        for phase in phases_of(version)
        if state_of(version.status, phase) in states
    }


def _enter(phase: Phase, version: Version, status: Status, rules: Rules) -> Status:
    status = replace(status, current_phase=phase.name)
    if rules.carrier is None or phase.name in status.phase_trace_ids:
        return status
    carrier = rules.carrier(version.spec.trace_id, version.metadata.uid, phase.name)
    return replace(status, phase_trace_ids={**status.phase_trace_ids, phase.name: carrier})


def _run(
    phase: Phase, version: Version, status: Status, inputs: Inputs, rules: Rules, now: datetime
) -> Step:
    if phase.kind:
        return _run_checks(phase, version, status, inputs, rules, now)
    if isinstance(version, AppVersion) and isinstance(status, AppVersionStatus):
        return _deploy_app(version, status, inputs)
    if isinstance(version, WorkloadVersion) and isinstance(status, WorkloadVersionStatus):
        return _deploy_workload(version, status, inputs, rules, now)
    raise TypeError(f"{type(status).__name__} is not a status of a {type(version).__name__}")


def _fail(status: Status, later: Iterable[Phase], now: str) -> Status:
    """Return the final status; the promotion counts as a later phase even if it is off."""
    deprecated = {phase.state: DEPRECATED for phase in later}
    return replace(status, status=FAILED, end_time=now, **deprecated)


def supersede(version: WorkloadVersion, now: datetime) -> WorkloadVersionStatus:
    """Return the status of a version that another one has replaced before its end.

    Phases that ended keep their state.
    """
    left = _states(version, _OPEN, DEPRECATED)
    return replace(version.status, status=DEPRECATED, end_time=format_rfc3339(now), **left)


def resume(version: WorkloadVersion) -> WorkloadVersionStatus:
    """Return the status with which a superseded version goes on, after a rollback to it."""
    status, left = version.status, _states(version, {DEPRECATED}, PENDING)
    state = PROGRESSING if status.current_phase else PENDING
    # One whose pods were all released goes on so: those that come back are released meanwhile.
    stage = NO_STAGE if is_staging(replace(version, status=replace(status, **left))) else {}
    return replace(status, status=state, end_time="", deployment_start_time="", **stage, **left)
