"""Pods that wait in a scheduler are woken, once for each state of their checks (decision D9).

The scheduler finds out by itself whether they may go, so all that is written is one annotation. It
says what was told last, so that nobody tells it again. The deadline is told by the first pod.
"""

from __future__ import annotations

import contextlib
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import PODS
from harbourmaster.api.times import stamp
from harbourmaster.controller.lifecycle.caches import BY_VERSION
from harbourmaster.controller.lifecycle.latest import LatestValues
from harbourmaster.gates.release import CHECKING, CHECKS_KEY, LATE, PASSED, WAITING, nudge, to_tell
from harbourmaster.kube.errors import NotFoundError
from harbourmaster.lifecycle.scheduling import deadline_of, is_outdated, names_checks, standing
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import WorkloadVersion

MARGIN: Final = 1.0
"""Seconds after the deadline: by the clocks of all replicas it has passed then."""
REMEMBERED: Final = 20_000
"""Versions whose deadline was told."""


class Nudges:
    """Tells pods how their checks stand."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._pods = context.caches.pods.store
        # By key of a pod: its uid and what it was told, until the watch shows it.
        self._sent: dict[str, tuple[str, str]] = {}
        # Versions by uid with the start whose deadline was told.
        self._late: LatestValues[tuple[str, str], None] = LatestValues(REMEMBERED)
        self._log = get_logger("gates")

    async def settle(
        self, pod: Pod, version: WorkloadVersion | None, *, may_run: bool
    ) -> float | None:
        """Tell the pod what is news to it; seconds until there may be more. Raises ApiError."""
        if version is None:
            await self._tell(pod, to_tell(self._told(pod), WAITING))
            return None
        now = self._context.now()
        seconds = self._context.scheduler.pre_check_deadline_seconds
        found = standing(version, deadline=seconds, now=now - timedelta(seconds=MARGIN))
        told = self._told(pod)
        if may_run:
            # One that was not refused is not asked about anew, be it a thousand.
            if told or pod.refusal:
                again = is_outdated(pod.refusal, told, version, now)
                await self._tell(pod, to_tell(told, PASSED, again=again))
            return None
        if found == PASSED:
            # Its owner is about to be recorded.
            found = WAITING
        if found == LATE:
            self._tell_deadline(pod, version)
        if told or found != CHECKING or _lacks_checks(pod, version, seconds):
            await self._tell(pod, to_tell(told, found))
        end = deadline_of(version, seconds)
        if found not in {WAITING, CHECKING} or end is None:
            return None
        return (end - now).total_seconds() + MARGIN

    def forget(self, key: str) -> None:
        """The pod waits no more."""
        self._sent.pop(key, None)

    def _told(self, pod: Pod) -> str:
        """What the pod knows, the watch may be behind."""
        uid, value = self._sent.get(pod.key, ("", ""))
        if uid != pod.uid:
            return pod.told
        if value == pod.told:
            del self._sent[pod.key]
        return value

    async def _tell(self, pod: Pod, value: str) -> None:
        if not value:
            return
        annotations = pod.annotations if pod.has_annotations else None
        revision = pod.resource_version
        operations = nudge(pod.uid, annotations, {CHECKS_KEY: value}, revision=revision)
        if operations is not None:
            with contextlib.suppress(NotFoundError):
                await self._client.patch(PODS, pod.name, JsonPatch(operations), pod.namespace)
        self._sent[pod.key] = (pod.uid, value)
        self._log.debug("pod nudged", pod=pod.key, told=value)

    def _tell_deadline(self, pod: Pod, version: WorkloadVersion) -> None:
        """Once for all pods of a version, and not by each leader anew."""
        metadata = version.metadata
        if not self._late.add((metadata.uid, version.status.start_time), None):
            return
        waiting = self._pods.by_index(BY_VERSION, (pod.namespace, metadata.name))
        if any(each.told == LATE for each in waiting):
            return
        end = deadline_of(version, self._context.scheduler.pre_check_deadline_seconds)
        text = f"checks before the deployment were not done by {stamp(end) if end else 'then'}"
        self._context.signals.late(version, text)


def _lacks_checks(pod: Pod, version: WorkloadVersion, seconds: float) -> bool:
    """Whether a pod was refused before there were checks to be named.

    One that has not been refused yet need not be woken to hear of them.
    """
    return bool(pod.refusal) and not names_checks(pod.refusal, version, seconds)
