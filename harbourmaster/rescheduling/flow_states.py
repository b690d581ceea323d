"""The states of the flow of one critical pod, a struct for each (rescheduler-spec 6.4).

Only ``harbourmaster.rescheduling.flow`` makes states. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias, TypeVar

from msgspec import Struct

from harbourmaster.rescheduling.plans import Victim


class Detected(Struct, frozen=True):
    """The pod has not been unschedulable for long enough, or was not qualified yet."""

    name: ClassVar[str] = "DETECTED"


class WaitingForFit(Struct, frozen=True):
    """The pod fits on ``node`` without evictions since ``since``; the scheduler has to place it."""

    node: str
    since: float
    name: ClassVar[str] = "WAIT_FIT"


class Planning(Struct, frozen=True):
    """The pod waits for a plan; ``fit`` is the wait for the scheduler before it, if any."""

    fit: WaitingForFit | None = None
    name: ClassVar[str] = "PLAN"


class NoFit(Struct, frozen=True):
    """No plan helps the pod until the cluster changes."""

    name: ClassVar[str] = "NOFIT"


class BackingOff(Struct, frozen=True):
    """Nothing is done for the pod before the time ``until``."""

    until: float
    name: ClassVar[str] = "BACKOFF"


class ActivePlan(Struct, frozen=True, kw_only=True):
    """A plan that reserves a node.

    ``accepted`` are the UIDs of the victims whose eviction the API server accepted,
    ``in_background`` those of them that another controller evicts. ``tokens`` are the evictions and
    the violated budgets that were taken from the limits in advance. ``recorded_since`` is the
    RFC 3339 text of the time at which the reservation was first written.
    """

    node: str
    tier: int
    victims: tuple[Victim, ...]
    deadline: float
    tokens: tuple[int, int] = (0, 0)
    recorded_since: str = ""
    accepted: frozenset[str] = frozenset()
    in_background: frozenset[str] = frozenset()
    replans: int = 0
    """The number of times that other pods took the room on the node."""


class Reserving(Struct, frozen=True):
    """The reservation is being written to the node."""

    plan: ActivePlan
    name: ClassVar[str] = "RESERVE"


class Verifying(Struct, frozen=True):
    """The plan is checked against the API before anything is evicted.

    ``busy`` counts the consecutive answers of an overloaded API server.
    """

    plan: ActivePlan
    since: float
    retry_at: float = 0.0
    busy: int = 0
    name: ClassVar[str] = "VERIFY"


class Evicting(Struct, frozen=True):
    """The victims are evicted one by one.

    ``refused_since`` is the time since which a disruption budget refuses the next victim, None if
    none does. ``busy`` counts the consecutive answers of an overloaded API server.
    """

    plan: ActivePlan
    retry_at: float = 0.0
    refused_since: float | None = None
    busy: int = 0
    name: ClassVar[str] = "EVICT"


class Draining(Struct, frozen=True):
    """The accepted victims terminate."""

    plan: ActivePlan
    since: float
    name: ClassVar[str] = "DRAIN"


class Binding(Struct, frozen=True):
    """The room is there; the scheduler has to place the pod."""

    plan: ActivePlan
    since: float
    name: ClassVar[str] = "BIND"


WaitingState: TypeAlias = Detected | Planning | WaitingForFit | NoFit | BackingOff
LiveState: TypeAlias = Reserving | Verifying | Evicting | Draining | Binding
"""A state with a reservation, or with one that is being written."""
FlowState: TypeAlias = WaitingState | LiveState
LIVE: Final = (Reserving, Verifying, Evicting, Draining, Binding)
State = TypeVar("State", bound=FlowState)


class EvictionFlow(Struct, frozen=True, kw_only=True):
    """The progress for one critical pod.

    ``first_seen`` is when the pod was first seen without a node, ``unschedulable_since`` when it
    was first seen unschedulable without a preemption in progress (None if it is not).
    """

    uid: str
    key: str
    owner: str = ""
    state: FlowState = Detected()
    first_seen: float
    unschedulable_since: float | None = None
    attempt: int = 0
    """The number of the last plan that reserved a node; 0 if none did."""
    dry_note: str = ""
    """The last report of a dry run."""

    @property
    def is_live(self) -> bool:
        """Whether the flow reserves a node."""
        return isinstance(self.state, LIVE)

    @property
    def plan(self) -> ActivePlan:
        """The plan of a live flow. Raises ValueError for any other flow."""
        if isinstance(self.state, LIVE):
            return self.state.plan
        raise ValueError(f"{self.key}: no plan in state {self.state.name}")

    @property
    def node(self) -> str:
        """The node that is reserved, or on which the pod fits; empty if there is none."""
        if isinstance(self.state, WaitingForFit):
            return self.state.node
        return self.plan.node if self.is_live else ""

    @property
    def victims(self) -> tuple[Victim, ...]:
        """The victims of a live flow; empty for any other flow."""
        return self.plan.victims if self.is_live else ()

    @property
    def accepted(self) -> frozenset[str]:
        """The UIDs of the victims whose eviction was accepted; empty for a flow without a plan."""
        return self.plan.accepted if self.is_live else frozenset()

    def state_of(self, kind: type[State]) -> State:
        """The state, which must be of this kind. Raises ValueError if it is not."""
        if isinstance(self.state, kind):
            return self.state
        raise ValueError(f"{self.key}: in state {self.state.name}, not in {kind.name}")
