"""Pods that wait: why, since when, until when, and what each check says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

from msgspec import Struct

from controller.dashboard.pages.states import Notice, Part, Tally, Tone
from controller.dashboard.query import Listing, listed, turned
from controller.dashboard.world import found, values
from gates.workload import workload_of
from kube.resources import (
    APP_VERSIONS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    PODS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from lifecycle.check_facts import Facts
from lifecycle.gate_report import GateReport, case_of, gate_report
from lifecycle.gate_verdict import verdict_on
from lifecycle.model import MetricReference
from lifecycle.waiting import app_version_of
from lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime

    from controller.dashboard.query import Query
    from controller.dashboard.sight import Sight
    from controller.dashboard.world import Source, World
    from controller.lifecycle.gated_pods import Pod
    from evaluation.model import Metric
    from kube.resources import Resource
    from lifecycle.gate_verdict import Verdict
    from lifecycle.model import (
        AppVersion,
        Evaluation,
        EvaluationDefinition,
        Task,
        TaskDefinition,
    )

T = TypeVar("T")
K = TypeVar("K")

PATH: Final = "/gates"
NEEDED: Final = (PODS, WORKLOAD_VERSIONS, APP_VERSIONS)
"""What one must be allowed to list to see a waiting pod: else it can't be told why."""
DETAILS: Final = (
    WORKLOADS,
    TASKS,
    TASK_DEFINITIONS,
    EVALUATIONS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
)
"""Of what one may not list of these, a report says that it was not read."""
_TONES: Final[dict[str, Tone]] = {
    "app-failed": "bad",
    "checks-failed": "bad",
    "orphaned": "bad",
    "waits-for-version": "warn",
    "waits-for-owner": "warn",
    "checks-pending": "busy",
    "waits-for-app": "busy",
}
_WORDS: Final = {
    "ending": "ending",
    "foreign-gates-only": "gates of others",
    "released": "released",
    "not-gated": "not gated",
    "waits-in-scheduler": "waits for a node",
    "waits-for-owner": "waits for its owner",
    "orphaned": "orphaned",
    "waits-for-version": "waits for its version",
    "app-failed": "app failed",
    "waits-for-app": "waits for its app",
    "checks-failed": "checks failed",
    "checks-pending": "checks pending",
    "deployment-due": "deployment due",
}
_ORDER: Final = tuple(_WORDS)
_URGENCY: Final[dict[Tone, int]] = {"bad": 0, "warn": 1, "busy": 2, "idle": 3, "good": 4}
_MOST_NOTICES: Final = 20


class GateRow(Struct, frozen=True, gc=False):
    """One pod that waits."""

    report: GateReport
    word: str
    tone: Tone


class Gates(Struct, frozen=True):
    """The page."""

    listing: Listing[GateRow]
    parts: tuple[Part, ...]
    is_bounded: bool
    """Whether pods may wait only for so long."""


def gates(world: World, sight: Sight, query: Query, now: datetime) -> Gates:
    """The page: what nothing will release first, then who waits longest."""
    gatherer = _Gatherer(world, sight)
    waiting = _waiting(world, sight, gatherer, now)
    found_rows = listed(
        waiting,
        query,
        namespace=lambda each: each.pod.namespace,
        texts=lambda each: (each.pod.key, each.workload),
        key=_rank,
        holds=lambda each: not query.state or each.verdict.code == query.state,
    )
    rows = [
        GateRow(gate_report(each.pod, each.facts, world.rules, now), each.word, each.tone)
        for each in found_rows.rows
    ]
    is_bounded = world.rules.max_age_seconds > 0
    return Gates(turned(found_rows, rows), tuple(_parts(waiting)), is_bounded)


def tally(world: World, sight: Sight, now: datetime) -> Tally:
    """What the overview says of them."""
    waiting = _waiting(world, sight, _Gatherer(world, sight), now)
    urgent = sorted((each for each in waiting if each.is_urgent), key=_rank)
    return Tally(
        title="Gates",
        link=PATH,
        total=len(waiting),
        unit="pods wait",
        parts=tuple(_parts(waiting)),
        notices=tuple(
            Notice(
                tone="bad" if each.tone == "bad" else "warn",
                what="Pod",
                name=each.pod.key,
                text=f"waits for {each.verdict.text}",
                link=f"{PATH}?{urlencode({'namespace': each.pod.namespace, 'q': each.pod.name})}",
            )
            for each in urgent[:_MOST_NOTICES]
        ),
        is_off=world.gated_pods is None,
        is_refused=any(sight.of(each).is_empty for each in NEEDED),
    )


class _Waiting(NamedTuple):
    """A pod that waits, and why; what its checks say is found out for the few that are shown."""

    pod: Pod
    workload: str
    facts: Facts
    verdict: Verdict
    tone: Tone
    is_overdue: bool

    @property
    def word(self) -> str:
        return _WORDS.get(self.verdict.code, self.verdict.code)

    @property
    def is_urgent(self) -> bool:
        return self.tone == "bad" or self.is_overdue


