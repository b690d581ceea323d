"""Objects of placement.harbourmaster.dev/v1alpha1 as a decision reads them (krake-spec 1, 7.1).

Projections: only fields that decisions read, and empty fields are not written. Times are RFC 3339
in UTC.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from harbourmaster.api import metadata
from harbourmaster.api.metadata import Metadata
from harbourmaster.placement.data_holders import read_manifest

GROUP: Final = "placement.harbourmaster.dev"
API_VERSION: Final = f"{GROUP}/v1alpha1"

SCHEDULED: Final = "Scheduled"
REACHABLE: Final = "Reachable"
NODES_READY: Final = "NodesReady"
TRUE: Final = "True"
FALSE: Final = "False"
NO_ANSWER: Final = "NoAnswer"
"""The reason of a cluster that is not reachable without any other known cause."""

NOT_CONFIRMED: Final = "NotConfirmed"
"""The reason of an application that a person has to confirm first."""

CHECKED: Final = "Checked"
PASSED: Final = "Passed"
"""The reason of an application whose checks have passed, and the result of a generation."""
AT_GATE: Final = "WaitingAtGate"
"""The reason of an application with a pod that waits at a scheduling gate."""

DEGRADED: Final = "Degraded"
FAILED: Final = "Failed"
PENDING: Final = "Pending"
RUNNING: Final = "Running"

Scope = Literal["Global", "Namespaced"]
MigrationVolumes = Literal["Refuse", "Recreate"]
CheckCause = Literal["Deploy", "Update", "Move"]


class Part(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True, kw_only=True):
    """A part of an object."""


class Condition(metadata.Condition, frozen=True, kw_only=True):
    """A condition with the time of its last change and the generation that it is about."""

    last_transition_time: str = ""
    observed_generation: int = 0


class TargetReference(Part, frozen=True, kw_only=True):
    """A target; without a namespace it is in the namespace of the object."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class MetricReference(Part, frozen=True, kw_only=True):
    """A metric and its weight.

    The scope distinguishes a Metric of the same namespace from a GlobalMetric.
    """

    name: str
    weight: float
    scope: Scope = "Global"


class RetryPolicy(Part, frozen=True, kw_only=True):
    """A retry every ``delay_seconds`` times ``factor``; a ``limit`` of -1 means no limit."""

    delay_seconds: float = 1
    factor: float = 1
    limit: int = -1


class TargetConstraints(Part, frozen=True, kw_only=True):
    """Constraints on the target of a placement, in the languages of this package."""

    labels: tuple[str, ...] | None = None
    metrics: tuple[str, ...] | None = None
    custom_resources: tuple[str, ...] | None = None


class ApplicationConstraints(Part, frozen=True, kw_only=True):
    """The constraints of an application, and whether it may move."""

    migration: bool = True
    cluster: TargetConstraints | None = None


class Checks(Part, frozen=True, kw_only=True):
    """The definitions of tasks and evaluations to run, of the application's namespace."""

    tasks: tuple[str, ...] = ()
    evaluations: tuple[str, ...] = ()


class ApplicationChecks(Part, frozen=True, kw_only=True):
    """The checks before and after a deployment, the changes that need them, and what follows.

    With ``forced_moves`` of Skip, a cluster that an application must leave is left without a check.
    """

    pre_deployment: Checks = Checks()
    post_deployment: Checks = Checks()
    when: tuple[CheckCause, ...] = ("Deploy", "Update", "Move")
    forced_moves: Literal["Check", "Skip"] = "Skip"
    on_failure: Literal["Keep", "Revert"] = "Keep"


class ApplicationSpec(Part, frozen=True, kw_only=True):
    """The fields on which the placement depends; the deployer reads the manifests."""

    constraints: ApplicationConstraints | None = None
    backoff: RetryPolicy = RetryPolicy()
    manifests: tuple[Any, ...] = ()
    """The facts of each manifest; the cache does not keep the manifests themselves."""
    migration_volumes: MigrationVolumes = "Refuse"
    """Whether it may move without the data in its volumes, which are created again, empty."""
    checks: ApplicationChecks | None = None

    def __post_init__(self) -> None:
        """Reduce each manifest to its facts."""
        force_setattr(self, "manifests", tuple(map(read_manifest, self.manifests)))


class Term(Part, frozen=True, kw_only=True):
    """One metric in a score."""

    metric: str
    scope: Scope = "Global"
    weight: float
    value: float
    normalised: float
    inherited: bool = False


class CandidateRecord(Part, frozen=True, kw_only=True):
    """The result of one target: a score and its terms, or why it is excluded or has no terms."""

    cluster: str
    matched: bool
    score: float | None = None
    stickiness: float = 0.0
    terms: tuple[Term, ...] = ()
    reason: str = ""


