"""The targets of one pass, compared with the constraints of an object (krake-spec 2, 3.4).

They have inherited labels and metrics, measurements and readiness.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.placement.constraints import (
    CustomResourceConstraint,
    KindConstraint,
    LabelConstraint,
    MetricConstraint,
    parse_custom_resource,
    parse_label,
    parse_metric,
)
from harbourmaster.placement.lexer import ConstraintError
from harbourmaster.placement.measurements import Measurement
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
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.placement.constraints import Constraint
    from harbourmaster.placement.measurements import Measuring
    from harbourmaster.placement.model import (
        Cloud,
        Cluster,
        Condition,
        MetricReference,
        TargetConstraints,
        TargetReference,
        Term,
    )
    from harbourmaster.placement.rules import ConstraintValue
    from harbourmaster.placement.snapshot import ObjectKey, Snapshot

    Parsed = TypeVar("Parsed")


Outage: TypeAlias = Literal["", "NodesNotReady", "NoAnswer", "Unknown"]
"""Why a cluster gets no new applications although no user has excluded it.

Unknown: its state cannot be determined, as it rejects our credentials or was not asked yet.
"""


class Candidate(Struct, frozen=True, gc=False):
    """A cluster, a cloud or a project; ``unready`` says why it is excluded, empty if it is not."""

    kind: str
    namespace: str
    name: str
    uid: str
    unready: str
    labels: Mapping[str, str]
    measured: Measurement
    label: str
    """The name among the candidates, with the namespace if these are of several."""
    custom_resources: frozenset[str] = frozenset()
    served_kinds: frozenset[str] = frozenset("*")
    """``*`` if they are unknown."""
    generation: int = 0
    reachable_since: str = ""
    """The time of the last change of whether it is reachable."""
    outage: Outage = ""
    """Empty also for a cluster that users have excluded: applications have to leave it."""

    def is_at(self, reference: TargetReference | None, namespace: str) -> bool:
        """Whether a reference in an object of that namespace is to this target."""
        return (
            reference is not None
            and reference.name == self.name
            and (reference.namespace or namespace) == (self.namespace or namespace)
            and reference.kind in {"", self.kind}
            and (not reference.uid or not self.uid or reference.uid == self.uid)
        )


class InvalidConstraintError(ValueError):
    """A stored constraint that is invalid; the text is one line and names the field."""


class Compiled(Struct, frozen=True, gc=False):
    """Constraints of one object, parsed."""

    labels: tuple[LabelConstraint, ...] = ()
    custom_resources: tuple[CustomResourceConstraint, ...] = ()
    metrics: tuple[MetricConstraint, ...] = ()
    kinds: tuple[KindConstraint, ...] = ()
    """Not written by users: those of the manifests."""

    @property
    def every(self) -> tuple[Constraint, ...]:
        """All of them in the order of checking: labels, custom resources, kinds, metrics."""
        return (*self.labels, *self.custom_resources, *self.kinds, *self.metrics)


@lru_cache(maxsize=4096)
def compile_constraints(constraints: TargetConstraints | None, at: str) -> Compiled:
    """Parse what stands at a field, such as ``spec.constraints.cluster``.

    Raises InvalidConstraintError.
    """
    if constraints is None:
        return Compiled()
    return Compiled(
        _parse_all(parse_label, constraints.labels, f"{at}.labels"),
        _parse_all(parse_custom_resource, constraints.custom_resources, f"{at}.customResources"),
        _parse_all(parse_metric, constraints.metrics, f"{at}.metrics"),
    )


def _parse_all(
    parse: Callable[[str], Parsed], texts: tuple[str, ...] | None, at: str
) -> tuple[Parsed, ...]:
    constraints = []
    for index, text in enumerate(texts or ()):
        try:
            constraints.append(parse(text))
        except ConstraintError as error:
            raise InvalidConstraintError(f"{at}[{index}]: {error}") from None
    return tuple(constraints)


def mismatches(target: Candidate, wanted: Compiled, value: ConstraintValue) -> Iterator[str]:
    """Why the target does not meet constraints, in their order."""
    return filter(None, (mismatch(target, constraint, value) for constraint in wanted.every))


def mismatch(target: Candidate, constraint: Constraint, value: ConstraintValue) -> str:
    """Why the target does not meet a constraint; empty if it does."""
    match constraint:
        case LabelConstraint():
            return constraint.mismatch(target.labels)
        case KindConstraint():
            return constraint.mismatch(target.served_kinds)
        case CustomResourceConstraint():
            return constraint.mismatch(target.custom_resources)
        case MetricConstraint():
            term = target.measured.by_name.get(constraint.key)
            return constraint.mismatch(None if term is None else compared_value(term, value))


def compared_value(term: Term, value: ConstraintValue) -> float:
    """The value that a metric constraint compares (decision D11)."""
    if value == "Raw":
        return term.value
    return term.normalised * (term.weight if value == "Weighted" else 1.0)


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
