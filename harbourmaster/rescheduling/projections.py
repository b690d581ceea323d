"""The parts of the API server's objects that the rescheduler reads, as they stand in JSON.

Every field may be null, which is the same as absent.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct, field

from harbourmaster.api.selectors import LabelSelector
from harbourmaster.rescheduling.constraints import NOTHING
from harbourmaster.rescheduling.model import NEVER_EVICT, RESERVATIONS
from harbourmaster.rescheduling.requests import Container, Quantities, Resources, ResourceStatus


class Owner(Struct, frozen=True, gc=False):
    """An owner of an object."""

    kind: str | None = None
    uid: str | None = None
    controller: bool | None = None


class PodNotes(Struct, frozen=True, gc=False):
    """The annotations of a pod that say something to us; they may be empty."""

    mirror: str | None = field(default=None, name="kubernetes.io/config.mirror")
    critical: str | None = field(default=None, name="scheduler.alpha.kubernetes.io/critical-pod")
    never_evict: str | None = field(default=None, name=NEVER_EVICT)
    safe: str | None = field(default=None, name="cluster-autoscaler.kubernetes.io/safe-to-evict")
    safe_volumes: str | None = field(
        default=None, name="cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
    )
    do_not_disrupt: str | None = field(default=None, name="karpenter.sh/do-not-disrupt")
    do_not_evict: str | None = field(default=None, name="karpenter.sh/do-not-evict")
    volcano_group: str | None = field(default=None, name="scheduling.k8s.io/group-name")
    volcano_api_group: str | None = field(default=None, name="scheduling.volcano.sh/group-name")
    yunikorn_group: str | None = field(default=None, name="yunikorn.apache.org/task-group-name")
    yunikorn_groups: str | None = field(default=None, name="yunikorn.apache.org/task-groups")
    prefer_not: str | None = field(
        default=None, name="descheduler.alpha.kubernetes.io/prefer-no-eviction"
    )
    request_only: str | None = field(
        default=None, name="descheduler.alpha.kubernetes.io/request-evict-only"
    )


class ObjectMeta(Struct, frozen=True, gc=False, rename="camel"):
    """The metadata of an object."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    labels: dict[str, str] | None = None
    generation: int | None = None
    deletion_timestamp: datetime | None = None


class PodMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """The metadata of a pod."""

    annotations: PodNotes | None = None
    owner_references: tuple[Owner, ...] | None = None
    creation_timestamp: datetime | None = None


class PodSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The spec of a pod; what only waiting pods need is left raw."""

    node_name: str | None = None
    containers: tuple[Container, ...] | None = None
    init_containers: tuple[Container, ...] | None = None
    resources: Resources | None = None
    overhead: Quantities | None = None
    host_network: bool | None = None
    priority: int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    restart_policy: str | None = None
    termination_grace_period_seconds: int | None = None
    scheduler_name: str | None = None
    affinity: Raw = NOTHING
    node_selector: Raw = NOTHING
    tolerations: Raw = NOTHING
    volumes: Raw = NOTHING
    topology_spread_constraints: Raw = NOTHING
    scheduling_gates: Raw = NOTHING
    resource_claims: Raw = NOTHING
    scheduling_group: Raw = NOTHING
    workload_ref: Raw = NOTHING


class Condition(Struct, frozen=True, gc=False):
    """A condition of a pod or a node."""

    type: str | None = None
    status: str | None = None
    reason: str | None = None


class PodStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The status of a pod."""

    phase: str | None = None
    conditions: tuple[Condition, ...] | None = None
    start_time: datetime | None = None
    nominated_node_name: str | None = None
    container_statuses: tuple[ResourceStatus, ...] | None = None
    init_container_statuses: tuple[ResourceStatus, ...] | None = None
    resources: Resources | None = None
    allocated_resources: Quantities | None = None


class GivenPod(Struct, frozen=True, gc=False):
    """A pod."""

    metadata: PodMeta | None = None
    spec: PodSpec | None = None
    status: PodStatus | None = None


class NodeNotes(Struct, frozen=True, gc=False):
    """The annotation of a node that is ours."""

    reservations: str | None = field(default=None, name=RESERVATIONS)


class NodeMeta(ObjectMeta, frozen=True, gc=False, rename="camel"):
    """The metadata of a node."""

    annotations: NodeNotes | None = None
    resource_version: str | None = None


class GivenTaint(Struct, frozen=True, gc=False):
    """A taint."""

    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(Struct, frozen=True, gc=False):
    """The spec of a node."""

    unschedulable: bool | None = None
    taints: tuple[GivenTaint, ...] | None = None


class NodeStatus(Struct, frozen=True, gc=False):
    """The status of a node."""

    allocatable: Quantities | None = None
    conditions: tuple[Condition, ...] | None = None


class GivenNode(Struct, frozen=True, gc=False):
    """A node."""

    metadata: NodeMeta | None = None
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class BudgetSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The spec of a budget."""

    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str | None = None


class BudgetStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The status of a budget."""

    disruptions_allowed: int | None = None
    current_healthy: int | None = None
    desired_healthy: int | None = None
    observed_generation: int | None = None
    disrupted_pods: dict[str, Raw] | None = None


class GivenBudget(Struct, frozen=True, gc=False):
    """A PodDisruptionBudget."""

    metadata: ObjectMeta | None = None
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class GivenNamespace(Struct, frozen=True, gc=False):
    """A namespace."""

    metadata: ObjectMeta | None = None
