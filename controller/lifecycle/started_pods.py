"""Pods that a scheduler of ours has given a node, as far as they fail to start (decision D9)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.times import parse
from harbourmaster.gates.owners import DAEMON_SET, supported_owner
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.failed_nodes import Failure, Start, start_failure
from harbourmaster.lifecycle.workloads import names_of_pod

_READY: Final = "Ready"


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    node_name: str = ""


class _Condition(Struct, frozen=True, gc=False, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: str | None = None


class _Waiting(Struct, frozen=True, gc=False):
    reason: str = ""


class _State(Struct, frozen=True, gc=False):
    waiting: _Waiting | None = None


class _Container(Struct, frozen=True, gc=False):
    state: _State = _State()


class _Status(Struct, frozen=True, gc=False, rename="camel"):
    phase: str = ""
    start_time: str = ""
    conditions: tuple[_Condition, ...] = ()
    init_container_statuses: tuple[_Container, ...] = ()
    container_statuses: tuple[_Container, ...] = ()


class _Pod(Struct, frozen=True, gc=False):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class StartedPod(Struct, frozen=True, gc=False):
    """A pod that failed to start, of that version; any other is kept nearly empty."""

    namespace: str = ""
    version: str = ""
    failure: Failure | None = None


_SOUND: Final = StartedPod()
_decode: Final = msgspec.json.Decoder(_Pod).decode


def selector(scheduler: str) -> str:
    """The fields of the pods to which that scheduler has given a node."""
    return f"spec.schedulerName={scheduler},spec.nodeName!="


def decode_started(raw: msgspec.Raw | bytes) -> StartedPod:
    """A pod from its JSON."""
    found = _decode(raw)
    status, metadata = found.status, found.metadata
    reason = start_failure(_start(status))
    # One that is stopped while it starts ends as failed too; what failed before is recorded.
    if not reason or not found.spec.node_name or metadata.deletion_timestamp:
        return _SOUND
    owner = supported_owner(metadata.owner_references)
    # One of a DaemonSet has no other node to go to.
    if owner is None or owner.kind == DAEMON_SET:
        return _SOUND
    described = workload_of(metadata.annotations, metadata.labels)
    if described is None:
        return _SOUND
    at = parse(status.start_time or metadata.creation_timestamp)
    return StartedPod(
        namespace=metadata.namespace,
        version=names_of_pod(described).version,
        failure=Failure(found.spec.node_name, reason, at),
    )


def versions_of_started(pod: StartedPod) -> list[tuple[str, str]]:
    """The workload version that the pod is of, by namespace and name."""
    return [(pod.namespace, pod.version)] if pod.failure is not None else []


def failed_node(raw: msgspec.Raw | bytes) -> tuple[str, str] | None:
    """When a Job's pod that failed was made, and its node; None for one that has not, or has none.

    Of several the last one made counts.
    """
    found = _decode(raw)
    if found.status.phase != "Failed" or not found.spec.node_name:
        return None
    return found.metadata.creation_timestamp, found.spec.node_name


def _start(status: _Status) -> Start:
    ready = next((each for each in status.conditions if each.type == _READY), None)
    return Start(
        phase=status.phase,
        is_ready=ready is not None and ready.status == "True",
        started=status.start_time,
        turned=(ready.last_transition_time or "") if ready is not None else "",
        reasons=tuple(
            each.state.waiting.reason
            for each in (*status.init_container_statuses, *status.container_statuses)
            if each.state.waiting is not None
        ),
    )
