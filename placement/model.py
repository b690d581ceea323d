"""Objects of placement.harbourmaster.dev/v1alpha1 as a decision reads them (krake-spec 1, 7.1).

Projections: fields that no decision reads are not kept, and empty ones are not written. Times are
RFC 3339 in UTC.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.api import metadata
from harbourmaster.api.metadata import Metadata

GROUP: Final = "placement.harbourmaster.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"

SCHEDULED: Final = "Scheduled"
REACHABLE: Final = "Reachable"
NODES_READY: Final = "NodesReady"
TRUE: Final = "True"
FALSE: Final = "False"
NO_ANSWER: Final = "NoAnswer"
"""The reason of a cluster that is not reachable, where nothing else is known to be the matter."""

DEGRADED: Final = "Degraded"
FAILED: Final = "Failed"
PENDING: Final = "Pending"
RUNNING: Final = "Running"

MIGRATION_VOLUMES: Final = f"{GROUP}/migration-volumes"
RECREATE: Final = "Recreate"
"""Value of the annotation of an Application that may move without its volumes."""

Scope = Literal["Global", "Namespaced"]


class _Wire(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """A part of an object."""


class Condition(metadata.Condition, frozen=True, kw_only=True):
    """A condition with when it changed, and which generation it is of."""

    last_transition_time: str = ""
    observed_generation: int = 0


class TargetReference(_Wire, frozen=True, kw_only=True):
    """Where something is placed; without a namespace it is where the object itself is."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class MetricReference(_Wire, frozen=True, kw_only=True):
    """A metric that counts, and how much.

    The scope says whether it is a Metric of the same namespace or a GlobalMetric.
    """

    name: str
    weight: float
    scope: Scope = "Global"


class RetryPolicy(_Wire, frozen=True, kw_only=True):
    """Retries come every ``delay_seconds`` times ``factor``; a ``limit`` of -1 is none."""

    delay_seconds: float = 1
    factor: float = 1
    limit: int = -1


class TargetConstraints(_Wire, frozen=True, kw_only=True):
    """What the target of a placement must be like, in the languages of this package."""

    labels: tuple[str, ...] | None = None
    metrics: tuple[str, ...] | None = None
    custom_resources: tuple[str, ...] | None = None


ANYWHERE: Final = TargetConstraints()


class ApplicationConstraints(_Wire, frozen=True, kw_only=True):
    """Where an application may run, and whether it may move."""

    migration: bool = True
    cluster: TargetConstraints | None = None


class ManifestSpec(_Wire, frozen=True, kw_only=True):
    """What of a manifest's spec tells of volumes."""

    volume_claim_templates: Any = None


class Manifest(_Wire, frozen=True, kw_only=True):
    """A manifest as far as it tells of volumes; people may have written anything there."""

    api_version: Any = ""
    kind: Any = ""
    spec: ManifestSpec | list[Any] | str | float | bool | None = None

    @property
    def has_volumes(self) -> bool:
        """Whether it claims volumes, whose data no move takes along."""
        if (self.api_version, self.kind) == ("v1", "PersistentVolumeClaim"):
            return True
        is_stateful = self.kind == "StatefulSet" and str(self.api_version).startswith("apps/")
        spec = self.spec
        return is_stateful and isinstance(spec, ManifestSpec) and bool(spec.volume_claim_templates)


class ApplicationSpec(_Wire, frozen=True, kw_only=True):
    """What its placement depends on; the rest of its manifests is the deployer's."""

    constraints: ApplicationConstraints | None = None
    backoff: RetryPolicy = RetryPolicy()
    manifests: tuple[Manifest, ...] = ()


class Term(_Wire, frozen=True, kw_only=True):
    """One metric in a score."""

    metric: str
    scope: Scope = "Global"
    weight: float
    value: float
    normalised: float
    inherited: bool = False


class CandidateRecord(_Wire, frozen=True, kw_only=True):
    """The result of one target: a score and its terms, or why it is excluded."""

    cluster: str
    matched: bool
    score: float | None = None
    stickiness: float = 0.0
    terms: tuple[Term, ...] = ()
    reason: str = ""


class RunnerUp(_Wire, frozen=True, kw_only=True):
    """The best of the others."""

    cluster: str
    score: float


class DecisionRecord(_Wire, frozen=True, kw_only=True):
    """Why it is placed there; lists are cut, ``considered`` and ``matched`` count all."""

    time: str = ""
    generation: int = 0
    outcome: str = ""
    chosen: str = ""
    reason: str = ""
    considered: int = 0
    matched: int = 0
    candidates: tuple[CandidateRecord, ...] = ()
    runner_up: RunnerUp | None = None
    would_change: tuple[str, ...] = ()


class ApplicationStatus(_Wire, frozen=True, kw_only=True):
    """What the scheduler and the deployer have said.

    ``recent_moves`` are the times of moves to a better cluster within the last hour.
    """

    phase: str = ""
    observed_generation: int = 0
    scheduled_generation: int = 0
    scheduled_to: TargetReference | None = None
    scheduled_time: str = ""
    running_on: TargetReference | None = None
    retries_left: int | None = None
    next_retry_time: str = ""
    next_reschedule_time: str = ""
    suspended_until: str = ""
    migration_retries: int = 0
    recent_moves: tuple[str, ...] = ()
    last_decision: DecisionRecord | None = None
    conditions: tuple[Condition, ...] = ()


class Application(_Wire, frozen=True, kw_only=True):
    """Manifests that run in one cluster at a time."""

    metadata: Metadata
    spec: ApplicationSpec = ApplicationSpec()
    status: ApplicationStatus = ApplicationStatus()