class RunnerUp(Part, frozen=True, kw_only=True):
    """The best of the other targets."""

    cluster: str
    score: float


class DecisionRecord(Part, frozen=True, kw_only=True):
    """The reasons of a decision; lists are cut, ``considered`` and ``matched`` count all."""

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


class FailedCluster(Part, frozen=True):
    """A cluster on which a generation of an application failed; ``revision`` is the cluster's."""

    name: str
    uid: str = ""
    generation: int = 0
    revision: str = ""
    reason: str = ""
    time: str = ""


class CheckedGeneration(Part, frozen=True, kw_only=True):
    """A generation for a cluster, and the name of the KeptnAppVersion that runs its checks.

    ``cause`` says which changes of CheckCause it makes, separated by commas. ``result`` is empty
    until the checks after the deployment have ended, and then PASSED or FAILED.
    """

    generation: int
    name: str
    uid: str = ""
    cause: str = ""
    check: str = ""
    result: str = ""


class PlacedStatus(Part, frozen=True, kw_only=True):
    """The part of a status that both the scheduler and the deployer read.

    ``awaits_ready``: it has not been ready since it was placed on its cluster. ``checked`` are the
    generation that is deployed, and the last one before it whose checks all passed.
    """

    phase: str = ""
    observed_generation: int = 0
    scheduled_generation: int = 0
    scheduled_to: TargetReference | None = None
    running_on: TargetReference | None = None
    suspended_until: str = ""
    migration_retries: int = 0
    awaits_ready: bool = False
    failed_clusters: tuple[FailedCluster, ...] = ()
    checked: tuple[CheckedGeneration, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ApplicationStatus(PlacedStatus, frozen=True, kw_only=True):
    """The status, written by the scheduler and the deployer.

    ``recent_moves`` are the times of moves to a better cluster within the last hour. ``proposed``
    is checked before it is deployed.
    """

    scheduled_time: str = ""
    retries_left: int | None = None
    next_retry_time: str = ""
    next_reschedule_time: str = ""
    recent_moves: tuple[str, ...] = ()
    proposed: CheckedGeneration | None = None
    last_decision: DecisionRecord | None = None

    @property
    def check(self) -> str:
        """The KeptnAppVersion of what is proposed, otherwise of what is deployed, or ""."""
        records = (self.proposed, *self.checked)
        return next((record.check for record in records if record is not None), "")


class Application(Part, frozen=True, kw_only=True):
    """Manifests that run in one cluster at a time."""

    metadata: Metadata
    spec: ApplicationSpec = ApplicationSpec()
    status: ApplicationStatus = ApplicationStatus()


class KubeconfigKey(Part, frozen=True, kw_only=True):
    """A key of a Secret of the same namespace."""

    name: str = ""
    key: str = "kubeconfig"


class CloudConstraints(Part, frozen=True, kw_only=True):
    """Constraints on the cloud in which a cluster is created."""

    cloud: TargetConstraints | None = None


class ClusterSpec(Part, frozen=True, kw_only=True):
    """A member cluster; without a kubeconfig, one that is to be created in a cloud."""

    kubeconfig_secret_ref: KubeconfigKey | None = None
    server: str = ""
    custom_resources: tuple[str, ...] | None = None
    discover_custom_resources: bool = True
    metrics: tuple[MetricReference, ...] | None = None
    cloud_ref: TargetReference | None = None
    inherit_metrics: bool = False
    inherit_labels: bool = False
    unschedulable: bool = False
    constraints: CloudConstraints | None = None
    backoff: RetryPolicy = RetryPolicy()


class BoundServer(Part, frozen=True, kw_only=True):
    """The server of a kubeconfig as it was first seen, or accepted, at ``time``.

    ``authorities`` are digests of public keys as kubeadm writes them, or ``system``.
    """

    url: str
    tls_server_name: str = ""
    authorities: tuple[str, ...] = ()
    time: str = ""


class MemberStatus(Part, frozen=True, kw_only=True):
    """The observations of the monitor, and the server to which the Cluster is bound."""

    state: str = ""
    server: BoundServer | None = None
    custom_resources: tuple[str, ...] = ()
    served_kinds: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()


class ClusterStatus(MemberStatus, frozen=True, kw_only=True):
    """The observations of the cluster monitor, and the cloud of the cluster."""

    scheduled_to: TargetReference | None = None
    scheduled_time: str = ""
    scheduled_generation: int = 0
    retries_left: int | None = None
    next_retry_time: str = ""
    last_decision: DecisionRecord | None = None


class Cluster(Part, frozen=True, kw_only=True):
    """A cluster that runs applications, or will."""

    metadata: Metadata
    spec: ClusterSpec = ClusterSpec()
    status: ClusterStatus = ClusterStatus()


class CloudSpec(Part, frozen=True, kw_only=True):
    """A cloud in which clusters can be created."""

    metrics: tuple[MetricReference, ...] | None = None


class Cloud(Part, frozen=True, kw_only=True):
    """A Cloud or a GlobalCloud, which has no namespace."""

    metadata: Metadata
    spec: CloudSpec = CloudSpec()


class ProjectSpec(Part, frozen=True, kw_only=True):
    """A project in which Magnum clusters are created from a template."""

    template: str = ""
    metrics: tuple[MetricReference, ...] | None = None


class Project(Part, frozen=True, kw_only=True):
    """A project of OpenStack."""

    metadata: Metadata
    spec: ProjectSpec = ProjectSpec()


class ProjectConstraints(Part, frozen=True, kw_only=True):
    """Constraints on the project of a Magnum cluster: only labels."""

    project: TargetConstraints | None = None


class MagnumClusterSpec(Part, frozen=True, kw_only=True):
    """The fields on which the placement depends."""

    metrics: tuple[MetricReference, ...] | None = None
    constraints: ProjectConstraints | None = None


class MagnumClusterStatus(Part, frozen=True, kw_only=True):
    """The placement, which does not change."""

    state: str = ""
    project: TargetReference | None = None
    template: str = ""
    last_decision: DecisionRecord | None = None
    conditions: tuple[Condition, ...] = ()


class MagnumCluster(Part, frozen=True, kw_only=True):
    """A cluster that OpenStack's Magnum creates in a project."""

    metadata: Metadata
    spec: MagnumClusterSpec = MagnumClusterSpec()
    status: MagnumClusterStatus = MagnumClusterStatus()


class MetricSource(Part, frozen=True, kw_only=True):
    """A provider of the same scope, and its name for the metric.

    With ``by_label`` one answer has the values of all clusters, by their names in that label.
    """

    name: str = ""
    metric: str = ""
    by_label: str = ""

    @property
    def is_per_cluster(self) -> bool:
        """Whether clusters have values of their own."""
        return bool(self.by_label) or "$(" in self.metric


class MetricSpec(Part, frozen=True, kw_only=True):
    """The possible values; ``min`` is normalised to 0 and ``max`` to 1."""

    min: float = 0.0
    max: float = 1.0
    allowed_values: tuple[float, ...] | None = None
    provider: MetricSource = MetricSource()


class Metric(Part, frozen=True, kw_only=True):
    """A Metric or a GlobalMetric, which has no namespace."""

    metadata: Metadata
    spec: MetricSpec = MetricSpec()


class StaticValues(Part, frozen=True, kw_only=True):
    """Values by the provider's names for metrics."""

    metrics: dict[str, float] = {}


class ProviderSpec(Part, frozen=True, kw_only=True):
    """The type of a provider, and static values; the sampler reads the rest."""

    type: str = ""
    static: StaticValues | None = None


class MetricsProvider(Part, frozen=True, kw_only=True):
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
"""The type of each kind."""


def condition(conditions: tuple[Condition, ...], name: str) -> Condition | None:
    """The condition of that type."""
    return next((condition for condition in conditions if condition.type == name), None)


def with_conditions(
    conditions: tuple[Condition, ...], now: str, *changes: Condition
) -> tuple[Condition, ...]:
    """The conditions with these ones; a time is that of the last change of the status.

    The end of a wait at a gate counts as a change: from then on, the application has its time to
    get ready.
    """
    by_type = {condition.type: condition for condition in conditions}
    for change in changes:
        before = by_type.get(change.type)
        since = ""
        if before is not None and before.status == change.status:
            is_out = before.reason == AT_GATE != change.reason
            since = "" if is_out else before.last_transition_time
        by_type[change.type] = replace(change, last_transition_time=since or now)
    return tuple(by_type.values())


class MetricReport(Part, frozen=True, kw_only=True):
    """A metric in the status of a Cluster; without a reason it has a value."""

    name: str
    scope: Scope = "Global"
    value: float | None = None
    normalised: float | None = None
    time: str = ""
    reason: str = ""


class ReportedStatus(ClusterStatus, frozen=True, kw_only=True):
    """The status with its metrics, which no decision reads."""

    metrics: tuple[MetricReport, ...] = ()


class ReportedCluster(Cluster, frozen=True, kw_only=True):
    """A Cluster with the metrics in its status."""

    status: ReportedStatus = ReportedStatus()
