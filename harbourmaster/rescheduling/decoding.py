"""Decodes objects of the API server into the model, and skips all other fields unread.

A pod with a node, of which there are very many, costs as little as can be: what only says where a
pod may go is not even looked at. Every decoder raises MalformedError, and nothing else.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.decoding import decode
from harbourmaster.api.durations import parse_duration
from harbourmaster.rescheduling import constraints, taints
from harbourmaster.rescheduling.anti_affinity import NAME_LABEL
from harbourmaster.rescheduling.model import (
    NEVER_EVICT,
    Budget,
    Criteria,
    Node,
    PendingPod,
    Pod,
    Taint,
    shared_labels,
    shared_requests,
    shared_text,
)
from harbourmaster.rescheduling.projections import (
    BudgetSpec,
    BudgetStatus,
    GivenBudget,
    GivenNamespace,
    GivenNode,
    GivenPod,
    NodeMeta,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Owner,
    PodMeta,
    PodNotes,
    PodSpec,
    PodStatus,
)
from harbourmaster.rescheduling.requests import (
    Asking,
    ResourceStatus,
    allocatable,
    effective,
    host_ports,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from msgspec import Raw

    from harbourmaster.rescheduling.constraints import Volume
    from harbourmaster.rescheduling.model import PodTerm
    from harbourmaster.rescheduling.projections import Condition

_ANTI_AFFINITY: Final = b"podAntiAffinity"
_ESCAPE: Final = b"\\u"
_OURS: Final = ("app.kubernetes.io/name", "harbourmaster")
_GROUPS: Final = frozenset(
    (
        "kueue.x-k8s.io/pod-group-name",
        "volcano.sh/job-name",
        "scheduling.x-k8s.io/pod-group",
        "pod-group.scheduling.sigs.k8s.io",
        "pod-group.scheduling.sigs.k8s.io/name",
        "leaderworkerset.sigs.k8s.io/name",
        "jobset.sigs.k8s.io/jobset-name",
        "ray.io/cluster",
        "training.kubeflow.org/job-name",
    )
)
"""Labels of pods whose group restarts, or stands still, when one of them is evicted."""
_REQUIRED: Final = b"required"
_HARD: Final = b"DoNotSchedule"
_EMPTY: Final = b"{}"
_JOB: Final = "Job"
_NEVER: Final = "Never"
_ALWAYS: Final = "Always"
_YES: Final = "true"
_NO: Final = "false"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DEFAULT_GRACE: Final = 30
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_UNKNOWN_APP: Final = "unknown"
_NO_NOTES: Final = PodNotes()
_NO_OWNER: Final = Owner()
_RESIZE: Final = "PodResizePending"
DEFAULTS: Final = Criteria()

_pods: Final = msgspec.json.Decoder(GivenPod)
_nodes: Final = msgspec.json.Decoder(GivenNode)
_budgets: Final = msgspec.json.Decoder(GivenBudget)
_namespaces: Final = msgspec.json.Decoder(GivenNamespace)
_selectors: Final = msgspec.json.Decoder(dict[str, str])


def decode_pod(raw: bytes | Raw, criteria: Criteria = DEFAULTS) -> Pod | PendingPod:
    """A pod; one that waits for a node comes with all that says where it may go."""
    given = decode(_pods, raw, "")
    is_placed = given.spec is not None and bool(given.spec.node_name)
    pod = _pod(given, criteria, is_placed=is_placed)
    return pod if is_placed or pod.is_finished else _pending(given, pod, criteria)


def decode_pending(raw: bytes | Raw, criteria: Criteria = DEFAULTS) -> PendingPod:
    """A pod as one that waits for a node, be it that it has one: that is then the one it names."""
    given = decode(_pods, raw, "")
    return _pending(given, _pod(given, criteria, is_placed=False), criteria)


def decode_present(raw: bytes | Raw, criteria: Criteria = DEFAULTS) -> Pod:
    """A pod as one that has a node."""
    return _pod(decode(_pods, raw, ""), criteria, is_placed=True)


def decode_node(raw: bytes | Raw, *, is_bare_ready: bool = False) -> Node:
    """A node; it is ready where it says so. ``is_bare_ready`` is for one without any conditions."""
    given = decode(_nodes, raw, "")
    metadata = given.metadata or NodeMeta()
    spec, status = given.spec or NodeSpec(), given.status or NodeStatus()
    notes = metadata.annotations
    node_taints = tuple(
        Taint(taint.key or "", taint.value or "", taint.effect or "") for taint in spec.taints or ()
    )
    return Node(
        name=metadata.name or "",
        uid=metadata.uid or "",
        labels=metadata.labels or {},
        taints=node_taints,
        allocatable=allocatable(status.allocatable),
        is_ready=_holds(status.conditions, "Ready") if status.conditions else is_bare_ready,
        is_cordoned=bool(spec.unschedulable),
        is_deleting=metadata.deletion_timestamp is not None,
        is_deletion_candidate=any(taint.key == taints.DELETION_CANDIDATE for taint in node_taints),
        reservations=notes.reservations if notes else None,
        resource_version=metadata.resource_version or "",
    )


def decode_budget(raw: bytes | Raw) -> Budget:
    """A PodDisruptionBudget."""
    given = decode(_budgets, raw, "")
    metadata, spec = given.metadata or ObjectMeta(), given.spec or BudgetSpec()
    status = given.status or BudgetStatus()
    return Budget(
        namespace=metadata.namespace or "",
        name=metadata.name or "",
        selector=constraints.matcher(spec.selector, "spec.selector"),
        allowed=status.disruptions_allowed or 0,
        current_healthy=status.current_healthy or 0,
        desired_healthy=status.desired_healthy or 0,
        is_observed=(status.observed_generation or 0) >= (metadata.generation or 0),
        disrupted=len(status.disrupted_pods or ()),
        always_allow_unhealthy=spec.unhealthy_pod_eviction_policy == "AlwaysAllow",
    )


def decode_namespace(raw: bytes | Raw) -> tuple[str, dict[str, str]]:
    """A namespace's name and its labels, that of its name among them."""
    metadata = decode(_namespaces, raw, "").metadata or ObjectMeta()
    name = metadata.name or ""
    return name, {**(metadata.labels or {}), NAME_LABEL: name}


