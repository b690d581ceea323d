"""Computes the values of Keptn's metrics from the caches (keptn-spec 5.5)."""

from __future__ import annotations

from collections import Counter, defaultdict
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harbourmaster.api.resources import APP_VERSIONS, WORKLOAD_VERSIONS
from harbourmaster.api.times import seconds_between
from harbourmaster.controller.lifecycle.latest import LatestValues
from harbourmaster.controller.lifecycle.metrics import (
    APP,
    BLOCKED,
    EVALUATION,
    PENDING,
    PROMOTION,
    SHOWN,
    TASK,
    WORKLOAD,
    GaugeValues,
)
from harbourmaster.gates.waits import WAIT_FOR_KEY, WAIT_KEYS, WAITED_KEY
from harbourmaster.lifecycle.model import COMPLETED, AppVersion, Task, WorkloadVersion
from harbourmaster.lifecycle.subjects import PROMOTION as PROMOTION_CHECK
from harbourmaster.lifecycle.subjects import owners_of, state_of
from harbourmaster.lifecycle.wait_cycles import workload_of_pod
from harbourmaster.lifecycle.wait_items import wait_report

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from harbourmaster.controller.lifecycle.caches import LifecycleCaches
    from harbourmaster.controller.lifecycle.metrics import LifecycleMetrics
    from harbourmaster.kube.store import Store
    from harbourmaster.lifecycle.model import Version
    from harbourmaster.lifecycle.subjects import Finishable

T = TypeVar("T", bound="Finishable")
REMEMBERED: Final = 1024
"""Maximum finished objects kept to drop duplicates, which come within seconds."""
_WAIT_KEYS: Final = (*WAIT_KEYS, WAITED_KEY)
_PARENTS: Final = {APP_VERSIONS.kind: APP, WORKLOAD_VERSIONS.kind: WORKLOAD}
_KINDS: Final = {AppVersion: APP, WorkloadVersion: WORKLOAD, Task: TASK}


class EndingCounter:
    """Counts each object that ends once."""

    def __init__(self, metrics: LifecycleMetrics) -> None:
        self._metrics = metrics
        self._counted: LatestValues[str, None] = LatestValues(REMEMBERED)

    def count(self, obj: Finishable) -> None:
        """Count an object that has its final status, unless it was counted."""
        # A version that failed may succeed later, which is another end.
        if not self._counted.add(f"{obj.metadata.uid}/{state_of(obj)}", None):
            return
        kind = _KINDS.get(type(obj), EVALUATION)
        labels = (*labels_of(obj), state_of(obj))
        seconds = seconds_between(obj.status.start_time, obj.status.end_time) or 0.0
        self._metrics.count_finished(kind, labels, seconds, _anchor(obj))
        if isinstance(obj, Task) and obj.spec.check_type == PROMOTION_CHECK:
            self._metrics.count_finished(PROMOTION, labels, seconds, _anchor(obj))


class MetricValues:
    """Reads the values of the gauges from ``caches``."""

    def __init__(self, caches: LifecycleCaches) -> None:
        self._caches = caches
        self._stores: dict[str, Store[Any]] = {
            APP: caches.app_versions.store,
            WORKLOAD: caches.workload_versions.store,
            TASK: caches.tasks.store,
            EVALUATION: caches.evaluations.store,
        }

    def exists(self, anchor: tuple[str, str]) -> bool:
        """Whether the object with that kind and key exists."""
        kind, key = anchor
        return key in self._stores[kind]

    def read_gauges(self) -> GaugeValues:
        """Return the current values."""
        caches = self._caches
        apps, workloads = caches.app_versions.store, caches.workload_versions.store
        return GaugeValues(
            active={kind: _active(store.values()) for kind, store in self._stores.items()},
            intervals={APP: _intervals(apps.values()), WORKLOAD: _intervals(workloads.values())},
            durations={APP: _durations(apps.values()), WORKLOAD: _durations(workloads.values())},
            gated_pods=sum(pod.is_held for pod in caches.pods.store.values()),
            waiting_pods=_waiting_pods(caches),
            stages=Counter(
                version.status.stage.state
                for version in workloads.values()
                if version.status.stage and not version.status.is_finished
            ),
            excess_pods={
                tuple(key.split("/")): number
                for key, number in caches.excess_pods.items()
                if key in workloads
            },
        )


