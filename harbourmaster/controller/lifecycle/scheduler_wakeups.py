"""Wakes pods that wait in a scheduler, once for each state of their checks (decision D9).

The scheduler itself finds out whether they may run, so only one annotation is written. It holds the
last state that was written, so that none is written twice. The first pod reports the deadline.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from harbourmaster.api.times import format_rfc3339
from harbourmaster.controller.lifecycle.caches import BY_VERSION
from harbourmaster.controller.lifecycle.latest import LatestValues
from harbourmaster.controller.lifecycle.pod_releases import annotate
from harbourmaster.gates.release import (
    CHECKING,
    CHECKS_KEY,
    LATE,
    PASSED,
    WAITING,
    next_checks_value,
)
from harbourmaster.lifecycle.scheduling import (
    deadline_of,
    is_outdated,
    names_checks,
    state_of_checks,
)
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import WorkloadVersion

MARGIN: Final = 1.0
"""Seconds after the deadline until it has passed by the clocks of all replicas."""
REMEMBERED: Final = 20_000
"""Maximum versions whose reported deadline is remembered."""


class SchedulerWakeups:
    """Writes the state of their checks to pods."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._pods = context.caches.pods.store
        # By key of a pod: its uid and the value written, until the watch shows it.
        self._sent: dict[str, tuple[str, str]] = {}
        # Uids of versions, and the start times whose deadline was reported.
        self._late: LatestValues[tuple[str, str], None] = LatestValues(REMEMBERED)
        self._log = get_logger("gates")

    async def update(
        self, pod: Pod, version: WorkloadVersion | None, *, may_run: bool
    ) -> float | None:
        """Write a new state to the pod; return the seconds until another one. Raises ApiError."""
        written = self._written_state(pod)
        if version is None:
            await self._write(pod, next_checks_value(written, WAITING))
            return None
        now = self._context.now()
        seconds = self._context.scheduler.pre_check_deadline_seconds
        if may_run:
            # Pods that were not refused are not woken.
            if written or pod.refusal:
                again = is_outdated(pod.refusal, written, version, now)
                await self._write(pod, next_checks_value(written, PASSED, again=again))
            return None
        state = state_of_checks(version, deadline=seconds, now=now - timedelta(seconds=MARGIN))
        if state == PASSED:
            # Its owner has yet to be recorded.
            state = WAITING
        if state == LATE:
            self._report_deadline(pod, version)
        if written or state != CHECKING or _lacks_checks(pod, version, seconds):
            await self._write(pod, next_checks_value(written, state))
        end = deadline_of(version, seconds)
        if state not in {WAITING, CHECKING} or end is None:
            return None
        return (end - now).total_seconds() + MARGIN

    def forget(self, key: str) -> None:
        """Forget a pod that no longer waits."""
        self._sent.pop(key, None)

    def _written_state(self, pod: Pod) -> str:
        """Return the value on the pod, even if the watch is behind."""
        uid, value = self._sent.get(pod.key, ("", ""))
        if uid != pod.uid:
            return pod.checks_state
        if value == pod.checks_state:
            del self._sent[pod.key]
        return value

    async def _write(self, pod: Pod, value: str) -> None:
        if not value:
            return
        await annotate(self._client, pod, {CHECKS_KEY: value})
        self._sent[pod.key] = (pod.uid, value)
        self._log.debug("pod nudged", pod=pod.key, told=value)

    def _report_deadline(self, pod: Pod, version: WorkloadVersion) -> None:
        """Report the deadline once for all pods of a version, whichever replica leads."""
        metadata = version.metadata
        if not self._late.add((metadata.uid, version.status.start_time), None):
            return
        waiting = self._pods.by_index(BY_VERSION, (pod.namespace, metadata.name))
        if any(pod.checks_state == LATE for pod in waiting):
            return
        end = deadline_of(version, self._context.scheduler.pre_check_deadline_seconds)
        due = format_rfc3339(end) if end else "then"
        self._context.signals.report_late_checks(
            version, f"checks before the deployment were not done by {due}"
        )


def _lacks_checks(pod: Pod, version: WorkloadVersion, seconds: float) -> bool:
    """Whether a pod was refused before there were checks to name.

    A pod that has not been refused yet is not woken for them.
    """
    return bool(pod.refusal) and not names_checks(pod.refusal, version, seconds)
