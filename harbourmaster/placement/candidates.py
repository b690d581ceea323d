"""The targets of one pass, with inherited labels and metrics, measurements and readiness."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.placement.filters import (
    Candidate,
    InvalidConstraintError,
    compile_constraints,
)
from harbourmaster.placement.model import (
    FALSE,
    NO_ANSWER,
    NODES_READY,
    REACHABLE,
    TRUE,
    Project,
    condition,
)

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.placement.filters import (
        Outage,
    )
    from harbourmaster.placement.measurements import Measuring
    from harbourmaster.placement.model import (
        Cloud,
        Cluster,
        Condition,
        MetricReference,
    )
    from harbourmaster.placement.snapshot import ObjectKey, Snapshot

_ANSWERING = ("Online", "FailingMetrics")
"""States of a reachable cluster with ready nodes."""
_OUTAGES: Final[dict[str, Outage]] = {
    "Offline": "NoAnswer",
    "NotReady": "NodesNotReady",
    "Unhealthy": "NodesNotReady",
}
"""The outage by state, if no condition is more specific."""


def cluster_candidate(cluster: Cluster, snapshot: Snapshot, measuring: Measuring) -> Candidate:
    """A cluster with the labels and metrics that it inherits from its cloud (krake-spec 3.8)."""
    spec = cluster.spec
    namespace, name = cloud_key(cluster)
    cloud = snapshot.clouds.get(namespace, {}).get(name)
    metadata, inherited = taken_over(cluster, cloud)
    text, outage = _availability(cluster)
    status, discovers = cluster.status, spec.discover_custom_resources
    reachable = condition(status.conditions, REACHABLE)
    return Candidate(
        kind="Cluster",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        unready=text,
        outage=outage,
        labels=metadata.labels,
        measured=measuring.measure(metadata.namespace, spec.metrics or (), inherited, metadata),
        label=metadata.name,
        custom_resources=frozenset(
            (*(spec.custom_resources or ()), *(status.custom_resources if discovers else ()))
        ),
        served_kinds=frozenset((discovers and status.served_kinds) or "*"),
        generation=metadata.generation,
        reachable_since=reachable.last_transition_time if reachable is not None else "",
    )


def cloud_key(cluster: Cluster) -> ObjectKey:
    """The cloud in the spec of a cluster, else the one it was placed on; without one, no name."""
    reference = cluster.spec.cloud_ref or cluster.status.scheduled_to
    if reference is None:
        return "", ""
    is_global = reference.kind == "GlobalCloud"
    return "" if is_global else cluster.metadata.namespace, reference.name


def taken_over(
    cluster: Cluster, cloud: Cloud | None
) -> tuple[Metadata, tuple[MetricReference, ...]]:
    """The metadata of a cluster with labels of its cloud, and the metrics that it inherits."""
    metadata, spec = cluster.metadata, cluster.spec
    if cloud is None:
        return metadata, ()
    label_keys, metric_keys = _inherited_keys(cluster)
    # As upstream, the cloud's label wins.
    theirs = {
        key: value
        for key, value in cloud.metadata.labels.items()
        if spec.inherit_labels or key in label_keys
    }
    inherited = tuple(
        metric
        for metric in cloud.spec.metrics or ()
        if spec.inherit_metrics or metric.name in metric_keys
    )
    return replace(metadata, labels={**metadata.labels, **theirs}), inherited


def backend_candidate(backend: Cloud | Project, measuring: Measuring) -> Candidate:
    """A cloud or a project; it needs no connection."""
    metadata = backend.metadata
    is_project = isinstance(backend, Project)
    of_cloud = "Cloud" if metadata.namespace else "GlobalCloud"
    return Candidate(
        kind="Project" if is_project else of_cloud,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        unready="it is being deleted" if metadata.deletion_timestamp else "",
        labels=metadata.labels,
        measured=measuring.measure(metadata.namespace, backend.spec.metrics or ()),
        label=metadata.key if is_project else metadata.name,
    )


def unready(cluster: Cluster) -> str:
    """Why a cluster gets no applications; empty if it is ready (krake-spec 7.1).

    Missing metrics do not count here: each pass checks them.
    """
    return _availability(cluster)[0]


def _availability(cluster: Cluster) -> tuple[str, Outage]:
    if cluster.metadata.deletion_timestamp:
        return "it is being deleted", ""
    if cluster.spec.unschedulable:
        return "it is marked as unschedulable", ""
    conditions, state = cluster.status.conditions, cluster.status.state
    reachable = condition(conditions, REACHABLE)
    nodes = condition(conditions, NODES_READY)
    if reachable is not None and reachable.status != TRUE:
        is_silent = (reachable.status, reachable.reason) == (FALSE, NO_ANSWER)
        outage: Outage = "NoAnswer" if is_silent else "Unknown"
        return _because(reachable, "it is not reachable"), outage
    if nodes is not None and nodes.status != TRUE:
        return _because(nodes, "its nodes are not ready"), "NodesNotReady"
    if state in _ANSWERING or (reachable is not None and not state):
        return "", ""
    if cluster.spec.kubeconfig_secret_ref is None and state in {"", "Pending"}:
        return "it has no kubeconfig yet", "Unknown"
    return f"it is {state or 'Pending'}, not {_ANSWERING[0]}", _OUTAGES.get(state, "Unknown")


def _because(reason: Condition, text: str) -> str:
    return f"{text}: {reason.message or reason.reason}" if reason.message or reason.reason else text


def _inherited_keys(cluster: Cluster) -> tuple[frozenset[str], frozenset[str]]:
    """The labels and metrics in the cloud constraints of a cluster, which it inherits."""
    constraints = cluster.spec.constraints
    try:
        compiled = compile_constraints(constraints and constraints.cloud, "spec.constraints.cloud")
    except InvalidConstraintError:
        return frozenset(), frozenset()
    return (
        frozenset(label.key for label in compiled.labels),
        frozenset(metric.key for metric in compiled.metrics),
    )
