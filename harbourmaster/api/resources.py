"""Kinds of objects and their API paths."""

from __future__ import annotations

from functools import partial
from typing import Final
from urllib.parse import quote

from msgspec import Struct


class Resource(Struct, frozen=True, gc=False):
    """One kind of one version of an API group; ``group`` is empty for the core."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    optional: bool = False
    """Whether some API servers lack it although its group is Kubernetes' own."""

    @property
    def api_version(self) -> str:
        """The apiVersion of manifests: ``v1``, or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def type_fields(self) -> dict[str, str]:
        """The apiVersion and kind of its objects, as their first fields."""
        return {"apiVersion": self.api_version, "kind": self.kind}

    @property
    def name(self) -> str:
        """The name for kubectl and of its definition: ``plural.group``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def command_name(self) -> str:
        """The shortest name for kubectl; others have applications, clusters and metrics as well."""
        return self.name if self.group == PLACEMENT_GROUP else self.plural

    @property
    def is_built_in(self) -> bool:
        """Whether every API server has it, because it does not come from a definition."""
        return not self.optional and ("." not in self.group or self.group.endswith(".k8s.io"))

    def path(
        self,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str | None = None,
    ) -> str:
        """Return the path of one object, or of all of a namespace, or of all. Raises ValueError.

        Each part is quoted and none may be empty: a deletion of "" would delete the collection.
        """
        if subresource is not None and name is None:
            raise ValueError(f"{self.plural}: a subresource belongs to an object")
        if namespace is not None and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace")
        if namespace is None and name is not None and self.namespaced:
            raise ValueError(f"{self.plural}: an object needs a namespace")
        root = f"/apis/{_part(self.group)}" if self.group else "/api"
        parts = [root, _part(self.version)]
        if namespace is not None:
            parts += ["namespaces", _part(namespace)]
        parts.append(_part(self.plural))
        parts += [_part(part) for part in (name, subresource) if part is not None]
        return "/".join(parts)


def _part(text: str) -> str:
    if text in {"", ".", ".."}:
        raise ValueError(f'"{text}" cannot be part of a path')
    return quote(text, safe="")


def of_kind(
    group: str, kind: str, version: str = "v1", *, plural: str = "", **more: bool
) -> Resource:
    """Create the Resource of a kind whose plural is the regular one, unless it is given."""
    name = kind.lower()
    regular = f"{name[:-1]}ies" if name.endswith("y") else f"{name}s"
    return Resource(group, version, plural or regular, kind, **more)


cluster_wide: Final = partial(of_kind, namespaced=False)

NAMESPACES: Final = cluster_wide("", "Namespace")
NODES: Final = cluster_wide("", "Node")
RUNTIME_CLASSES: Final = cluster_wide("node.k8s.io", "RuntimeClass", plural="runtimeclasses")
PODS: Final = of_kind("", "Pod")
DISRUPTION_BUDGETS: Final = of_kind("policy", "PodDisruptionBudget")
SECRETS: Final = of_kind("", "Secret")
SERVICES: Final = of_kind("", "Service")
SERVICE_ACCOUNTS: Final = of_kind("", "ServiceAccount")
DEPLOYMENTS: Final = of_kind("apps", "Deployment")
EVENTS: Final = of_kind("events.k8s.io", "Event")
CORE_EVENTS: Final = of_kind("", "Event")
"""Events in the core group, which can be selected by the uid of their object."""
LEASES: Final = of_kind("coordination.k8s.io", "Lease")
ADMISSION_GROUP: Final = "admissionregistration.k8s.io"
MUTATING_WEBHOOKS: Final = cluster_wide(ADMISSION_GROUP, "MutatingWebhookConfiguration")
VALIDATING_WEBHOOKS: Final = cluster_wide(ADMISSION_GROUP, "ValidatingWebhookConfiguration")
MUTATING_POLICIES: Final = cluster_wide(ADMISSION_GROUP, "MutatingAdmissionPolicy", optional=True)
MUTATING_POLICY_BINDINGS: Final = cluster_wide(
    ADMISSION_GROUP, "MutatingAdmissionPolicyBinding", optional=True
)
"""Both since Kubernetes 1.36."""
DEFINITIONS: Final = cluster_wide("apiextensions.k8s.io", "CustomResourceDefinition")
API_SERVICES: Final = cluster_wide("apiregistration.k8s.io", "APIService", optional=True)
ACCESS_REVIEWS: Final = cluster_wide("authorization.k8s.io", "SubjectAccessReview")
TOKEN_REVIEWS: Final = cluster_wide("authentication.k8s.io", "TokenReview")
SELF_ACCESS_REVIEWS: Final = cluster_wide("authorization.k8s.io", "SelfSubjectAccessReview")
KUPID_GROUP: Final = "kupid.gardener.cloud"
CLUSTER_POLICIES: Final = cluster_wide(KUPID_GROUP, "ClusterPodSchedulingPolicy", "v1alpha1")
POLICIES: Final = of_kind(KUPID_GROUP, "PodSchedulingPolicy", "v1alpha1")