def _waiting_pods(caches: LifecycleCaches) -> Counter[str]:
    counter: Counter[str] = Counter()
    # The pods of a workload are alike, and there may be thousands.
    alike: dict[tuple[str | None, ...], str] = {}
    for pod in caches.pods.store.values():
        if WAIT_FOR_KEY not in pod.annotations or not pod.is_ours:
            continue
        cycle = caches.wait_watches.cycles(pod.namespace).get(workload_of_pod(pod), "")
        key = (pod.namespace, cycle, *map(pod.annotations.get, _WAIT_KEYS))
        if key not in alike:
            # Without an age, because one that waited too long is marked or goes.
            report = wait_report(pod, caches.wait_watches.reports(pod.namespace), 0.0, cycle)
            alike[key] = BLOCKED if report.blocked else "" if report.is_over else PENDING
        counter[alike[key]] += 1
    return counter


def labels_of(obj: Finishable) -> tuple[str, ...]:
    """Return the label values for KEYS, with a definition's name for each task and evaluation.

    A task or evaluation that no version controls was created by hand, so the app that it names is
    not proven and left out.
    """
    namespace = obj.metadata.namespace
    if isinstance(obj, AppVersion):
        return (obj.spec.app_name, obj.spec.version, namespace)
    if isinstance(obj, WorkloadVersion):
        return (obj.spec.app, obj.spec.workload_name, obj.spec.version, namespace)
    owner = obj.metadata.controller
    owners = owners_of(obj) if owner is not None and owner.kind in _PARENTS else ("",) * 4
    if isinstance(obj, Task):
        return (*owners, obj.spec.task_definition, obj.spec.check_type)
    return (*owners, obj.spec.evaluation_definition, obj.spec.check_type)


def _anchor(obj: Finishable) -> tuple[str, str]:
    """Return the object with which a series ends: of a task or evaluation, its version."""
    kind = _KINDS.get(type(obj), EVALUATION)
    owner = obj.metadata.controller
    parent = _PARENTS.get(owner.kind) if owner is not None else None
    if kind in {TASK, EVALUATION} and owner is not None and parent is not None:
        return parent, f"{obj.metadata.namespace}/{owner.name}"
    return kind, obj.metadata.key


def _active(objects: Collection[Finishable]) -> Counter[tuple[str, ...]]:
    """Count unfinished objects by label values, with 0 for the latest finished ones."""
    counter: Counter[tuple[str, ...]] = Counter()
    over = []
    for obj in objects:
        # A superseded version may have no end time.
        if obj.status.end_time or state_of(obj) in COMPLETED:
            over.append(obj)
        else:
            counter[labels_of(obj)] += 1
    for obj in _latest(over):
        counter[labels_of(obj)] += 0
    return counter


def _latest(objects: Iterable[T]) -> list[T]:
    """Return the SHOWN objects that ended last, in this order."""
    return nlargest(SHOWN, objects, key=lambda obj: obj.status.end_time)[::-1]


def _durations(versions: Iterable[Version]) -> dict[tuple[str, ...], float]:
    durations = {}
    for version in _latest(version for version in versions if version.status.end_time):
        seconds = seconds_between(version.status.start_time, version.status.end_time)
        if seconds is not None:
            durations[_deployment(version)] = seconds
    return durations


def _intervals(versions: Iterable[Version]) -> dict[tuple[str, ...], float]:
    """Return the seconds from the end of the previous version to the start of each version.

    If the previous version ran several times, the latest end before the start counts.
    """
    ends: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    later = []
    for version in versions:
        namespace, name = version.metadata.namespace, _name(version)
        if version.status.end_time:
            ends[namespace, name, version.spec.version].append(version.status.end_time)
        if version.spec.previous_version and version.status.start_time:
            later.append(((namespace, name, version.spec.previous_version), version))
    intervals = {}
    for before, version in nlargest(SHOWN, later, key=lambda pair: pair[1].status.start_time)[::-1]:
        gaps = (seconds_between(end, version.status.start_time) for end in ends.get(before, ()))
        past = [gap for gap in gaps if gap is not None and gap >= 0]
        if past:
            intervals[_deployment(version)] = min(past)
    return intervals


def _deployment(version: Version) -> tuple[str, ...]:
    return (*labels_of(version), version.spec.previous_version)


def _name(version: Version) -> str:
    return version.spec.app_name if isinstance(version, AppVersion) else version.spec.workload_name
