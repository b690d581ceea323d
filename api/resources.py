"""Kinds of objects and their API paths."""

from __future__ import annotations

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
        """As in manifests: ``v1``, or ``group/version``."""
        return f"{self.group}/{self.version}" if self.group else self.version

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
        """The path of one object, or of all of a namespace, or of all. Raises ValueError.

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


NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
PODS: Final = Resource("", "v1", "pods", "Pod")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
SERVICES: Final = Resource("", "v1", "services", "Service")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
EVENTS: Final = Resource("events.k8s.io", "v1", "events", "Event")
CORE_EVENTS: Final = Resource("", "v1", "events", "Event")
"""Events in the core group, which can be selected by the uid of their object."""
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
API_SERVICES: Final = Resource(
    "apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False, optional=True
)
ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
)
TOKEN_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)
SELF_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
CLUSTER_POLICIES: Final = Resource(
    "kupid.gardener.cloud",
    "v1alpha1",
    "clusterpodschedulingpolicies",
    "ClusterPodSchedulingPolicy",
    namespaced=False,
)
POLICIES: Final = Resource(
    "kupid.gardener.cloud", "v1alpha1", "podschedulingpolicies", "PodSchedulingPolicy"
)

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
REPLICATION_CONTROLLERS: Final = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController"
)
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
ROLLOUTS: Final = Resource("argoproj.io", "v1alpha1", "rollouts", "Rollout")

LIFECYCLE_GROUP: Final = "lifecycle.keptn.sh"
APPS: Final = Resource(LIFECYCLE_GROUP, "v1", "keptnapps", "KeptnApp")
APP_CONTEXTS: Final = Resource(LIFECYCLE_GROUP, "v1", "keptnappcontexts", "KeptnAppContext")
APP_CREATION_REQUESTS: Final = Resource(
    LIFECYCLE_GROUP, "v1", "keptnappcreationrequests", "KeptnAppCreationRequest"
)
APP_VERSIONS: Final = Resource(LIFECYCLE_GROUP, "v1", "keptnappversions", "KeptnAppVersion")
WORKLOADS: Final = Resource(LIFECYCLE_GROUP, "v1", "keptnworkloads", "KeptnWorkload")
WORKLOAD_VERSIONS: Final = Resource(
    LIFECYCLE_GROUP, "v1", "keptnworkloadversions", "KeptnWorkloadVersion"
)
TASKS: Final = Resource(LIFECYCLE_GROUP, "v1", "keptntasks", "KeptnTask")
TASK_DEFINITIONS: Final = Resource(
    LIFECYCLE_GROUP, "v1", "keptntaskdefinitions", "KeptnTaskDefinition"
)
EVALUATIONS: Final = Resource(LIFECYCLE_GROUP, "v1", "keptnevaluations", "KeptnEvaluation")
EVALUATION_DEFINITIONS: Final = Resource(
    LIFECYCLE_GROUP, "v1", "keptnevaluationdefinitions", "KeptnEvaluationDefinition"
)
KEPTN_CONFIGS: Final = Resource("options.keptn.sh", "v1alpha1", "keptnconfigs", "KeptnConfig")

METRICS_GROUP: Final = "metrics.keptn.sh"
KEPTN_METRICS: Final = Resource(METRICS_GROUP, "v1", "keptnmetrics", "KeptnMetric")
METRICS_PROVIDERS: Final = Resource(
    METRICS_GROUP, "v1", "keptnmetricsproviders", "KeptnMetricsProvider"
)
ANALYSES: Final = Resource(METRICS_GROUP, "v1", "analyses", "Analysis")
ANALYSIS_DEFINITIONS: Final = Resource(
    METRICS_GROUP, "v1", "analysisdefinitions", "AnalysisDefinition"
)
ANALYSIS_VALUE_TEMPLATES: Final = Resource(
    METRICS_GROUP, "v1", "analysisvaluetemplates", "AnalysisValueTemplate"
)

PLACEMENT_GROUP: Final = "placement.harbourmaster.dev"
APPLICATIONS: Final = Resource(PLACEMENT_GROUP, "v1alpha1", "applications", "Application")
CLUSTERS: Final = Resource(PLACEMENT_GROUP, "v1alpha1", "clusters", "Cluster")
CLOUDS: Final = Resource(PLACEMENT_GROUP, "v1alpha1", "clouds", "Cloud")
GLOBAL_CLOUDS: Final = Resource(
    PLACEMENT_GROUP, "v1alpha1", "globalclouds", "GlobalCloud", namespaced=False
)
PROJECTS: Final = Resource(PLACEMENT_GROUP, "v1alpha1", "projects", "Project")
MAGNUM_CLUSTERS: Final = Resource(PLACEMENT_GROUP, "v1alpha1", "magnumclusters", "MagnumCluster")
PLACEMENT_METRICS: Final = Resource(PLACEMENT_GROUP, "v1alpha1", "metrics", "Metric")
GLOBAL_METRICS: Final = Resource(
    PLACEMENT_GROUP, "v1alpha1", "globalmetrics", "GlobalMetric", namespaced=False
)
PLACEMENT_PROVIDERS: Final = Resource(
    PLACEMENT_GROUP, "v1alpha1", "metricsproviders", "MetricsProvider"
)
GLOBAL_PROVIDERS: Final = Resource(
    PLACEMENT_GROUP, "v1alpha1", "globalmetricsproviders", "GlobalMetricsProvider", namespaced=False
)