CONFIG_MAPS: Final = of_kind("", "ConfigMap")
VOLUME_CLAIMS: Final = of_kind("", "PersistentVolumeClaim")
VOLUMES: Final = cluster_wide("", "PersistentVolume")
JOBS: Final = of_kind("batch", "Job")
CRON_JOBS: Final = of_kind("batch", "CronJob")
SLICES: Final = of_kind("discovery.k8s.io", "EndpointSlice")
REPLICATION_CONTROLLERS: Final = of_kind("", "ReplicationController")
CONTROLLER_REVISIONS: Final = of_kind("apps", "ControllerRevision")
REPLICA_SETS: Final = of_kind("apps", "ReplicaSet")
STATEFUL_SETS: Final = of_kind("apps", "StatefulSet")
DAEMON_SETS: Final = of_kind("apps", "DaemonSet")
ROLLOUTS: Final = of_kind("argoproj.io", "Rollout", "v1alpha1")

LIFECYCLE_GROUP: Final = "lifecycle.keptn.sh"
APPS: Final = of_kind(LIFECYCLE_GROUP, "KeptnApp")
APP_CONTEXTS: Final = of_kind(LIFECYCLE_GROUP, "KeptnAppContext")
APP_CREATION_REQUESTS: Final = of_kind(LIFECYCLE_GROUP, "KeptnAppCreationRequest")
APP_VERSIONS: Final = of_kind(LIFECYCLE_GROUP, "KeptnAppVersion")
WORKLOADS: Final = of_kind(LIFECYCLE_GROUP, "KeptnWorkload")
WORKLOAD_VERSIONS: Final = of_kind(LIFECYCLE_GROUP, "KeptnWorkloadVersion")
TASKS: Final = of_kind(LIFECYCLE_GROUP, "KeptnTask")
TASK_DEFINITIONS: Final = of_kind(LIFECYCLE_GROUP, "KeptnTaskDefinition")
EVALUATIONS: Final = of_kind(LIFECYCLE_GROUP, "KeptnEvaluation")
EVALUATION_DEFINITIONS: Final = of_kind(LIFECYCLE_GROUP, "KeptnEvaluationDefinition")
KEPTN_CONFIGS: Final = of_kind("options.keptn.sh", "KeptnConfig", "v1alpha1")

METRICS_GROUP: Final = "metrics.keptn.sh"
KEPTN_METRICS: Final = of_kind(METRICS_GROUP, "KeptnMetric")
METRICS_PROVIDERS: Final = of_kind(METRICS_GROUP, "KeptnMetricsProvider")
ANALYSES: Final = of_kind(METRICS_GROUP, "Analysis", plural="analyses")
ANALYSIS_DEFINITIONS: Final = of_kind(METRICS_GROUP, "AnalysisDefinition")
ANALYSIS_VALUE_TEMPLATES: Final = of_kind(METRICS_GROUP, "AnalysisValueTemplate")

PLACEMENT_GROUP: Final = "placement.harbourmaster.dev"
APPLICATIONS: Final = of_kind(PLACEMENT_GROUP, "Application", "v1alpha1")
CLUSTERS: Final = of_kind(PLACEMENT_GROUP, "Cluster", "v1alpha1")
CLOUDS: Final = of_kind(PLACEMENT_GROUP, "Cloud", "v1alpha1")
GLOBAL_CLOUDS: Final = cluster_wide(PLACEMENT_GROUP, "GlobalCloud", "v1alpha1")
PROJECTS: Final = of_kind(PLACEMENT_GROUP, "Project", "v1alpha1")
MAGNUM_CLUSTERS: Final = of_kind(PLACEMENT_GROUP, "MagnumCluster", "v1alpha1")
PLACEMENT_METRICS: Final = of_kind(PLACEMENT_GROUP, "Metric", "v1alpha1")
GLOBAL_METRICS: Final = cluster_wide(PLACEMENT_GROUP, "GlobalMetric", "v1alpha1")
PLACEMENT_PROVIDERS: Final = of_kind(PLACEMENT_GROUP, "MetricsProvider", "v1alpha1")
GLOBAL_PROVIDERS: Final = cluster_wide(PLACEMENT_GROUP, "GlobalMetricsProvider", "v1alpha1")
