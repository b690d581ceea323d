"""Waiting pods: creates their workloads, and releases them when their checks passed (D8, D9).

Admission writes nothing, so the objects that Keptn's webhook creates for a pod are created here,
once for all pods of a workload. A pod without a workload or an owner is an orphan: it is reported
and stays.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.durations import format_duration
from harbourmaster.api.patches import JsonPatch
from harbourmaster.api.resources import PODS
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.controller.lifecycle.owners import OwnerGoneError, inherited_metadata
from harbourmaster.controller.lifecycle.pod_workloads import (
    PATIENCE,
    Obstacle,
    ObstacleError,
    PodWorkloads,
)
from harbourmaster.controller.lifecycle.scheduler_wakeups import SchedulerWakeups
from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.controller.lifecycle.writes import is_end_of_namespace
from harbourmaster.gates.inheritance import inherit, own
from harbourmaster.gates.metadata import PARENT_KEY, REMOVED_KEY, UNRESOLVED, Metadata
from harbourmaster.gates.owners import supported_owner
from harbourmaster.gates.release import (
    CHECKS_KEY,
    EXPIRED,
    NONE,
    RELEASED_KEY,
    WAITING,
    annotation,
    may_go,
    nudge,
    removal,
)
from harbourmaster.gates.version import Container
from harbourmaster.gates.waits import MET, TIMED_OUT, TIMEOUT_KEY, WAITED_KEY
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError, ConflictError, InvalidError, NotFoundError
from harbourmaster.lifecycle.gate_verdict import why_orphaned
from harbourmaster.lifecycle.gate_waits import REPEAT
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.lifecycle.wait_items import WaitReport, wait_report
from harbourmaster.lifecycle.workloads import approval, names_of_pod
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.gates.inheritance import Tracking
    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.lifecycle.gated_pods import Pod

LOOK_AGAIN: Final = PATIENCE + 1.0
"""Seconds after which a pod without a workload version is reconciled again."""
MOST_TOLD: Final = 20
"""Most schedulers for which the log reports that their pods are not ours."""


_AT_TIMEOUT: Final = {
    "Keep": "it keeps waiting",
    "Release": "it is released",
    "Fail": "it stays blocked",
}


class _Spec(Struct, frozen=True, gc=False):
    containers: tuple[Container, ...] = ()


class _Contained(Struct, frozen=True, gc=False):
    spec: _Spec = _Spec()


_containers: Final = msgspec.json.Decoder(_Contained).decode


class GatedPodReconciler:
    """Reconciles pods that wait at our gate, or in a scheduler that asks us."""

    def __init__(self, context: Context, wake: Callable[[str], None]) -> None:
        """``wake`` queues a key."""
        self._context = context
        self._client = context.client
        self._pods = context.caches.pods.store
        self._workloads = PodWorkloads(context)
        self._nudges = SchedulerWakeups(context)
        self._decode = partial(decode_pod, scheduler=context.scheduler.of_pods)
        self._wake = wake
        # Workloads that are being reconciled, with the keys of the pods that wait for that.
        self._busy: dict[str, set[str]] = {}
        # What was reported of waiting pods, and released pods that the watch still shows waiting.
        self._told: dict[str, tuple[Obstacle, float]] = {}
        self._overdue: dict[str, str] = {}
        self._expired: dict[str, str] = {}
        self._gone: dict[str, Pod] = {}
        self._elsewhere: set[str] = set()
        self._log = get_logger("gates")

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Those of the pods that wait."""
        for key in list(self._pods.keys()) if keys is None else keys:
            pod = self._pods.get(key)
            if pod is None or not pod.is_ours:
                self._forget(key)
                if pod is not None and pod.elsewhere:
                    self._tell_elsewhere(pod.elsewhere)
            elif not pod.is_ending:
                yield key

    async def reconcile(self, key: str) -> float | None:
        """Reconcile a pod; returns the seconds until its age matters. Raises ApiError."""
        pod = self._pods.get(key)
        if pod is None or not pod.is_ours or pod.is_ending:
            self._forget(key)
            return None
        if self._gone.get(key) is pod:
            return None
        requeue_after: float | None = None
        fault: ApiError | None = None
        try:
            requeue_after = await self._see_to(pod)
        except ApiError as error:
            if is_end_of_namespace(error):
                return None
            fault = error
        if self._gone.get(key) is pod:
            return None
        # Its age counts, whatever else fails.
        age = await self._age(pod)
        if fault is not None and self._gone.get(key) is not pod:
            raise fault
        waits = [each for each in (requeue_after, age) if each is not None]
        return min(waits, default=None)

    async def _see_to(self, pod: Pod) -> float | None:
        if not pod.has_checks:
            return await self._see_to_waits(pod)
        described = workload_of(pod.annotations, pod.labels)
        is_provisional = pod.annotations.get(PARENT_KEY) == UNRESOLVED
        if is_provisional or (described is not None and not described.version):
            return await self._complete(pod)
        orphaned = why_orphaned(pod)
        owner = supported_owner(pod.owner_references)
        if orphaned or described is None or owner is None:
            self._orphaned(pod, orphaned)
            return REPEAT
        return await self._track(pod, owner, described)

    async def _see_to_waits(self, pod: Pod) -> float | None:
        """Release a pod that waits for objects alone, or return the seconds to its time-out."""
        report = await self._waits(pod)
        if report.is_over:
            done = {WAITED_KEY: MET} if pod.is_in_scheduler else None
            await self._release(pod, {RELEASED_KEY: EXPIRED} if report.is_expired else done)
        return report.left

    async def _waits(self, pod: Pod) -> WaitReport:
        """How its waits stand; what follows from their time-out is done."""
        waits = pod.wait_conditions
        if waits is None:
            return WaitReport()
        age = (self._context.now() - parse_rfc3339(pod.creation_timestamp)).total_seconds()
        is_told = self._expired.get(pod.key) == pod.uid
        if is_told and waits.on_timeout == "Fail":
            # As it is marked, if the watch is behind.
            marked = {**pod.annotations, WAITED_KEY: TIMED_OUT}
            pod = replace(pod, annotations=marked)
        report = wait_report(pod, self._context.caches.wait_watches.reports(pod.namespace), age)
        is_marked = pod.annotations.get(WAITED_KEY) == TIMED_OUT
        if report.is_expired and not is_told and not is_marked:
            on_timeout = waits.on_timeout
            if on_timeout == "Fail":
                await self._mark(pod, TIMED_OUT)
            self._expired[pod.key] = pod.uid
            limit = f"longer than {format_duration(waits.timeout)} ({TIMEOUT_KEY})"
            text = f"waited {limit} for {report.text}: {_AT_TIMEOUT[on_timeout]}"
            self._emit(pod, Obstacle("Gate", "Expired", text))
        return report

    async def _mark(self, pod: Pod, waited: str) -> None:
        """Write on a pod how its waits ended."""
        annotations = pod.annotations if pod.has_annotations else None
        mark = {WAITED_KEY: waited}
        await self._patch(pod, nudge(pod.uid, annotations, mark, revision=pod.resource_version))

    async def _track(
        self, pod: Pod, owner: OwnerReference, described: WorkloadMetadata
    ) -> float | None:
        name = f"{pod.namespace}/{names_of_pod(described).workload}"
        obstacle: ObstacleError | None = None
        # One pod after the other, so that the others find what the first one creates. They wait
        # without a worker, because a thousand of them would leave none to other workloads.
        parked = self._busy.get(name)
        if parked is not None:
            parked.add(pod.key)
            return None
        parked = self._busy[name] = set()
        try:
            version = await self._workloads.ensure(pod, owner, described)
        except ObstacleError as error:
            obstacle, version = error, self._workloads.known(pod, described)
        finally:
            del self._busy[name]
            for key in parked:
                self._wake(key)
        # A pod whose checks passed does not wait for objects that only others need.
        waits = await self._waits(pod)
        may_run = waits.is_over and may_go(approval(version) if version else None, owner.uid)
        requeue_after = waits.left
        if waits.is_over and pod.is_in_scheduler and not pod.has_waited:
            await self._mark(pod, MET)
        if pod.is_in_scheduler:
            wait = await self._nudges.settle(pod, version, may_run=may_run)
            requeue_after = min(
                (each for each in (requeue_after, wait) if each is not None), default=None
            )
        elif may_run:
            await self._release(pod)
        if may_run:
            return None
        if obstacle is not None:
            self._tell(pod, obstacle.obstacle)
            if obstacle.error is not None:
                raise obstacle.error
        return LOOK_AGAIN if version is None else requeue_after

    async def _complete(self, pod: Pod) -> float | None:
        """Decide on a pod that admission could not decide on completely (decision D7)."""
        try:
            raw = await self._client.get(PODS, pod.name, pod.namespace)
        except NotFoundError:
            return None
        live = self._decode(raw)
        if live.uid != pod.uid or not live.is_ours or live.is_ending:
            return None
        try:
            tracking = await self._tracking(live, _containers(raw).spec.containers)
        except OwnerGoneError as error:
            # The pod usually goes with its owner.
            self._orphaned(live, f"its owner {error} is gone")
            return LOOK_AGAIN
        if tracking is None and pod.wait_conditions is not None:
            await self._patch(live, _completion(live, {CHECKS_KEY: NONE}))
            return None
        if tracking is None:
            # This annotation alone shows that a pod without a gate is free.
            await self._release(live, {REMOVED_KEY: "true"})
            self._gone[pod.key] = pod
            return None
        if tracking.missing_container:
            text = f"no container {tracking.missing_container}, so the version is a hash"
            self._tell(live, Obstacle("CreateWorkload", "ContainerMissing", text))
        added = tracking.annotations
        if live.checks_state == NONE:
            added = {**added, CHECKS_KEY: WAITING}
        await self._patch(live, _completion(live, added))
        return None

    async def _tracking(self, pod: Pod, containers: Sequence[Container]) -> Tracking | None:
        """The annotations that the pod needs; None if it need not wait."""
        owner = supported_owner(pod.owner_references)
        metadata = Metadata(pod.annotations, pod.labels)
        if owner is None or metadata.get(REMOVED_KEY):
            return None
        if pod.wait_conditions is not None and not self._context.has_gates(pod.namespace):
            return None
        from_tag = self._context.settings.version_from_tag
        found = own(metadata, lambda: containers, version_from_tag=from_tag)
        if found is not None:
            return found
        parent = await inherited_metadata(self._client, pod.namespace, owner)
        if parent is None:
            return None
        return inherit(metadata, parent, lambda: containers, version_from_tag=from_tag)

    async def _age(self, pod: Pod) -> float | None:
        """Release or report a pod that waits too long; else return the seconds until then."""
        settings = self._context.settings
        limit = settings.max_gate_age_seconds
        if not limit or not pod.creation_timestamp or self._is_free(pod):
            return None
        age = (self._context.now() - parse_rfc3339(pod.creation_timestamp)).total_seconds()
        if age < limit:
            return limit - age
        place = "at the gate" if pod.is_gated else "in its scheduler"
        text = f"waits {place} for {age:.0f} s, longer than {limit:g} s"
        if settings.on_expiry == "Release":
            await self._release(pod, {RELEASED_KEY: EXPIRED})
            self._emit(pod, Obstacle("Gate", "Released", f"{text}: released without its checks"))
        elif self._overdue.get(pod.key) != pod.uid:
            self._overdue[pod.key] = pod.uid
            self._emit(pod, Obstacle("Gate", "Expired", text))
        return None

    async def _release(self, pod: Pod, add: Mapping[str, str] | None = None) -> None:
        def patch(of: Pod) -> list[dict[str, Any]] | None:
            annotations = of.annotations if of.has_annotations else None
            held: Any = {"drop": (PARENT_KEY,), "revision": of.resource_version}
            if of.is_in_scheduler:
                return nudge(of.uid, annotations, add or {}, **held)
            if not of.has_checks:
                held["drop"] += (CHECKS_KEY,)
            return removal(of.uid, of.gates, annotations, add=add, **held)

        operations = patch(pod)
        try:
            await self._patch(pod, operations)
        except (ConflictError, InvalidError):
            # Changed meanwhile, perhaps by the owner of the other gates.
            try:
                live = self._decode(await self._client.get(PODS, pod.name, pod.namespace))
            except NotFoundError:
                return
            if live.uid == pod.uid and live.is_ours:
                await self._patch(live, patch(live))
        self._gone[pod.key] = pod
        self._log.debug("pod released", pod=pod.key)

    async def _patch(self, pod: Pod, operations: list[dict[str, Any]] | None) -> None:
        if not operations:
            return
        try:
            await self._client.patch(PODS, pod.name, JsonPatch(operations), pod.namespace)
        except NotFoundError:
            return

    def _orphaned(self, pod: Pod, why: str) -> None:
        text = f"no check will release this pod, because {why}: run harbourmaster gate release"
        self._tell(pod, Obstacle("Gate", "Orphaned", text))

    def _tell(self, pod: Pod, what: Obstacle) -> None:
        """Report it if it changes, and again before its event expires."""
        now = asyncio.get_running_loop().time()
        told, at = self._told.get(pod.key, (None, 0.0))
        if told != what or now - at >= REPEAT:
            self._told[pod.key] = (what, now)
            self._emit(pod, what)

    def _tell_elsewhere(self, name: str) -> None:
        """Log once a scheduler that is not ours, which admission may have taken for ours."""
        settings = self._context.scheduler
        # Without a scheduler that asks us, pods name what they like; but not its name.
        if not settings.enabled and name != settings.scheduler_name:
            return
        if name in self._elsewhere or len(self._elsewhere) >= MOST_TOLD:
            return
        self._elsewhere.add(name)
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

    def _emit(self, pod: Pod, what: Obstacle) -> None:
        signals = self._context.signals
        about = Reference(PODS, pod.metadata)
        signals.emit(about, what.phase, what.state, what.text, warning=True)

    def _is_free(self, pod: Pod) -> bool:
        """Whether a pod in its scheduler waits for a node and not for us."""
        if not pod.is_in_scheduler or not pod.has_waited:
            return False
        described = workload_of(pod.annotations, pod.labels)
        owner = supported_owner(pod.owner_references)
        version = self._workloads.known(pod, described) if described is not None else None
        return version is not None and owner is not None and may_go(approval(version), owner.uid)

    def _forget(self, key: str) -> None:
        self._nudges.forget(key)
        for memory in (self._told, self._overdue, self._expired, self._gone):
            memory.pop(key, None)


def _completion(pod: Pod, annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    """The patch that gives a pod what it must carry, and ends what was provisional."""
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
    ]
    if PARENT_KEY in pod.annotations:
        at = annotation(PARENT_KEY)
        operations += [
            {"op": "test", "path": at, "value": UNRESOLVED},
            {"op": "remove", "path": at},
        ]
    if not pod.has_annotations:
        return [
            *operations,
            {"op": "add", "path": "/metadata/annotations", "value": dict(annotations)},
        ]
    return operations + [
        {"op": "add", "path": annotation(key), "value": value} for key, value in annotations.items()
    ]
