"""The sources of pages: caches of the dashboard or of a controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    APP_VERSIONS,
    APPLICATIONS,
    CLUSTER_POLICIES,
    CLUSTERS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    NODES,
    PODS,
    POLICIES,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.api.selectors import EVERYTHING
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from harbourmaster.policies.compiled import CompiledPolicy
from harbourmaster.policies.explain import ExplainedPolicy, explain
from harbourmaster.policies.merge import MergeOptions
from harbourmaster.policies.model import Policy
from harbourmaster.policies.pods import PodView

if TYPE_CHECKING:
    import asyncio

    from harbourmaster.api.resources import Resource
    from harbourmaster.evaluation.model import Analysis, AnalysisDefinition, Metric
    from harbourmaster.gates.waits import WaitItem
    from harbourmaster.kube.store import Store
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import (
        AppVersion,
        Evaluation,
        EvaluationDefinition,
        Task,
        TaskDefinition,
        Workload,
        WorkloadVersion,
    )
    from harbourmaster.lifecycle.wait_items import ItemReport
    from harbourmaster.placement.model import Application, ReportedCluster
    from harbourmaster.rescheduling.model import Node


T = TypeVar("T")


SOURCES: Final = {
    APP_VERSIONS: "app_versions",
    WORKLOADS: "workloads",
    WORKLOAD_VERSIONS: "workload_versions",
    TASKS: "tasks",
    TASK_DEFINITIONS: "task_definitions",
    EVALUATIONS: "evaluations",
    EVALUATION_DEFINITIONS: "evaluation_definitions",
    KEPTN_METRICS: "metrics",
    ANALYSES: "analyses",
    ANALYSIS_DEFINITIONS: "analysis_definitions",
    PODS: "gated_pods",
    POLICIES: "policies",
    CLUSTER_POLICIES: "cluster_policies",
    APPLICATIONS: "applications",
    CLUSTERS: "clusters",
    NODES: "nodes",
}
"""The attributes of PageSources by the kind of their objects."""


class Source(Protocol[T]):
    """The attributes of a Reflector that pages read."""

    store: Store[T]
    synced: asyncio.Event
    absent: bool
    error: str | None
    is_forbidden: bool


class WaitSource(Protocol):
    """The objects for which the pods of a namespace wait."""

    def reports(self, namespace: str) -> Mapping[WaitItem, ItemReport]:
        """Return the state of each object for which pods wait."""

    def cycles(self, namespace: str) -> Mapping[tuple[str, str], str]:
        """Return the cycles of waits by workload, as ``wait_cycles`` identifies it."""


class KnownPolicy(Struct, frozen=True, gc=False):
    """A policy as it is stored, and compiled; the former is empty if it cannot be decoded."""

    policy: Policy
    compiled: CompiledPolicy


class LabelledPod(Struct, frozen=True, gc=False):
    """The fields of a pod by which policies select it."""

    namespace: str
    labels: dict[str, str]


class MatchCounts(Struct, frozen=True):
    """The number of pods that each policy selects, by its reference and their namespace."""

    by_policy: Mapping[str, Mapping[str, int]] = {}
    pods: Mapping[str, int] = {}
    """The number of all pods, by namespace."""
    is_whole: bool = True
    """Whether all caches were filled when the pods were counted."""
    conflicts: tuple[Conflict, ...] = ()
    is_searched: bool = True
    """Whether conflicts were searched in all sets of policies."""


@dataclass(frozen=True, kw_only=True)
class PageSources:
    """The sources of all pages; None for a kind whose controller is off."""

    app_versions: Source[AppVersion] | None = None
    workloads: Source[Workload] | None = None
    workload_versions: Source[WorkloadVersion] | None = None
    tasks: Source[Task] | None = None
    task_definitions: Source[TaskDefinition] | None = None
    evaluations: Source[Evaluation] | None = None
    evaluation_definitions: Source[EvaluationDefinition] | None = None
    metrics: Source[Metric] | None = None
    analyses: Source[Analysis] | None = None
    analysis_definitions: Source[AnalysisDefinition] | None = None
    gated_pods: Source[Pod] | None = None
    waits: WaitSource | None = None
    policies: Source[KnownPolicy] | None = None
    cluster_policies: Source[KnownPolicy] | None = None
    applications: Source[Application] | None = None
    clusters: Source[ReportedCluster] | None = None
    nodes: Source[Node] | None = None
    namespaces: Source[dict[str, str]] | None = None
    """The labels of namespaces."""
    labels: Source[LabelledPod] | None = None
    """The labels of all unfinished pods."""
    counts: MatchCounts = field(default_factory=MatchCounts)
    rules: GateWaitRules = field(default_factory=GateWaitRules)
    definition_namespaces: tuple[str, ...] = ()
    """The namespaces whose definitions and metrics serve all other namespaces."""

    read: Any = None
    """The result of ``Page.reads``; None for a page without."""

    def of(self, kind: Resource) -> Source[Any] | None:
        """Return the source of a kind; None if its controller is off, or if no cache has it."""
        source: Source[Any] | None = getattr(self, SOURCES.get(kind, ""), None)
        return source


def values(source: Source[T] | None) -> tuple[T, ...]:
    """Return all objects of a source; none without a source."""
    return () if source is None else tuple(source.store.values())


def lookup(source: Source[T] | None, key: str) -> T | None:
    """Return one object of a source, or None."""
    return None if source is None else source.store.get(key)


MOST: Final = 256
"""Maximum sets of policies that are searched."""
MOST_OF_SET: Final = 50
"""Maximum policies of a set: the cost grows with their square and blocks the event loop."""


class Conflict(Struct, frozen=True):
    """A field for which policies ask for different values."""

    policies: tuple[str, ...]
    """The references of the policies, first the one whose value is not used."""
    text: str


@lru_cache(maxsize=MOST)
def conflicts_of(selecting: tuple[CompiledPolicy, ...]) -> tuple[Conflict, ...]:
    """Return the conflicts of policies that select one pod, which sets no field itself."""
    whole = {"namespace": None, "namespaces": EVERYTHING, "pods": EVERYTHING}
    candidates = [ExplainedPolicy(replace(policy, **whole)) for policy in selecting]
    conflicts = []
    for report in explain(PodView({}, None), "/spec", "", {}, candidates, MergeOptions()).policies:
        rivals = dict.fromkeys(
            by for contribution in report.contributions for by in contribution.by
        )
        for contribution in report.contributions:
            if contribution.rule == "won-by":
                text = f"{contribution.path} stays {contribution.present}, not {contribution.value}"
                conflicts.append(Conflict((report.reference, *contribution.by), text))
        texts = [note.text for note in report.warnings if note.code == "affinity-conflict"]
        conflicts += [Conflict((report.reference, *rivals), text) for text in texts]
    return tuple(conflicts)
