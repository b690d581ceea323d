"""The inputs of the decisions about a flow (rescheduler-spec 6.4): pure."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.rescheduling.model import PendingPod, Pod

STUCK_SECONDS: Final = 300.0
"""Seconds for which a node must be nominated before its preemption can count as stuck."""
STUCK_OVERDUE: Final = 60.0
"""Seconds after the end of its grace period after which a terminating pod counts as stuck."""


class Observation(Enum):
    """The state of a critical pod in the API."""

    WAITING = "unschedulable"
    NOMINATED = "the scheduler preempts for it"
    QUIET = "not known to be unschedulable"
    EXCUSED = "not critical, or gated"
    BOUND = "bound"
    GONE = "gone"


class FlowInputs(Struct, frozen=True):
    """The inputs of a decision. Victims are given by UID."""

    observation: Observation
    is_on: bool = True
    node_is_there: bool = True
    node_is_open: bool = True
    """Whether the node accepts the pod, regardless of the pods on it."""
    staying: frozenset[str] = frozenset()
    """Victims that run and are not terminating."""
    leaving: frozenset[str] = frozenset()
    """Victims that are terminating."""
    has_room: bool | None = None
    """Whether the pod fits on its node now; None if that was not checked."""
    is_stuck: bool = False
    """Whether the preemption in progress for the pod is stuck."""


def observe(uid: str, pod: Pod | None, pending: PendingPod | None) -> Observation:
    """Return the state of the pod with this UID; another pod of the same name does not count."""
    known = pending.pod if pending is not None else pod
    if known is None or known.uid != uid or known.deletion is not None or known.is_finished:
        return Observation.GONE
    if known.node:
        return Observation.BOUND
    if pending is None or not known.is_critical or pending.is_gated:
        return Observation.EXCUSED
    if pending.nominated:
        return Observation.NOMINATED
    return Observation.WAITING if pending.is_unschedulable else Observation.QUIET


def preemption_is_stuck(
    ends: Iterable[float], seconds: float, now: float, *, overdue: float = STUCK_OVERDUE
) -> bool:
    """Return whether all pods that a preemption waits for are long overdue (3.8, rule 3).

    ``ends`` are the ends of the grace periods of the terminating pods on the nominated node, and
    ``now`` is a time of the same clock. ``seconds`` says how long the node has been nominated.
    """
    graces = list(ends)
    return seconds >= STUCK_SECONDS and bool(graces) and all(now - end > overdue for end in graces)
