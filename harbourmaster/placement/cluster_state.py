"""The status of a member cluster from an observation of it (krake-spec 1.3, 7.1).

MetricsAvailable, which another controller writes, is separate from reachability, so that neither
overwrites the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.placement.model import (
    FALSE,
    NO_ANSWER,
    NODES_READY,
    REACHABLE,
    TRUE,
    Condition,
    condition,
    with_conditions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

METRICS_AVAILABLE: Final = "MetricsAvailable"
UNKNOWN: Final = "Unknown"
INVALID_CREDENTIALS: Final = "InvalidCredentials"
"""The reason of a cluster that rejects our credentials: its state is unknown."""

PENDING: Final = "Pending"
ONLINE: Final = "Online"
CONNECTING: Final = "Connecting"
OFFLINE: Final = "Offline"
UNHEALTHY: Final = "Unhealthy"
NOT_READY: Final = "NotReady"
FAILING_METRICS: Final = "FailingMetrics"

WITHIN_LIMITS: Final = "WithinLimits"
"""False if the cluster sends more than it may; missing unless that has happened."""
_PRESSURE: Final = "pressure"
_MAX_TEXT: Final = 1024
_MAX_RESOURCES: Final = 256 * 1024
"""Characters; API servers have thousands of definitions at most, and strangers' have any number."""
_PER_NAME: Final = 3


class NodeCondition(Struct, frozen=True, gc=False):
    """One condition of a node."""

    type: str = ""
    status: str = ""


class ObservedNode(Struct, frozen=True):
    """A node as far as it counts."""

    name: str
    conditions: tuple[NodeCondition, ...] = ()


class ClusterObservation(Struct, frozen=True):
    """An observation: why the cluster (``fault``) or its nodes (``nodes_fault``) cannot be read.

    ``answers`` is None until it was asked; ``is_denied``: the fault is one of our credentials, of a
    certificate or of a setting.
    """

    answers: bool | None = None
    fault: str = ""
    nodes: tuple[ObservedNode, ...] = ()
    nodes_fault: str = ""
    is_denied: bool = False
    excess: str = ""
    """The limit on what the cluster sends that it exceeds."""


class ClusterStatusUpdate(Struct, frozen=True):
    """The new state and all conditions, also those of other writers."""

    state: str
    conditions: tuple[Condition, ...]


def observe(
    state: str,
    conditions: tuple[Condition, ...],
    seen: ClusterObservation,
    now: str,
    generation: int = 0,
    min_ready_percent: int = 50,
) -> ClusterStatusUpdate:
    """The status after an observation, given the old one; ``now`` is RFC 3339.

    A cluster that was offline is Connecting for one look before anything else is said. How long it
    has not answered does not include the time for which it refused credentials.
    """
    limits = _limits(conditions, seen.excess)
    if limits is not None:
        limits = replace(limits, observed_generation=generation)
        conditions = with_conditions(conditions, now, limits)
    if seen.answers is None:
        return ClusterStatusUpdate(state or PENDING, conditions)
    if not seen.answers:
        reason = INVALID_CREDENTIALS if seen.is_denied else NO_ANSWER
        reachable = Condition(
            type=REACHABLE, status=FALSE, reason=reason, message=seen.fault or "no answer"
        )
        nodes = Condition(type=NODES_READY, status=UNKNOWN, reason="ClusterUnreachable")
        new_state = OFFLINE
    elif state == OFFLINE:
        reachable = Condition(type=REACHABLE, status=UNKNOWN, reason="Connecting")
        nodes = Condition(type=NODES_READY, status=UNKNOWN, reason="Connecting")
        new_state = CONNECTING
    else:
        reachable = Condition(type=REACHABLE, status=TRUE, reason="Answers")
        new_state, nodes = _nodes(seen, min_ready_percent)
    before = condition(conditions, REACHABLE)
    if before is not None and before.reason != reachable.reason:
        conditions = tuple(condition for condition in conditions if condition is not before)
    written = [
        replace(condition, observed_generation=generation) for condition in (reachable, nodes)
    ]
    every = with_conditions(conditions, now, *written)
    metrics = condition(every, METRICS_AVAILABLE)
    if new_state == ONLINE and metrics is not None and metrics.status == FALSE:
        new_state = FAILING_METRICS
    return ClusterStatusUpdate(new_state, every)


def limit_names(resources: Iterable[str]) -> tuple[str, ...]:
    """So many of the custom resources of a cluster that its status stays one that can be stored."""
    names, left = [], _MAX_RESOURCES
    for resource in resources:
        left -= len(resource) + _PER_NAME
        if left < 0:
            break
        names.append(resource)
    return tuple(names)


def _limits(conditions: tuple[Condition, ...], excess: str) -> Condition | None:
    if excess:
        text = f"{excess}: correct its API server, or reduce its objects"
        return Condition(type=WITHIN_LIMITS, status=FALSE, reason="LimitExceeded", message=text)
    if condition(conditions, WITHIN_LIMITS) is None:
        return None
    return Condition(type=WITHIN_LIMITS, status=TRUE, reason="WithinLimits")


def _nodes(seen: ClusterObservation, min_ready_percent: int) -> tuple[str, Condition]:
    """The state of a cluster that answers, by the share of its ready nodes."""
    if seen.nodes_fault:
        return NOT_READY, Condition(
            type=NODES_READY, status=UNKNOWN, reason="NodesUnknown", message=seen.nodes_fault
        )
    faults = [node_fault for node in seen.nodes if (node_fault := _fault(node)) is not None]
    if not faults:
        return ONLINE, Condition(type=NODES_READY, status=TRUE, reason="NodesReady")
    count = len(seen.nodes)
    ready = count - len(faults)
    state, reason, fault = faults[0]
    text = f"{ready} of {count} nodes are ready: {fault}"
    status = FALSE
    if ready and ready * 100 >= count * min_ready_percent:
        state, status, reason = ONLINE, TRUE, "NodesReady"
    text = text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"
    return state, Condition(type=NODES_READY, status=status, reason=reason, message=text)


def _fault(node: ObservedNode) -> tuple[str, str, str] | None:
    """The state, reason and text of the first thing that is wrong with a node."""
    for reported in node.conditions:
        if reported.type.lower().endswith(_PRESSURE) and reported.status == TRUE:
            return UNHEALTHY, "NodePressure", f"node {node.name} has {reported.type}"
        if reported.type == "Ready" and reported.status != TRUE:
            return NOT_READY, "NodeNotReady", f"node {node.name} is not ready"
    return None