def _pod(given: GivenPod, criteria: Criteria, *, is_placed: bool) -> Pod:
    metadata, spec = given.metadata or PodMeta(), given.spec or PodSpec()
    status = given.status or PodStatus()
    notes = metadata.annotations or _NO_NOTES
    labels = shared_labels(metadata.labels)
    namespace = shared_text(metadata.namespace or "")
    owner = _controller(metadata.owner_references)
    grace = spec.termination_grace_period_seconds
    containers, inits = spec.containers or (), spec.init_containers or ()
    volumes = constraints.volumes(spec.volumes)
    is_safe = notes.safe == _YES
    created, started = _seconds(metadata.creation_timestamp) or 0.0, _seconds(status.start_time)
    is_grouped = not is_safe and _is_grouped(spec, notes, labels)
    is_job = owner.kind == _JOB or (spec.restart_policy or _ALWAYS) != _ALWAYS
    return Pod(
        uid=metadata.uid or "",
        namespace=namespace,
        name=metadata.name or "",
        node=shared_text(spec.node_name or ""),
        labels=labels,
        requests=shared_requests(effective(_asking(spec, status if is_placed else None))),
        ports=host_ports(containers, inits, is_on_host=bool(spec.host_network)),
        priority=spec.priority or 0,
        grace=_DEFAULT_GRACE if grace is None else grace,
        created=created,
        started=started,
        phase=shared_text(status.phase or "Pending"),
        is_ready=_holds(status.conditions, "Ready"),
        deletion=_seconds(metadata.deletion_timestamp),
        controller_kind=shared_text(owner.kind or ""),
        owner=shared_text(owner.uid or ""),
        is_mirror=notes.mirror is not None,
        is_critical=_is_critical(metadata, spec, criteria),
        is_never_evicted=_is_never_evicted(notes, labels),
        is_non_drainable=is_grouped or not (is_safe or _is_without_data(notes, volumes)),
        marked_until=0.0 if is_safe else _marked_until(notes, started or created),
        is_grouped=is_grouped,
        runs_once=is_job and not is_safe,
        preempts=spec.preemption_policy != _NEVER,
        is_restricted=is_placed and _is_restricted(spec),
        evicts_in_background=notes.request_only is not None,
        has_claim=any(volume.has_claim for volume in volumes),
        anti_affinity=_anti_affinity(spec.affinity, namespace, labels),
    )


def _pending(given: GivenPod, pod: Pod, criteria: Criteria) -> PendingPod:
    spec, status = given.spec or PodSpec(), given.status or PodStatus()
    affinity = constraints.affinity(spec.affinity)
    tolerations = constraints.tolerations(spec.tolerations)
    node_affinity = affinity.node_affinity
    selector = spec.node_selector
    reason = _reason_unscheduled(status.conditions)
    claims = {
        volume.claim_of(pod.name): volume.ephemeral is not None
        for volume in constraints.volumes(spec.volumes)
        if volume.has_claim
    }
    return PendingPod(
        pod=pod,
        node_name=pod.node,
        node_selector=()
        if constraints.is_absent(selector)
        else tuple(decode(_selectors, selector, "spec.nodeSelector").items()),
        node_terms=constraints.node_terms(node_affinity.required if node_affinity else None),
        tolerations=tolerations,
        scheduler=spec.scheduler_name or _DEFAULT_SCHEDULER,
        nominated=status.nominated_node_name or "",
        is_unschedulable=reason == "Unschedulable",
        is_gated=constraints.has_any(spec.scheduling_gates, "spec.schedulingGates"),
        tolerates_reservation=taints.tolerates_reservation(tolerations, criteria.taint_key),
        affinity=constraints.pod_terms(
            affinity.pod_affinity, "podAffinity", pod.namespace, pod.labels
        ),
        spread=constraints.spread(spec.topology_spread_constraints, pod.labels),
        claims=claims,
        unsupported=(*_find_unsupported(spec), *map(claim_text, claims)),
        k8s_app=pod.labels.get("k8s-app", _UNKNOWN_APP),
    )


