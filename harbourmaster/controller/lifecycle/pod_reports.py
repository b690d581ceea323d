"""Reports on waiting pods: what blocks them, and which limits they have exceeded."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import PODS
from harbourmaster.controller.lifecycle.pod_workloads import Obstacle
from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.lifecycle.gate_waits import REPEAT
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.gated_pods import Pod

MOST_SCHEDULERS: Final = 20
"""Most schedulers for which the log reports that their pods are not ours."""


class PodReporter:
    """Emits events about waiting pods, and remembers which of them are not due again."""

    def __init__(self, context: Context) -> None:
        self._signals = context.signals
        self._scheduler = context.scheduler
        # By key of a pod: the last obstacle, and when it was reported.
        self._obstacles: dict[str, tuple[Obstacle, float]] = {}
        # By key of a pod: the uid of the one that exceeded the maximum age, or its own time-out.
        self._overdue: dict[str, str] = {}
        self._timed_out: dict[str, str] = {}
        self._foreign_schedulers: set[str] = set()
        self._log = get_logger("gates")

    def report_obstacle(self, pod: Pod, obstacle: Obstacle) -> None:
        """Report an obstacle if it changes, and again before its event expires."""
        now = asyncio.get_running_loop().time()
        before, reported_at = self._obstacles.get(pod.key, (None, 0.0))
        if before != obstacle or now - reported_at >= REPEAT:
            self._obstacles[pod.key] = (obstacle, now)
            self._emit(pod, obstacle)

    def report_orphan(self, pod: Pod, cause: str) -> None:
        """Report a pod that no check will release."""
        text = f"no check will release this pod, because {cause}: run harbourmaster gate release"
        self.report_obstacle(pod, Obstacle("Gate", "Orphaned", text))

    def report_overdue(self, pod: Pod, text: str) -> None:
        """Report once that a pod exceeds the maximum age."""
        if self._overdue.get(pod.key) != pod.uid:
            self._overdue[pod.key] = pod.uid
            self._emit(pod, Obstacle("Gate", "Expired", text))

    def report_release(self, pod: Pod, text: str) -> None:
        """Report that a pod was released without its checks."""
        self._emit(pod, Obstacle("Gate", "Released", text))

    def report_timeout(self, pod: Pod, text: str) -> None:
        """Report that the time-out of a pod's conditions has passed."""
        self._timed_out[pod.key] = pod.uid
        self._emit(pod, Obstacle("Gate", "Expired", text))

    def has_timed_out(self, pod: Pod) -> bool:
        """Whether the time-out of this pod was reported."""
        return self._timed_out.get(pod.key) == pod.uid

    def report_foreign_scheduler(self, name: str) -> None:
        """Log once a scheduler that is not ours, which admission may have taken for ours."""
        settings = self._scheduler
        # Without a scheduler that asks us, pods name what they like; but not its name.
        if not settings.enabled and name != settings.scheduler_name:
            return
        if name in self._foreign_schedulers or len(self._foreign_schedulers) >= MOST_SCHEDULERS:
            return
        self._foreign_schedulers.add(name)
        todo = (
            f"the controller handles pods of {settings.scheduler_name}: unless {name} is a "
            "scheduler of the "
            "pods' own, set scheduler.schedulerName and the webhook's gateSchedulerName to the "
            "same name"
            if settings.enabled
            else "no controller handles them: set scheduler.enabled, or the webhook's gating to "
            "schedulingGates"
        )
        self._log.warning("pods with Keptn's keys name a scheduler", scheduler=name, todo=todo)

    def forget(self, key: str) -> None:
        """Forget a pod that no longer waits."""
        self._obstacles.pop(key, None)
        self._overdue.pop(key, None)
        self._timed_out.pop(key, None)

    def _emit(self, pod: Pod, obstacle: Obstacle) -> None:
        reference = Reference(PODS, pod.metadata)
        self._signals.emit(reference, obstacle.phase, obstacle.state, obstacle.text, warning=True)
