"""The kinds of objects that Harbourmaster has in a cluster, in the order of their removal.

An object is ours by label inside our namespace. Outside, where others may call theirs anything, it
needs a name of ours as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from harbourmaster.api import resources
from harbourmaster.api.resources import ADMISSION_GROUP, Resource, cluster_wide, of_kind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.cli.live.webhooks import Configuration, Definition

NAME: Final = "harbourmaster"
CONTROLLER: Final = "harbourmaster-controller"
WEBHOOK: Final = "harbourmaster-webhook"
METRICS: Final = "harbourmaster-metrics"
CERTIFICATE: Final = "harbourmaster-webhook-cert"
KEPTN_ADDRESSES: Final = ("metrics-operator-service", "lifecycle-operator-metrics-service")
"""The Services that give metrics Keptn's addresses, where they are installed."""
KEPTN_NAMESPACE: Final = "keptn-system"
DEFAULT_NAMESPACE: Final = "harbourmaster-system"
COMPONENT_LABEL: Final = "app.kubernetes.io/component"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
NAME_LABEL: Final = "app.kubernetes.io/name"
_LABELS: Final = (NAME_LABEL, "app.kubernetes.io/part-of", MANAGED_BY)
_UNLABELLED: Final = frozenset((NAME, CONTROLLER, WEBHOOK, CERTIFICATE))
"""Names of objects that are created at run time and may lack our labels."""
OUR_DOMAIN: Final = "harbourmaster.dev"
PROTECTED_NAMESPACES: Final = frozenset(
    ("default", "kube-system", "kube-public", "kube-node-lease")
)

_RBAC: Final = "rbac.authorization.k8s.io"
ROLE_BINDINGS: Final = of_kind(_RBAC, "RoleBinding")
ROLES: Final = of_kind(_RBAC, "Role")
CLUSTER_ROLES: Final = cluster_wide(_RBAC, "ClusterRole")
CLUSTER_ROLE_BINDINGS: Final = cluster_wide(_RBAC, "ClusterRoleBinding")
NETWORK_POLICIES: Final = of_kind("networking.k8s.io", "NetworkPolicy")

IN_NAMESPACE: Final = (
    resources.DEPLOYMENTS,
    resources.DISRUPTION_BUDGETS,
    resources.SERVICES,
    NETWORK_POLICIES,
    of_kind("monitoring.coreos.com", "ServiceMonitor"),
    of_kind("monitoring.coreos.com", "PodMonitor"),
    of_kind("monitoring.coreos.com", "PrometheusRule"),
    # The certificate before its Secret, which cert-manager would fill again.
    of_kind("cert-manager.io", "Certificate"),
    of_kind("cert-manager.io", "Issuer"),
    resources.CONFIG_MAPS,
    resources.SECRETS,
    of_kind("", "ResourceQuota"),
    ROLE_BINDINGS,
    ROLES,
    resources.SERVICE_ACCOUNTS,
    resources.LEASES,
)
VALIDATING_POLICY_BINDINGS: Final = cluster_wide(
    ADMISSION_GROUP, "ValidatingAdmissionPolicyBinding"
)
VALIDATING_POLICIES: Final = cluster_wide(ADMISSION_GROUP, "ValidatingAdmissionPolicy")
GUARDS: Final = (
    resources.MUTATING_POLICY_BINDINGS,
    resources.MUTATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    VALIDATING_POLICIES,
)
CLUSTER_WIDE: Final = (
    *GUARDS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    cluster_wide("scheduling.k8s.io", "PriorityClass", plural="priorityclasses"),
)


def _of_groups(*groups: str) -> tuple[Resource, ...]:
    """All kinds that we know of some API groups; those without a namespace come last."""
    known = (variable for variable in vars(resources).values() if isinstance(variable, Resource))
    resources_of_groups = [resource for resource in known if resource.group in groups]
    return tuple(sorted(resources_of_groups, key=lambda resource: not resource.namespaced))


POLICY_RESOURCES: Final = (resources.CLUSTER_POLICIES, resources.POLICIES)
KEPTN_RESOURCES: Final = (
    *_of_groups(resources.LIFECYCLE_GROUP, resources.KEPTN_CONFIGS.group, resources.METRICS_GROUP),
    of_kind(resources.LIFECYCLE_GROUP, "KeptnEvaluationProvider", "v1alpha3"),
    of_kind(resources.LIFECYCLE_GROUP, "KeptnWorkloadInstance", "v1alpha3"),
)
PLACEMENT_RESOURCES: Final = _of_groups(resources.PLACEMENT_GROUP)
HELD_BY_USERS: Final = (
    resources.DEPLOYMENTS,
    resources.PODS,
    resources.STATEFUL_SETS,
    resources.DAEMON_SETS,
    resources.CRON_JOBS,
    resources.JOBS,
    of_kind("", "PersistentVolumeClaim"),
    resources.SERVICES,
    resources.CONFIG_MAPS,
    resources.SECRETS,
    resources.POLICIES,
    resources.APPS,
    resources.APP_CONTEXTS,
    resources.TASK_DEFINITIONS,
    resources.EVALUATION_DEFINITIONS,
    resources.KEPTN_CONFIGS,
    *_of_groups(resources.METRICS_GROUP),
    *(
        placement_resource
        for placement_resource in PLACEMENT_RESOURCES
        if placement_resource.namespaced
    ),
)
"""Kinds whose objects of users keep our namespace from being deleted."""
OF_EVERY_NAMESPACE: Final = frozenset(
    ("kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert")
)

Services: TypeAlias = frozenset[tuple[str, str]]
"""Namespaces and names."""


def is_our_configuration(configuration: Configuration, services: Services) -> bool:
    """Whether the whole configuration goes: it is named as ours, or calls only our Services."""
    calls = [entry.service in services for entry in configuration.entries]
    return is_ours_by_name(configuration.metadata) or (bool(calls) and all(calls))


def is_ours(metadata: Metadata) -> bool:
    """Whether something in our own namespace is ours."""
    return _is_labelled(metadata) or _is_named(metadata)


def is_ours_by_name(metadata: Metadata) -> bool:
    """Whether something outside our namespace is ours: labelled and named so."""
    return metadata.name in _UNLABELLED or (_is_named(metadata) and _is_labelled(metadata))


def is_our_definition(definition: Definition) -> bool:
    """Whether a CRD came with us: of our own groups, or of kupid's and Keptn's that we serve."""
    group = definition.spec.group
    resources = (*POLICY_RESOURCES, *KEPTN_RESOURCES)
    served = {resource.name for resource in resources}
    return (
        definition.metadata.name in served
        or group == OUR_DOMAIN
        or group.endswith(f".{OUR_DOMAIN}")
    )


def is_our_namespace(metadata: Metadata) -> bool:
    """Whether the namespace was made for us."""
    if metadata.name in PROTECTED_NAMESPACES:
        return False
    return metadata.name == DEFAULT_NAMESPACE or _is_labelled(metadata)


def foreign_objects(resource: Resource, objects: Iterable[Metadata]) -> list[str]:
    """Return the objects in our namespace that are not ours, as ``kind name``."""
    return [
        f"{resource.kind} {metadata.name}"
        for metadata in objects
        if not (
            is_ours(metadata) or metadata.name in OF_EVERY_NAMESPACE or metadata.deletion_timestamp
        )
    ]


def _is_named(metadata: Metadata) -> bool:
    return metadata.name == NAME or metadata.name.startswith(f"{NAME}-")


def _is_labelled(metadata: Metadata) -> bool:
    return any(metadata.labels.get(key, "") == NAME for key in _LABELS)