class KubeconfigKey(_Wire, frozen=True, kw_only=True):
    """A key of a Secret of the same namespace."""

    name: str = ""
    key: str = "kubeconfig"


class CloudConstraints(_Wire, frozen=True, kw_only=True):
    """Which cloud a cluster may be made in."""

    cloud: TargetConstraints | None = None


class ClusterSpec(_Wire, frozen=True, kw_only=True):
    """A member cluster; without a kubeconfig one that is to be made in a cloud."""

    kubeconfig_secret_ref: KubeconfigKey | None = None
    custom_resources: tuple[str, ...] | None = None
    discover_custom_resources: bool = True
    metrics: tuple[MetricReference, ...] | None = None
    cloud_ref: TargetReference | None = None
    inherit_metrics: bool = False
    inherit_labels: bool = False
    unschedulable: bool = False
    constraints: CloudConstraints | None = None
    backoff: RetryPolicy = RetryPolicy()


class ClusterStatus(_Wire, frozen=True, kw_only=True):
    """What the cluster monitor sees, and the cloud where the cluster belongs."""

    state: str = ""
    custom_resources: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()
    scheduled_to: TargetReference | None = None
    scheduled_time: str = ""
    scheduled_generation: int = 0
    retries_left: int | None = None
    next_retry_time: str = ""
    last_decision: DecisionRecord | None = None


class Cluster(_Wire, frozen=True, kw_only=True):
    """A cluster that runs applications, or is to."""

    metadata: Metadata
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


class CloudSpec(_Wire, frozen=True, kw_only=True):
    """A place for clusters."""

    metrics: tuple[MetricReference, ...] | None = None


class Cloud(_Wire, frozen=True, kw_only=True):
    """A Cloud or a GlobalCloud, which has no namespace."""

    metadata: Metadata
    spec: CloudSpec = CloudSpec()


class ProjectSpec(_Wire, frozen=True, kw_only=True):
    """A place for Magnum clusters, and the template they are made by there."""

    template: str = ""
    metrics: tuple[MetricReference, ...] | None = None


class Project(_Wire, frozen=True, kw_only=True):
    """A project of OpenStack."""

    metadata: Metadata
    spec: ProjectSpec = ProjectSpec()


class ProjectConstraints(_Wire, frozen=True, kw_only=True):
    """Which project a Magnum cluster may be made in: only labels count."""

    project: TargetConstraints | None = None


class MagnumClusterSpec(_Wire, frozen=True, kw_only=True):
    """What its placement depends on."""

    metrics: tuple[MetricReference, ...] | None = None
    constraints: ProjectConstraints | None = None


class MagnumClusterStatus(_Wire, frozen=True, kw_only=True):
    """Where it is placed, for good."""

    state: str = ""
    project: TargetReference | None = None
    template: str = ""
    last_decision: DecisionRecord | None = None
    conditions: tuple[Condition, ...] = ()


class MagnumCluster(_Wire, frozen=True, kw_only=True):
    """A cluster that OpenStack's Magnum is to make in a project."""

    metadata: Metadata
    spec: MagnumClusterSpec = MagnumClusterSpec()
    status: MagnumClusterStatus = MagnumClusterStatus()


class MetricSource(_Wire, frozen=True, kw_only=True):
    """A provider of the same scope, and what it calls the metric."""

    name: str = ""
    metric: str = ""


class MetricSpec(_Wire, frozen=True, kw_only=True):
    """The values that may be, of which ``min`` counts as 0 and ``max`` as 1."""

    min: float = 0.0
    max: float = 1.0
    allowed_values: tuple[float, ...] | None = None
    provider: MetricSource = MetricSource()


class Metric(_Wire, frozen=True, kw_only=True):
    """A Metric or a GlobalMetric, which has no namespace."""

    metadata: Metadata
    spec: MetricSpec = MetricSpec()


class StaticValues(_Wire, frozen=True, kw_only=True):
    """Values by the provider's names of metrics."""

    metrics: dict[str, float] = {}


class ProviderSpec(_Wire, frozen=True, kw_only=True):
    """How values are had; where others are asked is the sampler's."""

    type: str = ""
    static: StaticValues | None = None


class MetricsProvider(_Wire, frozen=True, kw_only=True):
    """A MetricsProvider or a GlobalMetricsProvider, which has no namespace."""

    metadata: Metadata
    spec: ProviderSpec = ProviderSpec()


Object: TypeAlias = (
    Application | Cluster | Cloud | Project | MagnumCluster | Metric | MetricsProvider
)
KINDS: Final[dict[str, Any]] = {
    "Application": Application,
    "Cluster": Cluster,
    "Cloud": Cloud,
    "GlobalCloud": Cloud,
    "Project": Project,
    "MagnumCluster": MagnumCluster,
    "Metric": Metric,
    "GlobalMetric": Metric,
    "MetricsProvider": MetricsProvider,
    "GlobalMetricsProvider": MetricsProvider,
}
"""What each kind is decoded into."""


def condition(conditions: tuple[Condition, ...], name: str) -> Condition | None:
    """The condition of that type."""
    return next((each for each in conditions if each.type == name), None)


class MetricReport(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """What a Cluster's status says of one of its metrics; without a reason there is a value."""

    name: str
    scope: Scope = "Global"
    value: float | None = None
    normalised: float | None = None
    time: str = ""
    reason: str = ""


class ReportedStatus(ClusterStatus, frozen=True, kw_only=True):
    """With what is said of its metrics, which no decision reads."""

    metrics: tuple[MetricReport, ...] = ()


class ReportedCluster(Cluster, frozen=True, kw_only=True):
    """A Cluster whose metrics are told."""

    status: ReportedStatus = ReportedStatus()
