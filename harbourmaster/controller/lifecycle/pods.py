"""Waiting pods: creates their workloads, and releases them when their checks passed (D8, D9).

Admission writes nothing, so the objects that Keptn's webhook creates for a pod are created here,
once for all pods of a workload. A pod without a workload or an owner is an orphan: it is reported
and stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.api.durations import format_duration
from harbourmaster.api.resources import PODS
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.controller.lifecycle.caches import BY_VERSION
from harbourmaster.controller.lifecycle.owners import (
    OwnerGoneError,
    PodContent,
    inherited_metadata,
)
from harbourmaster.controller.lifecycle.pod_releases import PodReleaser, annotate
from harbourmaster.controller.lifecycle.pod_reports import PodReporter
from harbourmaster.controller.lifecycle.pod_workloads import (
    PATIENCE,
    Obstacle,
    ObstacleError,
    PodWorkloads,
)
from harbourmaster.controller.lifecycle.scheduler_wakeups import SchedulerWakeups
from harbourmaster.controller.lifecycle.writes import is_end_of_namespace
from harbourmaster.gates.inheritance import tracking_by_parent, tracking_by_pod
from harbourmaster.gates.metadata import PARENT_KEY, REMOVED_KEY, UNRESOLVED, Metadata
from harbourmaster.gates.owners import supported_owner
from harbourmaster.gates.release import (
    CHECKS_KEY,
    EXPIRED,
    NONE,
    RELEASED_KEY,
    WAITING,
    may_release,
)
from harbourmaster.gates.stages import STAGE_KEY, STAGED, STAGED_LABEL
from harbourmaster.gates.waits import MET, TIMED_OUT, TIMEOUT_KEY, WAITED_KEY
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.lifecycle.gate_verdict import why_orphaned
from harbourmaster.lifecycle.gate_waits import REPEAT
from harbourmaster.lifecycle.stages import is_staging
from harbourmaster.lifecycle.wait_items import WaitReport, wait_report
from harbourmaster.lifecycle.workloads import approval, names_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.gates.inheritance import Tracking
    from harbourmaster.gates.version import Container
    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import WorkloadVersion

LOOK_AGAIN: Final = PATIENCE + 1.0
"""Seconds after which a pod without a workload version is reconciled again."""
_AT_TIMEOUT: Final = {
    "Keep": "it keeps waiting",
    "Release": "it is released",
    "Fail": "it stays blocked",
}


_decode_containers: Final = msgspec.json.Decoder(PodContent).decode


class GatedPodReconciler:
    """Reconciles pods that wait at our gate, or in a scheduler that asks us."""

    def __init__(self, context: Context, wake: Callable[[str], None]) -> None:
        """Create the reconciler; ``wake`` queues the key of a pod."""
        self._context = context
        self._pods = context.caches.pods.store
        self._workloads = PodWorkloads(context)
        self._releaser = PodReleaser(context)
        self._reporter = PodReporter(context)
        self._wakeups = SchedulerWakeups(context)
        self._staged = context.caches.staged_releases
        self._staged.begin_term()
        self._wake = wake
        # Workloads that are being reconciled, with the keys of the pods that wait for that.
        self._busy: dict[str, set[str]] = {}

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return the keys of those pods that wait."""
        for key in list(self._pods.keys()) if keys is None else keys:
            pod = self._pods.get(key)
            if pod is None or not pod.is_ours:
                self._forget(key)
                if pod is not None and pod.elsewhere:
                    self._reporter.report_foreign_scheduler(pod.elsewhere)
            elif not pod.is_ending:
                yield key

    async def reconcile(self, key: str) -> float | None:
        """Reconcile a pod; return the seconds until its age matters. Raises ApiError."""
        pod = self._pods.get(key)
        if pod is None or not pod.is_ours or pod.is_ending:
            self._forget(key)
            return None
        if self._releaser.has_released(pod):
            return None
        requeue_after: float | None = None
        failure: ApiError | None = None
        try:
            requeue_after = await self._reconcile_pod(pod)
        except ApiError as error:
            if is_end_of_namespace(error):
                return None
            failure = error
        if self._releaser.has_released(pod):
            return None
        # Its age counts, whatever else fails.
        until_overdue = await self._check_age(pod)
        if failure is not None and not self._releaser.has_released(pod):
            raise failure
        return _earliest(requeue_after, until_overdue)

    async def _reconcile_pod(self, pod: Pod) -> float | None:
        if not pod.has_checks:
            return await self._reconcile_conditions(pod)
        described = workload_of(pod.annotations, pod.labels)
        is_provisional = pod.annotations.get(PARENT_KEY) == UNRESOLVED
        if is_provisional or (described is not None and not described.version):
            return await self._decide_provisional(pod)
        cause = why_orphaned(pod)
        owner = supported_owner(pod.owner_references)
        if cause or described is None or owner is None:
            self._reporter.report_orphan(pod, cause)
            return REPEAT
        return await self._reconcile_checks(pod, owner, described)

    async def _reconcile_conditions(self, pod: Pod) -> float | None:
        """Release a pod that waits for objects alone, or return the seconds to its time-out."""
        report = await self._report_conditions(pod)
        if report.is_over:
            added = {WAITED_KEY: MET} if pod.is_in_scheduler else None
            await self._releaser.release(
                pod, {RELEASED_KEY: EXPIRED} if report.is_expired else added
            )
        return report.left

    async def _report_conditions(self, pod: Pod) -> WaitReport:
        """Return the state of the pod's conditions, after what follows from their time-out."""
        conditions = pod.wait_conditions
        if conditions is None:
            return WaitReport()
        age = (self._context.now() - parse_rfc3339(pod.creation_timestamp)).total_seconds()
        is_reported = self._reporter.has_timed_out(pod)
        if is_reported and conditions.on_timeout == "Fail":
            # As it is marked, if the watch is behind.
            pod = replace(pod, annotations={**pod.annotations, WAITED_KEY: TIMED_OUT})
        report = wait_report(pod, self._context.caches.wait_watches.reports(pod.namespace), age)
        is_marked = pod.annotations.get(WAITED_KEY) == TIMED_OUT
        if report.is_expired and not is_reported and not is_marked:
            if conditions.on_timeout == "Fail":
                await annotate(self._context.client, pod, {WAITED_KEY: TIMED_OUT})
            limit = f"longer than {format_duration(conditions.timeout)} ({TIMEOUT_KEY})"
            text = f"waited {limit} for {report.text}: {_AT_TIMEOUT[conditions.on_timeout]}"
            self._reporter.report_timeout(pod, text)
        return report

    async def _reconcile_checks(
        self, pod: Pod, owner: OwnerReference, described: WorkloadMetadata
    ) -> float | None:
        name = f"{pod.namespace}/{names_of_pod(described).workload}"
        # One pod after the other, so that the others find what the first one creates. They wait
        # without a worker, because a thousand of them would leave none to other workloads.
        parked = self._busy.get(name)
        if parked is not None:
            parked.add(pod.key)
            return None
        self._busy[name] = set()
        try:
            version, obstacle = await self._ensure_version(pod, owner, described)
        finally:
            for key in self._busy.pop(name):
                self._wake(key)
        # A pod whose checks passed does not wait for objects that only others need.
        report = await self._report_conditions(pod)
        may_run = report.is_over and may_release(approval(version) if version else None, owner.uid)
        requeue_after = report.left
        if report.is_over and pod.is_in_scheduler and not pod.has_waited:
            await annotate(self._context.client, pod, {WAITED_KEY: MET})
        if pod.is_in_scheduler:
            until_late = await self._wakeups.update(pod, version, may_run=may_run)
            requeue_after = _earliest(requeue_after, until_late)
        elif may_run and version is not None:
            return await self._release_in_stage(pod, version)
        elif report.is_over and obstacle is not None and obstacle.is_serving:
            await self._releaser.release(pod)
            return None
        if may_run:
            return None
        if obstacle is not None:
            self._reporter.report_obstacle(pod, obstacle.obstacle)
            if obstacle.error is not None:
                raise obstacle.error
        return LOOK_AGAIN if version is None else requeue_after

    async def _ensure_version(
        self, pod: Pod, owner: OwnerReference, described: WorkloadMetadata
    ) -> tuple[WorkloadVersion | None, ObstacleError | None]:
        """Return the version that decides on a pod, and what keeps it from one of its own."""
        try:
            return await self._workloads.ensure(pod, owner, described), None
        except ObstacleError as error:
            find_version = self._workloads.find_version
            return None if error.is_other else find_version(pod, described), error

    async def _release_in_stage(self, pod: Pod, version: WorkloadVersion) -> float | None:
        """Release a pod, if the stage of its version has room for it. Raises ApiError."""
        stage = version.status.stage
        if not is_staging(version):
            number = str(stage.number) if stage is not None and stage.number else ""
        elif pod.labels.get(STAGED_LABEL) != STAGED:
            # Admission could not decide on it completely; the watch brings the change. One with
            # another value would not be counted.
            await self._releaser.label(pod, STAGED_LABEL, STAGED)
            return None
        elif not (number := await self._staged.take(pod, version)):
            return self._staged.seconds_to_list(version)
        if not await self._releaser.release(pod, {STAGE_KEY: number} if number else None):
            self._staged.give_back(pod, version)
            place = (version.metadata.namespace, version.metadata.name)
            for waiting in self._context.caches.pods.store.by_index(BY_VERSION, place):
                self._wake(waiting.key)
        return None

    async def _decide_provisional(self, pod: Pod) -> float | None:
        """Decide on a pod that admission could not decide on completely (decision D7)."""
        try:
            raw = await self._context.client.get(PODS, pod.name, pod.namespace)
        except NotFoundError:
            return None
        live = self._releaser.decode(raw)
        if live.uid != pod.uid or not live.is_ours or live.is_ending:
            return None
        try:
            tracking = await self._tracking(live, _decode_containers(raw).spec.containers)
        except OwnerGoneError as error:
            # The pod usually goes with its owner.
            self._reporter.report_orphan(live, f"its owner {error} is gone")
            return LOOK_AGAIN
        if tracking is None and pod.wait_conditions is not None:
            await self._releaser.end_provisional_state(live, {CHECKS_KEY: NONE})
            return None
        if tracking is None:
            # This annotation alone shows that a pod without a gate is free.
            await self._releaser.release(live, {REMOVED_KEY: "true"}, cached=pod)
            return None
        if tracking.missing_container:
            text = f"no container {tracking.missing_container}, so the version is a hash"
            obstacle = Obstacle("CreateWorkload", "ContainerMissing", text)
            self._reporter.report_obstacle(live, obstacle)
        added = tracking.annotations
        if live.checks_state == NONE:
            added = {**added, CHECKS_KEY: WAITING}
        await self._releaser.end_provisional_state(live, added)
        return None

    async def _tracking(self, pod: Pod, containers: Sequence[Container]) -> Tracking | None:
        """Return the annotations that the pod needs, or None if it need not wait."""
        owner = supported_owner(pod.owner_references)
        metadata = Metadata(pod.annotations, pod.labels)
        if owner is None or metadata.get(REMOVED_KEY):
            return None
        if pod.wait_conditions is not None and not self._context.has_gates(pod.namespace):
            return None
        from_tag = self._context.settings.version_from_tag
        tracking = tracking_by_pod(metadata, lambda: containers, version_from_tag=from_tag)
        if tracking is not None:
            return tracking
        parent = await inherited_metadata(self._context.client, pod.namespace, owner)
        if parent is None:
            return None
        return tracking_by_parent(metadata, parent, lambda: containers, version_from_tag=from_tag)

    async def _check_age(self, pod: Pod) -> float | None:
        """Release or report a pod that waits too long; else return the seconds until then."""
        settings = self._context.settings
        limit = settings.max_gate_age_seconds
        is_exempt = STAGED_LABEL in pod.labels or self._waits_for_a_node(pod)
        if not limit or not pod.creation_timestamp or is_exempt:
            return None
        age = (self._context.now() - parse_rfc3339(pod.creation_timestamp)).total_seconds()
        if age < limit:
            return limit - age
        place = "at the gate" if pod.is_gated else "in its scheduler"
        text = f"waits {place} for {age:.0f} s, longer than {limit:g} s"
        if settings.on_expiry == "Release":
            await self._releaser.release(pod, {RELEASED_KEY: EXPIRED})
            self._reporter.report_release(pod, f"{text}: released without its checks")
        else:
            self._reporter.report_overdue(pod, text)
        return None

    def _waits_for_a_node(self, pod: Pod) -> bool:
        if not pod.is_in_scheduler or not pod.has_waited:
            return False
        described = workload_of(pod.annotations, pod.labels)
        owner = supported_owner(pod.owner_references)
        version = self._workloads.find_version(pod, described) if described is not None else None
        return (
            version is not None and owner is not None and may_release(approval(version), owner.uid)
        )

    def _forget(self, key: str) -> None:
        for memory in (self._wakeups, self._reporter, self._releaser):
            memory.forget(key)


def _earliest(*seconds: float | None) -> float | None:
    return min((value for value in seconds if value is not None), default=None)
