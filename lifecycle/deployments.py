"""The deployment phases: an app's is that of its workloads, a workload's that of its pods."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec.structs import replace

from harbourmaster.api.times import parse, stamp
from harbourmaster.lifecycle.model import (
    FAILED,
    PENDING,
    PROGRESSING,
    SUCCEEDED,
    WorkloadState,
)
from harbourmaster.lifecycle.overall import overall
from harbourmaster.lifecycle.phases import WORKLOAD_DEPLOY
from harbourmaster.lifecycle.steps import PhaseNotice, Step

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.lifecycle.model import AppVersion, AppVersionStatus, WorkloadVersionStatus
    from harbourmaster.lifecycle.steps import Inputs, Rules


def deploy_app(version: AppVersion, status: AppVersionStatus, inputs: Inputs) -> Step:
    """Follow the workloads (keptn-spec 3.3). One that never comes is waited for without end."""
    before = {each.workload: each.status for each in status.workload_status}
    notices: list[PhaseNotice] = []
    for entry in dict.fromkeys(version.spec.workloads):
        if entry not in inputs.workloads and before.get(entry) != PENDING:
            text = f"could not find KeptnWorkloadVersion for KeptnWorkload: {entry.name}"
            notices.append(PhaseNotice(phase="ReconcileWorkload", state="NotFound", text=text))
    found = tuple(
        WorkloadState(workload=entry, status=inputs.workloads.get(entry) or PENDING)
        for entry in version.spec.workloads
    )
    state = overall([each.status for each in found], len(found))
    return Step(
        status=replace(status, workload_status=found, workload_overall_status=state),
        state=state,
        notices=tuple(notices),
    )


def deploy_workload(
    status: WorkloadVersionStatus, inputs: Inputs, rules: Rules, now: datetime
) -> Step:
    """Wait until the pods are ready, and not longer than the timeout (keptn-spec 3.5).

    That the phase is Progressing is what releases the pods' gates. Pods that are ready are so also
    where nobody looked in time.
    """
    started = status.deployment_start_time or stamp(now)
    status = replace(status, deployment_start_time=started, deployment_status=PROGRESSING)
    if inputs.is_deployed:
        return Step(status=replace(status, deployment_status=SUCCEEDED), state=SUCCEEDED)
    ends = parse(started) + timedelta(seconds=rules.observability_timeout)
    left = (ends - now).total_seconds()
    if left > 0 or inputs.is_deployed is None:
        return Step(
            status=status, state=PROGRESSING, wait=left, needs_look=inputs.is_deployed is None
        )
    name = WORKLOAD_DEPLOY.name
    late = PhaseNotice(phase=name, state="Finished", text="has reached timeout", warning=True)
    return Step(status=replace(status, deployment_status=FAILED), state=FAILED, notices=(late,))