def _waiting(world: World, sight: Sight, gatherer: _Gatherer, now: datetime) -> list[_Waiting]:
    scopes = [sight.of(each) for each in NEEDED]
    waiting = []
    for pod in values(world.gated_pods):
        if not pod.is_ours or not all(scope.sees(pod.namespace) for scope in scopes):
            continue
        facts = gatherer.facts(pod)
        case = case_of(pod, facts, world.rules, now)
        verdict = verdict_on(case)
        tone: Tone = "warn" if case.is_overdue else "idle"
        tone = _TONES.get(verdict.code, tone)
        described = case.described
        workload = "" if described is None else f"{described.app}/{described.workload}"
        waiting.append(_Waiting(pod, workload, facts, verdict, tone, case.is_overdue))
    return waiting


def _rank(each: _Waiting) -> tuple[int, str, str]:
    return _URGENCY[each.tone], each.pod.creation_timestamp, each.pod.key


def _parts(waiting: Sequence[_Waiting]) -> Iterator[Part]:
    counts: dict[str, tuple[int, Tone]] = {}
    for each in waiting:
        code = each.verdict.code
        count, tone = counts.get(code, (0, each.tone))
        counts[code] = (count + 1, tone)
    for name in sorted(counts, key=_ORDER.index):
        count, tone = counts[name]
        yield Part(_WORDS[name], count, tone, name)


class _Known(NamedTuple):
    """What may be seen in a namespace of what checks are judged by."""

    tasks: Mapping[str, Task]
    evaluations: Mapping[str, Evaluation]
    task_definitions: Mapping[str, TaskDefinition]
    definitions: Mapping[str, EvaluationDefinition]
    metrics: Mapping[MetricReference, Metric]
    unread: tuple[str, ...]


class _Gatherer:
    """Finds what is known of pods, one after the other; no more than may be seen."""

    def __init__(self, world: World, sight: Sight) -> None:
        self._world = world
        self._sight = sight
        self._known: dict[str, _Known] = {}
        self._apps: dict[tuple[str, str], list[AppVersion]] = {}
        for each in values(world.app_versions):
            place = (each.metadata.namespace, each.spec.app_name)
            self._apps.setdefault(place, []).append(each)

    def facts(self, pod: Pod) -> Facts:
        """What is known of one pod."""
        world, namespace = self._world, pod.namespace
        known = self._known.get(namespace)
        if known is None:
            known = self._known[namespace] = self._in(namespace)
        described = workload_of(pod.annotations, pod.labels)
        version = workload = app = None
        if described is not None:
            names = names_of_pod(described)
            version = found(world.workload_versions, f"{namespace}/{names.version}")
            if WORKLOADS.kind not in known.unread:
                workload = found(world.workloads, f"{namespace}/{names.workload}")
            if version is not None:
                app = app_version_of(version, self._apps.get((namespace, version.spec.app), ()))
        return Facts(
            workload=workload,
            version=version,
            app=app,
            tasks=known.tasks,
            evaluations=known.evaluations,
            task_definitions=known.task_definitions,
            definitions=known.definitions,
            metrics=known.metrics,
            unread=known.unread,
        )

    def _in(self, namespace: str) -> _Known:
        world = self._world
        places = tuple(dict.fromkeys((namespace, *world.definition_namespaces)))
        metrics = self._named(world.metrics, KEPTN_METRICS, places)
        return _Known(
            tasks=self._named(world.tasks, TASKS, (namespace,)),
            evaluations=self._named(world.evaluations, EVALUATIONS, (namespace,)),
            task_definitions=self._named(world.task_definitions, TASK_DEFINITIONS, places),
            definitions=self._named(world.evaluation_definitions, EVALUATION_DEFINITIONS, places),
            metrics=_Metrics(metrics, self._metric),
            unread=tuple(each.kind for each in DETAILS if not self._sight.sees(each, namespace)),
        )

    def _named(
        self, source: Source[T] | None, kind: Resource, places: Iterable[str]
    ) -> Mapping[str, T]:
        return _Named(source, [each for each in places if self._sight.sees(kind, each)])

    def _metric(self, reference: MetricReference) -> Metric | None:
        if not self._sight.sees(KEPTN_METRICS, reference.namespace):
            return None
        return found(self._world.metrics, f"{reference.namespace}/{reference.name}")


class _Found(Mapping[K, T], Generic[K, T]):
    """Looks up one thing at a time; it can't be walked."""

    def find(self, key: K) -> T | None:
        raise NotImplementedError

    def __getitem__(self, key: K) -> T:
        got = self.find(key)
        if got is None:
            raise KeyError(key)
        return got

    def __iter__(self) -> Iterator[K]:
        return iter(())

    def __len__(self) -> int:
        return 0


class _Named(_Found[str, T]):
    """The objects of a source by name, in the first of the namespaces that has it."""

    def __init__(self, source: Source[T] | None, places: Sequence[str]) -> None:
        self._source = source
        self._places = places

    def find(self, key: str) -> T | None:
        for place in self._places:
            got = found(self._source, f"{place}/{key}")
            if got is not None:
                return got
        return None


class _Metrics(_Found[MetricReference, Any]):
    """Metrics by references, which may name a namespace."""

    def __init__(self, named: Mapping[str, Any], elsewhere: Any) -> None:  # noqa: ANN401 - a method
        self._named = named
        self._elsewhere = elsewhere

    def find(self, key: MetricReference) -> Any:  # noqa: ANN401 - a Metric
        return self._elsewhere(key) if key.namespace else self._named.get(key.name)