def claim_text(name: str) -> str:
    """Return the text for a claim among the unsupported constraints."""
    return f"PersistentVolumeClaim {name}"


def _find_unsupported(spec: PodSpec) -> Iterator[str]:
    for kind in dict.fromkeys(constraints.unjudged_volumes(spec.volumes)):
        yield f"volume {kind}"
    if constraints.has_any(spec.resource_claims, "spec.resourceClaims"):
        yield "resource claims"
    if not (
        constraints.is_absent(spec.scheduling_group) and constraints.is_absent(spec.workload_ref)
    ):
        yield "scheduling group"


def _asking(spec: PodSpec, status: PodStatus | None) -> Asking:
    containers, inits = spec.containers or (), spec.init_containers or ()
    if status is None:
        return Asking(containers, inits, spec.resources, spec.overhead)
    held = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    resize = next(
        (condition for condition in status.conditions or () if condition.type == _RESIZE), None
    )
    return Asking(
        containers,
        inits,
        spec.resources,
        spec.overhead,
        held,
        ResourceStatus(resources=status.resources, allocated_resources=status.allocated_resources),
        is_infeasible=resize is not None and resize.reason == "Infeasible",
    )


def _anti_affinity(given: Raw, namespace: str, labels: dict[str, str]) -> tuple[PodTerm, ...]:
    text = bytes(given)
    # A key may be written with escapes, though no known client does.
    if _ANTI_AFFINITY not in text and _ESCAPE not in text:
        return ()
    return constraints.anti_affinity(given, namespace, labels)


def _is_critical(metadata: PodMeta, spec: PodSpec, criteria: Criteria) -> bool:
    if metadata.namespace not in criteria.namespaces:
        return False
    notes = metadata.annotations
    selector = criteria.selector
    return (
        (notes is not None and notes.critical == "")
        or (spec.priority or 0) >= criteria.least_priority
        or spec.priority_class_name in criteria.classes
        or (selector is not None and selector.matches(metadata.labels or {}))
    )


def _is_never_evicted(notes: PodNotes, labels: dict[str, str]) -> bool:
    key, value = _OURS
    marks = (notes.never_evict, labels.get(NEVER_EVICT))
    return labels.get(key) == value or any(mark not in {None, _NO} for mark in marks)


def _is_without_data(notes: PodNotes, volumes: Iterable[Volume]) -> bool:
    named = frozenset((notes.safe_volumes or "").replace(" ", "").split(","))
    return not any(volume.is_local and volume.name not in named for volume in volumes)


def _is_grouped(spec: PodSpec, notes: PodNotes, labels: dict[str, str]) -> bool:
    return (
        not _GROUPS.isdisjoint(labels)
        or bool(notes.volcano_group or notes.volcano_api_group)
        or bool(notes.yunikorn_group or notes.yunikorn_groups)
        or not constraints.is_absent(spec.scheduling_group)
    )


def _marked_until(notes: PodNotes, started: float) -> float:
    if (
        notes.safe == _NO
        or notes.do_not_evict == _YES
        or notes.prefer_not is not None
        or notes.request_only is not None
    ):
        return math.inf
    if notes.do_not_disrupt in {None, "", _NO}:
        return 0.0
    try:
        # Karpenter takes a duration from the start of the pod.
        return started + parse_duration(str(notes.do_not_disrupt))
    except ValueError:
        return math.inf


def _is_restricted(spec: PodSpec) -> bool:
    """Whether constraints of the pod exclude nodes; rather yes, as none of them is decoded."""
    affinity, spread = bytes(spec.affinity), bytes(spec.topology_spread_constraints)
    return (
        not (constraints.is_absent(spec.node_selector) or bytes(spec.node_selector) == _EMPTY)
        or (_REQUIRED in affinity and (b"nodeAffinity" in affinity or b"podAffinity" in affinity))
        or _HARD in spread
        or _ESCAPE in affinity + spread
        or not constraints.is_absent(spec.resource_claims)
    )


def _controller(owners: Iterable[Owner] | None) -> Owner:
    return next((owner for owner in owners or () if owner.controller), _NO_OWNER)


def _holds(conditions: Iterable[Condition] | None, kind: str) -> bool:
    return any(
        condition.type == kind and condition.status == "True" for condition in conditions or ()
    )


def _reason_unscheduled(conditions: Iterable[Condition] | None) -> str | None:
    """Why the pod has no node, as its scheduler says."""
    return next(
        (
            condition.reason
            for condition in conditions or ()
            if condition.type == "PodScheduled" and condition.status == "False"
        ),
        None,
    )


def _seconds(moment: datetime | None) -> float | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH).total_seconds()
