"""Decodes pods that our scheduler has bound to a node and that fail to start (decision D9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.times import parse_rfc3339
from harbourmaster.gates.owners import DAEMON_SET, supported_owner
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.failed_nodes import NodeFailure, Start, start_failure
from harbourmaster.lifecycle.gated_pods import decode_object
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    import msgspec

    from harbourmaster.lifecycle.gated_pods import PodStatus

_READY: Final = "Ready"


class StartedPod(Struct, frozen=True, gc=False):
    """A pod of a version that failed to start; any other pod is kept nearly empty."""

    namespace: str = ""
    version: str = ""
    failure: NodeFailure | None = None


_SOUND: Final = StartedPod()


def selector(scheduler: str) -> str:
    """Return the field selector of the pods that a scheduler has bound to a node."""
    return f"spec.schedulerName={scheduler},spec.nodeName!="


def decode_started(raw: msgspec.Raw | bytes) -> StartedPod:
    """Decode a pod from its JSON."""
    pod = decode_object(raw)
    status, metadata = pod.status, pod.metadata
    reason = start_failure(_start(status))
    # A pod that is deleted while it starts ends as failed too.
    if not reason or not pod.spec.node_name or metadata.deletion_timestamp:
        return _SOUND
    owner = supported_owner(metadata.owner_references)
    # A pod of a DaemonSet cannot run on another node.
    if owner is None or owner.kind == DAEMON_SET:
        return _SOUND
    described = workload_of(metadata.annotations, metadata.labels)
    if described is None:
        return _SOUND
    at = parse_rfc3339(status.start_time or metadata.creation_timestamp)
    return StartedPod(
        namespace=metadata.namespace,
        version=names_of_pod(described).version,
        failure=NodeFailure(pod.spec.node_name, reason, at),
    )


def versions_of_started(pod: StartedPod) -> list[tuple[str, str]]:
    """Return namespace and name of the pod's workload version, if the pod failed to start."""
    return [(pod.namespace, pod.version)] if pod.failure is not None else []


def failed_node(raw: msgspec.Raw | bytes) -> tuple[str, str] | None:
    """Return the creation time and node of a Job's failed pod, or None for any other pod."""
    pod = decode_object(raw)
    if pod.status.phase != "Failed" or not pod.spec.node_name:
        return None
    return pod.metadata.creation_timestamp, pod.spec.node_name


def _start(status: PodStatus) -> Start:
    ready = next((condition for condition in status.conditions if condition.type == _READY), None)
    return Start(
        phase=status.phase,
        is_ready=ready is not None and ready.status == "True",
        started=status.start_time,
        turned=(ready.last_transition_time or "") if ready is not None else "",
        reasons=tuple(
            init_container_status.state.waiting.reason
            for init_container_status in (
                *status.init_container_statuses,
                *status.container_statuses,
            )
            if init_container_status.state.waiting is not None
        ),
    )
