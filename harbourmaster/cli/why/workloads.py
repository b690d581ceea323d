"""Refusals that keep pods, or their versions, from being created: of all of a namespace."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec.structs import replace

from harbourmaster.api.resources import (
    CORE_EVENTS,
    DAEMON_SETS,
    DEPLOYMENTS,
    ROLLOUTS,
    STATEFUL_SETS,
    WORKLOADS,
)
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.offline import object_in
from harbourmaster.cli.why.pod_causes import latest_message, refusal_step, why_no_pods
from harbourmaster.cli.why.subjects import events_of
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.task_pods import FAILED_CREATE
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    import msgspec

    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.lifecycle.gate_report import GateReport
    from harbourmaster.lifecycle.gated_pods import Pod

    # By the kind and the uid of the object.
    Events = dict[tuple[str, str], list[dict[str, Any]]]

_COUNTS: Final = ("replicas", "currentNumberScheduled")
"""Fields of a status that count pods."""


class RefusedWorkload(NamedTuple):
    """A workload of which no pod can be created, why, and the next step."""

    namespace: str
    reference: str
    text: str
    step: str


async def refused_workloads(live: Installation, namespace: str | None) -> list[RefusedWorkload]:
    """Return those of a namespace, or of all. Raises an ApiError."""
    events: Events = {}
    fields = f"reason={FAILED_CREATE}"
    for event in await live.attempt(
        live.list_all(CORE_EVENTS, decode_anything, namespace, field_selector=fields), []
    ):
        about = object_in(event, "involvedObject")
        events.setdefault((about.get("kind", ""), about.get("uid", "")), []).append(event)
    refused, kinds = [], {DEPLOYMENTS.kind, ROLLOUTS.kind, *(kind for kind, _ in events)}
    # Of the other kinds no status tells of a refusal.
    listed = (DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, ROLLOUTS)
    for resource in (resource for resource in listed if resource.kind in kinds):
        refused += await live.items(resource, partial(_refused, resource.kind, events), namespace)
    return refused


def _refused(kind: str, events: Events, raw: msgspec.Raw) -> RefusedWorkload | None:
    own, workload = metadata_in(raw), decode_anything(raw)
    status = object_in(workload, "status")
    # A status tells only whether there are pods, and not how old they are.
    created = None if any(map(status.get, _COUNTS)) else ""
    reason = why_no_pods(workload, kind, created, latest_message(events.get((kind, own.uid), ())))
    if reason is None or reason[0] != "pods-refused":
        return None
    describe = f"kubectl -n {own.namespace} describe {kind.lower()} {own.name}"
    step = refusal_step(reason[2], own.namespace) or describe
    return RefusedWorkload(own.namespace, f"{kind} {own.key}", reason[2], step)


async def version_refusal(live: Installation, pod: Pod) -> str:
    """Return why the controller cannot create the version of a pod, as by a quota on objects."""
    described = workload_of(pod.annotations, pod.labels)
    name = names_of_pod(described).workload if described is not None else ""
    raw = await live.attempt(live.find(WORKLOADS, name, pod.namespace), None) if name else None
    if raw is None:
        return ""
    for event in await events_of(live, pod.namespace, metadata_in(raw).uid, of="lifecycle"):
        if event.is_warning and event.reason.startswith("CreateWorkloadVersion"):
            return f"its version is not created: {event.message}"
    return ""


async def with_refusal(live: Installation, pod: Pod, report: GateReport) -> GateReport:
    """Return the report with why there is no version yet, and what shows that, if it is refused."""
    refusal = await version_refusal(live, pod) if report.code == "waits-for-version" else ""
    if not refusal:
        return report
    step = refusal_step(refusal, pod.namespace) or report.advice
    return replace(report, text=f"{report.text}: {refusal}", advice=step)
