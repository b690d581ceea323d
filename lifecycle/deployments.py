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
from harbourmaster.lifecycle.steps import Step, Told

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.lifecycle.model import AppVersion, AppVersionStatus, WorkloadVersionStatus
    from harbourmaster.lifecycle.steps import Rules, World


def deploy_app(version: AppVersion, status: AppVersionStatus, world: World) -> Step:
    """Follow the workloads (keptn-spec 3.3). One that never comes is waited for without end."""
    before = {each.workload: each.status for each in status.workload_status}
    told: list[Told] = []
    for entry in dict.fromkeys(version.spec.workloads):
        if entry not in world.workloads and before.get(entry) != PENDING:
            text = f"could not find KeptnWorkloadVersion for KeptnWorkload: {entry.name}"
            told.append(Told(phase="ReconcileWorkload", state="NotFound", text=text, warning=True))
    found = tuple(
        WorkloadState(workload=entry, status=world.workloads.get(entry) or PENDING)
        for entry in version.spec.workloads
    )
    state = overall([each.status for each in found], len(found))
    return Step(
        status=replace(status, workload_status=found, workload_overall_status=state),
        state=state,
        told=tuple(told),
    )


def deploy_workload(
    status: WorkloadVersionStatus, world: World, rules: Rules, now: datetime
) -> Step:
    """Wait until the pods are ready, and not longer than the timeout (keptn-spec 3.5).

    That the phase is Progressing is what releases the pods' gates. Pods that are ready are so also
    where nobody looked in time.
    """
    started = status.deployment_start_time or stamp(now)
    status = replace(status, deployment_start_time=started, deployment_status=PROGRESSING)
    if world.is_deployed:
        return Step(status=replace(status, deployment_status=SUCCEEDED), state=SUCCEEDED)
    ends = parse(started) + timedelta(seconds=rules.observability_timeout)
    left = (ends - now).total_seconds()
    if left > 0 or world.is_deployed is None:
        return Step(
            status=status, state=PROGRESSING, wait=left, needs_look=world.is_deployed is None
        )
    name = WORKLOAD_DEPLOY.name
    late = Told(phase=name, state="Finished", text="has reached timeout", warning=True)
    return Step(status=replace(status, deployment_status=FAILED), state=FAILED, told=(late,))
