"""Finds the facts about waiting pods, one pod after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec.structs import replace

from harbourmaster.api.resources import (
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOADS,
)
from harbourmaster.dashboard.sources import found, values
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.check_facts import Facts
from harbourmaster.lifecycle.wait_cycles import workload_of_pod
from harbourmaster.lifecycle.waiting import app_version_of
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.sources import PageSources, Source
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import AppVersion, MetricReference

T = TypeVar("T")
K = TypeVar("K")

DETAILS: Final = (
    WORKLOADS,
    TASKS,
    TASK_DEFINITIONS,
    EVALUATIONS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
)
"""Of what the user is not allowed to list, a report says that it was not read."""
DEFINITIONS: Final = (TASK_DEFINITIONS, EVALUATION_DEFINITIONS, KEPTN_METRICS)
"""What may also lie in a namespace that serves all others."""


class Gatherer:
    """Finds what is known of pods, one after the other; no more than may be seen."""

    def __init__(self, sources: PageSources, visible: Visibility) -> None:
        self._sources = sources
        self._visible = visible
        self._known: dict[str, Facts] = {}
        self._apps: dict[tuple[str, str], list[AppVersion]] = {}
        for value in values(sources.app_versions):
            place = (value.metadata.namespace, value.spec.app_name)
            self._apps.setdefault(place, []).append(value)

    def facts(self, pod: Pod) -> Facts:
        """What is known of one pod."""
        sources, namespace = self._sources, pod.namespace
        known = self.facts_in(namespace)
        described = workload_of(pod.annotations, pod.labels)
        version = workload = app = None
        if described is not None:
            names = names_of_pod(described)
            version = found(sources.workload_versions, f"{namespace}/{names.version}")
            if WORKLOADS.kind not in known.unread:
                workload = found(sources.workloads, f"{namespace}/{names.workload}")
            if version is not None:
                app = app_version_of(version, self._apps.get((namespace, version.spec.app), ()))
        waits, cycle = sources.waits, ""
        if pod.waits is not None and waits is not None:
            cycle = waits.cycles(namespace).get(workload_of_pod(pod), "")
        return replace(known, workload=workload, version=version, app=app, cycle=cycle)

    def facts_in(self, namespace: str) -> Facts:
        """What may be seen in a namespace of what checks are judged by."""
        if namespace not in self._known:
            self._known[namespace] = self._find(namespace)
        return self._known[namespace]

    def _find(self, namespace: str) -> Facts:
        sources = self._sources
        places = tuple(dict.fromkeys((namespace, *sources.definition_namespaces)))
        metrics = self._named(sources.metrics, KEPTN_METRICS, places)
        waits = sources.waits
        return Facts(
            items=waits.reports(namespace) if waits is not None else {},
            tasks=self._named(sources.tasks, TASKS, (namespace,)),
            evaluations=self._named(sources.evaluations, EVALUATIONS, (namespace,)),
            task_definitions=self._named(sources.task_definitions, TASK_DEFINITIONS, places),
            definitions=self._named(sources.evaluation_definitions, EVALUATION_DEFINITIONS, places),
            metrics=_Found(
                lambda each: self._metric(each) if each.namespace else metrics.get(each.name)
            ),
            unread=tuple(
                detail.kind for detail in DETAILS if self._is_unread(detail, namespace, places)
            ),
        )

    def _is_unread(self, kind: Resource, namespace: str, places: Iterable[str]) -> bool:
        """Whether one may be where it is not seen: then it must not be called missing."""
        looked_at = places if kind in DEFINITIONS else (namespace,)
        return not all(self._visible.sees(kind, each) for each in looked_at)

    def _named(
        self, source: Source[T] | None, kind: Resource, places: Iterable[str]
    ) -> Mapping[str, T]:
        """The objects of a source by name, in the first of the namespaces that has it."""
        seen = [each for each in places if self._visible.sees(kind, each)]

        def find(name: str) -> T | None:
            got = (found(source, f"{place}/{name}") for place in seen)
            return next((each for each in got if each is not None), None)

        return _Found(find)

    def _metric(self, reference: MetricReference) -> Metric | None:
        if not self._visible.sees(KEPTN_METRICS, reference.namespace):
            return None
        return found(self._sources.metrics, f"{reference.namespace}/{reference.name}")


class _Found(Mapping[K, T], Generic[K, T]):
    """Looks up one thing at a time; it can't be walked."""

    def __init__(self, find: Callable[[K], T | None]) -> None:
        self._find = find

    def __getitem__(self, key: K) -> T:
        got = self._find(key)
        if got is None:
            raise KeyError(key)
        return got

    def __iter__(self) -> Iterator[K]:
        return iter(())

    def __len__(self) -> int:
        return 0
