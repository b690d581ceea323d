"""Places new clusters on clouds, and Magnum clusters on projects (krake-spec 3.10, 3.11).

Both are placed once and for all. Stickiness does not apply, and a target without metrics scores 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.references import ALL, DEFAULT_MODE, Reference, consenting
from harbourmaster.api.resources import MAGNUM_CLUSTERS, PROJECTS
from harbourmaster.api.times import moment
from harbourmaster.placement.application_status import (
    format_time,
    next_try,
    scheduled_condition,
    tries_left,
)
from harbourmaster.placement.candidates import InvalidConstraintError, compile_constraints
from harbourmaster.placement.decision import (
    CandidateVerdict,
    Decision,
    best,
    best_of,
    draw,
    nothing_suits,
    score,
)
from harbourmaster.placement.model import (
    DEGRADED,
    FAILED,
    FALSE,
    PENDING,
    SCHEDULED,
    TRUE,
    TargetReference,
    condition,
    with_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.references import ReferenceMode
    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.model import (
        Cluster,
        ClusterStatus,
        Condition,
        DecisionRecord,
        MagnumCluster,
        MagnumClusterStatus,
        MetricReference,
        Project,
    )
    from harbourmaster.placement.passes import Pass
    from harbourmaster.placement.snapshot import ObjectKey

CLOUD_AT: Final = "spec.constraints.cloud"
PROJECT_AT: Final = "spec.constraints.project"
_FAILED: Final = "it has failed and is not retried until its spec changes"


def cluster_is_settled(cluster: Cluster, now: datetime) -> str:
    """Why no cloud is looked for; empty where one is."""
    status = cluster.status
    if cluster.metadata.deletion_timestamp:
        return "it is being deleted"
    if cluster.spec.kubeconfig_secret_ref is not None:
        return "it has a kubeconfig, so it already exists"
    if cluster.spec.cloud_ref is not None:
        return "spec.cloudRef already names its cloud"
    if status.scheduled_to is not None:
        return f"it is placed on '{status.scheduled_to.name}'"
    if _is_new(cluster.metadata, status):
        return ""
    if status.state == FAILED:
        return _FAILED
    again = moment(status.next_retry_time)
    return f"the next try is at {status.next_retry_time}" if again and again > now else ""


def decide_cluster(cluster: Cluster, seen: Pass) -> Decision:
    """Find a cloud: one of the namespace where any suits, else a global one."""
    start = _start(cluster.metadata, cluster.status.scheduled_to, seen)
    if reason := cluster_is_settled(cluster, seen.now):
        return start.with_current("Waiting", reason)
    constraints = cluster.spec.constraints
    try:
        wanted = compile_constraints(constraints and constraints.cloud, CLOUD_AT)
    except InvalidConstraintError as error:
        return start.without_target("InvalidConstraint", str(error))
    verdicts: list[CandidateVerdict] = []
    for namespace in (cluster.metadata.namespace, ""):
        of_clouds = [seen.verdict(cloud, wanted) for cloud in seen.clouds(namespace)]
        verdicts += of_clouds
        matched = [verdict.target for verdict in of_clouds if not verdict.reason]
        if matched:
            compared = [target for target in matched if target.measured.terms] or matched
            return _choose(start, verdicts, compared, cluster.metadata, seen)
    start = msgspec.structs.replace(start, verdicts=verdicts)
    return start.without_target("NoSuitableTarget", nothing_suits(verdicts, "cloud"))


def decide_magnum_cluster(
    cluster: MagnumCluster, seen: Pass, mode: ReferenceMode = DEFAULT_MODE
) -> Decision:
    """Find a project; where some have metrics, the others don't count at all.

    It is of the cluster's namespace, or of one where both consent.
    """
    start = _start(cluster.metadata, cluster.status.project, seen)
    reason = _magnum_is_settled(cluster)
    # Consent does not change the spec, and it may come after the failure.
    is_retry = reason == _FAILED and mode != "Open"
    if reason and not is_retry:
        return start.with_current("Waiting", reason)
    constraints = cluster.spec.constraints
    try:
        wanted = compile_constraints(constraints and constraints.project, PROJECT_AT)
    except InvalidConstraintError as error:
        return start.without_target("InvalidConstraint", str(error))
    own, projects = cluster.metadata.namespace, seen.snapshot.projects
    verdicts = [
        seen.verdict(project, wanted)
        for project in seen.projects()
        if not (is_retry and project.namespace == own)
        and may_take(projects[project.namespace, project.name].metadata, cluster.metadata, mode)
    ]
    matched = [verdict.target for verdict in verdicts if not verdict.reason]
    measured = [target for target in matched if target.measured.terms]
    if not measured and any(target.measured.faults for target in matched):
        verdicts = [_without_metrics(verdict) for verdict in verdicts]
        matched = []
    if matched:
        return _choose(start, verdicts, measured or matched, cluster.metadata, seen)
    if is_retry:
        return start.with_current("Waiting", reason)
    start = msgspec.structs.replace(start, verdicts=verdicts)
    text = nothing_suits(verdicts, "project")
    if mode != "Open":
        text = f"{text}; {foreign_projects(cluster.metadata)}"
    return start.without_target("NoSuitableTarget", text)


def may_take(project: Metadata, cluster: Metadata, mode: ReferenceMode) -> bool:
    """Whether a Magnum cluster may go to a project: of two namespaces, both have to consent.

    A project that takes clusters of its own accord would make their owners use its cloud.
    """
    to_project, to_cluster = _both(project.namespace, project.name, cluster)
    return to_project.is_allowed(mode, project.annotations) and to_cluster.is_allowed(
        mode, cluster.annotations
    )


def foreign_projects(cluster: Metadata) -> str:
    """Return the hint how to place a Magnum cluster on a project of another namespace."""
    named = sorted(consenting(cluster.annotations) - {ALL, cluster.namespace})
    there = named[0] if named else "NAMESPACE"
    to_project, to_cluster = _both(there, "NAME", cluster)
    commands = [to_project.command] if named else [to_project.command, to_cluster.command]
    return f"projects of other namespaces need consent: {' and '.join(commands)}"


def _both(namespace: str, name: str, cluster: Metadata) -> tuple[Reference, Reference]:
    return (
        Reference(PROJECTS, namespace, name, cluster.namespace),
        Reference(MAGNUM_CLUSTERS, cluster.namespace, cluster.name, namespace),
    )


def settled_cluster(
    cluster: Cluster, decision: Decision, record: Callable[[Decision], DecisionRecord]
) -> ClusterStatus:
    """The status of a cluster after a decision; the very same one where nothing is to be written.

    Unlike upstream it is tried again, as its backoff says.
    """
    before, time = cluster.status, decision.time
    if decision.outcome == "Waiting":
        return before
    state, left, again = PENDING, None, ""
    if decision.outcome == "NoSuitableTarget":
        known = None if _is_new(cluster.metadata, before) else before.retries_left
        left = tries_left(cluster.spec.backoff, known)
        state = FAILED if left is None else DEGRADED
        again = "" if left is None else next_try(cluster.spec.backoff, time)
    elif decision.target is None:
        state = DEGRADED
    target = decision.target
    after = msgspec.structs.replace(
        before,
        state=state,
        retries_left=left,
        next_retry_time=again,
        conditions=with_conditions(before.conditions, format_time(time), _condition(decision)),
    )
    if target is not None:
        after = msgspec.structs.replace(
            after,
            scheduled_to=TargetReference(kind=target.kind, name=target.name, uid=target.uid),
            scheduled_time=format_time(time),
            scheduled_generation=decision.generation,
        )
    if after == before:
        return before
    return msgspec.structs.replace(after, last_decision=record(decision))


def settled_magnum_cluster(
    cluster: MagnumCluster,
    decision: Decision,
    projects: Mapping[ObjectKey, Project],
    record: Callable[[Decision], DecisionRecord],
) -> MagnumClusterStatus:
    """The status of a Magnum cluster after a decision; the same where nothing is to be written."""
    before, target = cluster.status, decision.target
    if decision.outcome == "Waiting":
        return before
    after = msgspec.structs.replace(
        before,
        state=PENDING if target is not None else FAILED,
        conditions=with_conditions(
            before.conditions, format_time(decision.time), _condition(decision)
        ),
    )
    if target is not None:
        after = msgspec.structs.replace(
            after,
            project=TargetReference(namespace=target.namespace, name=target.name, uid=target.uid),
            template=projects[target.namespace, target.name].spec.template,
        )
    if after == before:
        return before
    return msgspec.structs.replace(after, last_decision=record(decision))


def merge_project(
    cluster: MagnumCluster, project: Project
) -> tuple[dict[str, str], tuple[MetricReference, ...]]:
    """The labels and metrics of a Magnum cluster that goes to a project: its own ones win."""
    own = cluster.spec.metrics or ()
    names = {metric.name for metric in own}
    more = (metric for metric in project.spec.metrics or () if metric.name not in names)
    return {**project.metadata.labels, **cluster.metadata.labels}, (*own, *more)


def _magnum_is_settled(cluster: MagnumCluster) -> str:
    status = cluster.status
    if cluster.metadata.deletion_timestamp:
        return "it is being deleted"
    if status.project is not None:
        return f"it is placed on '{status.project.name}'"
    if status.state == FAILED and not _is_new(cluster.metadata, status):
        return _FAILED
    return ""


def _is_new(metadata: Metadata, status: ClusterStatus | MagnumClusterStatus) -> bool:
    """Whether this generation has not been tried."""
    scheduled = condition(status.conditions, SCHEDULED)
    return scheduled is not None and 0 < scheduled.observed_generation < metadata.generation


def _start(metadata: Metadata, bound: TargetReference | None, seen: Pass) -> Decision:
    current = bound.name if bound is not None else ""
    return Decision(
        outcome="Waiting", time=seen.now, generation=metadata.generation, current=current
    )


def _choose(
    start: Decision,
    verdicts: Sequence[CandidateVerdict],
    compared: Sequence[Candidate],
    metadata: Metadata,
    seen: Pass,
) -> Decision:
    scores = {target.label: score(target.measured) for target in compared}
    chosen = best(scores)
    name = draw(chosen, seen.rules.seed, metadata.uid, metadata.key)
    target = next(target for target in compared if target.label == name)
    start = msgspec.structs.replace(start, verdicts=verdicts, scores=scores, chosen=chosen)
    return start.with_target("Placed", best_of(name, scores), target)


def _without_metrics(verdict: CandidateVerdict) -> CandidateVerdict:
    if verdict.reason:
        return verdict
    text = verdict.target.measured.fault or "it has no metrics, but other projects do"
    return CandidateVerdict(verdict.target, text)


def _condition(decision: Decision) -> Condition:
    target = decision.target
    if target is None:
        return scheduled_condition(decision, FALSE, decision.outcome, decision.reason)
    return scheduled_condition(decision, TRUE, SCHEDULED, f"it is placed on '{target.label}'")
