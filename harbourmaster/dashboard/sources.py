"""The sources of pages: caches of the dashboard or of a controller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from harbourmaster.api.resources import (
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
from harbourmaster.dashboard.conflicts import Conflict
from harbourmaster.lifecycle.gate_verdict import GateWaitRules
from harbourmaster.policies.compiled import CompiledPolicy
from harbourmaster.policies.model import Policy

if TYPE_CHECKING:
    import asyncio

    from msgspec import Raw

    from harbourmaster.evaluation.model import Metric
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
    PODS: "gated_pods",
    POLICIES: "policies",
    CLUSTER_POLICIES: "cluster_policies",
    APPLICATIONS: "applications",
    CLUSTERS: "clusters",
    NODES: "nodes",
}
"""Where the objects of a kind are in the sources."""


class Source(Protocol[T]):
    """A mirror as far as pages read it; a Reflector is one."""

    store: Store[T]
    synced: asyncio.Event
    absent: bool
    error: str | None
    is_forbidden: bool


class WaitSource(Protocol):
    """The objects for which pods wait; both answers are about the pods of one namespace."""

    def reports(self, namespace: str) -> Mapping[WaitItem, ItemReport]:
        """How the items of their waits stand."""

    def cycles(self, namespace: str) -> Mapping[tuple[str, str], str]:
        """Cycles of waits by workload, as ``wait_cycles`` names it."""


class KnownPolicy(Struct, frozen=True, gc=False):
    """A policy as it was written, and as it works; the first is empty where it can't be read."""

    policy: Policy
    compiled: CompiledPolicy


class LabelledPod(Struct, frozen=True, gc=False):
    """A pod as far as policies choose by it."""

    namespace: str
    labels: dict[str, str]


class MatchCounts(Struct, frozen=True):
    """How many pods each policy selects, by its reference and their namespace."""

    by_policy: Mapping[str, Mapping[str, int]] = {}
    pods: Mapping[str, int] = {}
    """How many there are."""
    is_whole: bool = True
    """Whether all pods, policies and namespaces were known when they were counted."""
    conflicts: tuple[Conflict, ...] = ()
    is_searched: bool = True
    """Whether conflicts were searched in all sets of policies."""


@dataclass(frozen=True, kw_only=True)
class PageSources:
    """The sources of all pages; None where nobody mirrors a kind, as its controller is off."""

    app_versions: Source[AppVersion] | None = None
    workloads: Source[Workload] | None = None
    workload_versions: Source[WorkloadVersion] | None = None
    tasks: Source[Task] | None = None
    task_definitions: Source[TaskDefinition] | None = None
    evaluations: Source[Evaluation] | None = None
    evaluation_definitions: Source[EvaluationDefinition] | None = None
    metrics: Source[Metric] | None = None
    gated_pods: Source[Pod] | None = None
    waits: WaitSource | None = None
    policies: Source[KnownPolicy] | None = None
    cluster_policies: Source[KnownPolicy] | None = None
    applications: Source[Application] | None = None
    clusters: Source[ReportedCluster] | None = None
    nodes: Source[Node] | None = None
    namespaces: Source[dict[str, str]] | None = None
    """Their labels."""
    labels: Source[LabelledPod] | None = None
    """Those of all pods, by which they are counted."""
    counts: MatchCounts = field(default_factory=MatchCounts)
    rules: GateWaitRules = field(default_factory=GateWaitRules)
    definition_namespaces: tuple[str, ...] = ()
    """Where definitions and metrics are looked up after an object's own namespace."""

    pod: bytes | Raw | None = None
    """The pod that a page is about, as the API server has it."""

    def named(self, name: str) -> Source[Any] | None:
        """The source of that name here."""
        found: Source[Any] | None = getattr(self, name)
        return found


def values(source: Source[T] | None) -> tuple[T, ...]:
    """What a source has; nothing where there is none."""
    return () if source is None else tuple(source.store.values())


def found(source: Source[T] | None, key: str) -> T | None:
    """One object of a source."""
    return None if source is None else source.store.get(key)
