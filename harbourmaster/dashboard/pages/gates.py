"""Builds the page of waiting pods, with the reasons and the checks that the user may see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import (
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
from harbourmaster.dashboard.pages.states import URGENCY, Notice, StateCount, Tone, Topic
from harbourmaster.dashboard.query import Listing, select_page
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.check_facts import facts_in, with_version
from harbourmaster.lifecycle.gate_report import GateReport, case_of, gate_report
from harbourmaster.lifecycle.gate_verdict import BLOCKED, IN_PROGRESS, sentence, verdict_on
from harbourmaster.lifecycle.wait_cycles import workload_of_pod
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.pages.states import Tally
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.slicing import Sliced
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.gate_verdict import GateVerdict, GateWaitRules
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import AppVersion


PATH: Final = "/gates"
NEEDED: Final = (PODS, WORKLOAD_VERSIONS, APP_VERSIONS)
"""Kinds that a user must be allowed to list to see why a pod waits."""
_TOPIC: Final = Topic("Gates", PATH, ("pod waits", "pods wait"), (NEEDED,))
_WORDS: Final = {
    "ending": "ending",
    "foreign-gates-only": "gates of others",
    "released": "release due",
    "not-gated": "not gated",
    "waits-in-scheduler": "waits for a node",
    "waits-for-owner": "waits for its owner",
    "orphaned": "orphaned",
    "superseded": "superseded",
    "waits-for-version": "waits for its version",
    "app-failed": "app failed",
    "waits-for-app": "waits for its app",
    "checks-failed": "checks failed",
    "checks-pending": "waits for checks",
    "stage-held": "stage held",
    "stage-pending": "waits for a stage",
    "wait-blocked": "blocked",
    "waits-for-objects": "waits for objects",
    "deployment-due": "deployment due",
}
_ORDER: Final = tuple(_WORDS)
_SLICE: Final = 100
"""Pods that are evaluated before other tasks may run, which takes some milliseconds."""


class GateRow(Struct, frozen=True, gc=False):
    """A waiting pod."""

    report: GateReport
    word: str
    tone: Tone


class GatesPage(Struct, frozen=True):
    """The page of waiting pods."""

    listing: Listing[GateRow]
    parts: tuple[StateCount, ...]
    is_bounded: bool
    """Whether the time for which pods can wait is limited."""


def gates(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> Sliced[GatesPage]:
    """Build the page: blocked pods first, then those that wait longest.

    Details are read only for the pods on the page, because that takes long.
    """
    waiting = yield from _waiting(sources, visible, now)
    listing = select_page(
        waiting,
        query,
        namespace=lambda candidate: candidate.pod.namespace,
        texts=lambda candidate: (candidate.pod.key, candidate.workload),
        key=_rank,
        row=lambda candidate: _row(candidate, sources.rules, now),
        holds=lambda candidate: not query.state or candidate.verdict.code == query.state,
    )
    return GatesPage(listing, tuple(_parts(waiting)), sources.rules.max_age_seconds > 0)


def tally(sources: PageSources, visible: Visibility, now: datetime) -> Sliced[Tally]:
    """Count waiting pods for the overview."""
    waiting = yield from _waiting(sources, visible, now)
    urgent = sorted((candidate for candidate in waiting if candidate.is_urgent), key=_rank)
    return _TOPIC.tally(sources, visible, waiting, _parts(waiting), urgent, _notice)


def gate_of(sources: PageSources, visible: Visibility, key: str, now: datetime) -> GateRow | None:
    """Return why one pod waits; None if it does not, or if the user cannot see why."""
    pod = lookup(sources.gated_pods, key)
    if pod is None or not pod.is_ours:
        return None
    if not all(visible.sees(kind, pod.namespace) for kind in NEEDED):
        return None
    facts = GateFactsReader(sources, visible).facts(pod)
    return _row(_evaluate(pod, facts, sources.rules, now), sources.rules, now)


class _Waiting(NamedTuple):
    """A waiting pod and the verdict; its checks are read only if it is shown."""

    pod: Pod
    workload: str
    facts: Facts
    verdict: GateVerdict
    tone: Tone
    is_late: bool

    @property
    def word(self) -> str:
        return _WORDS.get(self.verdict.code, self.verdict.code)

    @property
    def is_urgent(self) -> bool:
        return self.tone == "bad" or self.is_late


def _notice(waiting: _Waiting) -> Notice:
    pod = waiting.pod
    link = f"{PATH}?{urlencode({'namespace': pod.namespace, 'q': pod.name})}"
    tone: Tone = "bad" if waiting.tone == "bad" else "warn"
    text = sentence(waiting.verdict.code, waiting.verdict.text)
    return Notice(tone, "Pod", pod.key, text, link)


def _waiting(sources: PageSources, visible: Visibility, now: datetime) -> Sliced[list[_Waiting]]:
    scopes = [visible.of(kind) for kind in NEEDED]
    reader = GateFactsReader(sources, visible)
    waiting = []
    for number, pod in enumerate(values(sources.gated_pods), 1):
        if not number % _SLICE:
            yield
        if not pod.is_ours or not all(scope.sees(pod.namespace) for scope in scopes):
            continue
        waiting.append(_evaluate(pod, reader.facts(pod), sources.rules, now))
    return waiting


def _evaluate(pod: Pod, facts: Facts, rules: GateWaitRules, now: datetime) -> _Waiting:
    case = case_of(pod, facts, rules, now)
    verdict = verdict_on(case)
    is_late = case.is_overdue or verdict.is_stuck(case.age)
    tone: Tone = "warn" if is_late else "idle"
    if verdict.code in BLOCKED:
        tone = "bad"
    elif verdict.code in IN_PROGRESS and not verdict.is_stuck(case.age):
        tone = "busy"
    described = case.described if pod.has_checks else None
    workload = "" if described is None else f"{described.app}/{described.workload}"
    return _Waiting(pod, workload, facts, verdict, tone, is_late)


def _row(waiting: _Waiting, rules: GateWaitRules, now: datetime) -> GateRow:
    return GateRow(gate_report(waiting.pod, waiting.facts, rules, now), waiting.word, waiting.tone)


def _rank(waiting: _Waiting) -> tuple[int, str, str]:
    return URGENCY[waiting.tone], waiting.pod.creation_timestamp, waiting.pod.key


def _parts(waiting: Sequence[_Waiting]) -> Iterator[StateCount]:
    counts: dict[str, tuple[int, Tone]] = {}
    for pod in waiting:
        count, tone = counts.get(pod.verdict.code, (0, pod.tone))
        counts[pod.verdict.code] = (count + 1, tone)
    for code in sorted(counts, key=lambda code: (URGENCY[counts[code][1]], _ORDER.index(code))):
        count, tone = counts[code]
        yield StateCount(_WORDS[code], count, tone, code)


DETAILS: Final = (
    WORKLOADS,
    TASKS,
    TASK_DEFINITIONS,
    EVALUATIONS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
)
"""Kinds of which a report says that they were not read, unless the user is allowed to list them."""
DEFINITIONS: Final = (TASK_DEFINITIONS, EVALUATION_DEFINITIONS, KEPTN_METRICS)
"""Kinds whose objects may also be in a namespace that serves all others."""


class GateFactsReader:
    """Reads the facts about pods that a user is allowed to see from the sources of a page."""

    def __init__(self, sources: PageSources, visible: Visibility) -> None:
        self._sources = sources
        self._visible = visible
        self._by_namespace: dict[str, Facts] = {}
        self._apps: dict[tuple[str, str], list[AppVersion]] = {}
        for version in values(sources.app_versions):
            place = (version.metadata.namespace, version.spec.app_name)
            self._apps.setdefault(place, []).append(version)

    def facts(self, pod: Pod) -> Facts:
        """Return the facts about one pod."""
        namespace, waits = pod.namespace, self._sources.waits
        facts = self.facts_in(namespace)
        described = workload_of(pod.annotations, pod.labels)
        if described is not None:
            key = f"{namespace}/{names_of_pod(described).version}"
            version = self._find(WORKLOAD_VERSIONS, key)
            apps = self._apps.get((namespace, version.spec.app), ()) if version is not None else ()
            facts = with_version(facts, version, apps, self._find)
        if pod.wait_conditions is not None and waits is not None:
            cycle = waits.cycles(namespace).get(workload_of_pod(pod), "")
            facts = replace(facts, cycle=cycle)
        return facts

    def facts_in(self, namespace: str) -> Facts:
        """Return the facts about the checks and waits in a namespace."""
        if namespace not in self._by_namespace:
            places = tuple(dict.fromkeys((namespace, *self._sources.definition_namespaces)))
            waits = self._sources.waits
            self._by_namespace[namespace] = replace(
                facts_in(namespace, places, self._find),
                items=waits.reports(namespace) if waits is not None else {},
                unread=tuple(
                    kind.kind
                    for kind in DETAILS
                    if not all(
                        self._visible.sees(kind, place)
                        for place in (places if kind in DEFINITIONS else (namespace,))
                    )
                ),
            )
        return self._by_namespace[namespace]

    def _find(self, resource: Resource, key: str) -> Any:  # noqa: ANN401 - an object of that kind
        if not self._visible.sees(resource, key.partition("/")[0]):
            return None
        return lookup(self._sources.of(resource), key)
