"""The states of the flow of one critical pod, the inputs of its decisions, and its events (6.4).

Only ``harbourmaster.rescheduling.flow`` makes states, from the events, which are the results of
actions. Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias, TypeVar

from msgspec import Struct

from harbourmaster.rescheduling.plans import Victim

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.rescheduling.model import PendingPod, Pod


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
    def accepted_uids(self) -> frozenset[str]:
        """The UIDs of the victims whose eviction was accepted; empty for a flow without a plan."""
        return self.plan.accepted if self.is_live else frozenset()

    def state_of(self, kind: type[State]) -> State:
        """The state, which must be of this kind. Raises ValueError if it is not."""
        if isinstance(self.state, kind):
            return self.state
        raise ValueError(f"{self.key}: in state {self.state.name}, not in {kind.name}")


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


class Qualified(Struct, frozen=True):
    """The checks before a plan passed."""


class Disqualified(Struct, frozen=True):
    """The checks before a plan no longer pass, so that they must be repeated."""


class ClusterChanged(Struct, frozen=True):
    """A plan that reserved nothing may have another result now."""


class Fits(Struct, frozen=True):
    """The pod fits on these nodes without evictions, on the first one best."""

    nodes: tuple[str, ...]


class NotPlanned(Struct, frozen=True):
    """No node can be reserved; ``dry_note`` is the report of a dry run, None outside of one."""

    dry_note: str | None = None


class Planned(Struct, frozen=True):
    """A node is to be reserved."""

    plan: ActivePlan
    attempt: int


class Reserved(Struct, frozen=True):
    """The reservation is written to the node."""


class Adopted(Struct, frozen=True):
    """An earlier leader has written the reservation to the node."""

    plan: ActivePlan


class VerificationDelayed(Struct, frozen=True):
    """The plan could not be verified before ``until``; ``is_busy`` if the API server said so."""

    until: float
    is_busy: bool = False


class Checked(Struct, frozen=True):
    """The plan was made again with the pods that the API has, and its evictions can succeed."""

    tier: int
    victims: tuple[Victim, ...]
    tokens: tuple[int, int]
    """The evictions and the violated budgets that it still takes."""


class Verified(Struct, frozen=True):
    """The tokens of the plan are recorded, so that the evictions can begin."""


class Evicted(Struct, frozen=True):
    """The API server accepted an eviction, or the victim is gone.

    ``is_replaced``: another pod has the victim's name, so that the node must be verified again.
    """

    victim: Victim
    in_background: bool = False
    is_replaced: bool = False


class EvictionDelayed(Struct, frozen=True):
    """An eviction is to be repeated at ``until``: a budget refused it, or the server is busy."""

    until: float
    is_busy: bool


class VictimSpared(Struct, frozen=True):
    """A victim must not be evicted, so that the node must be verified again."""

    why: str


class AllEvicted(Struct, frozen=True):
    """The API server accepted the evictions of all victims."""


class Abandoned(Struct, frozen=True):
    """The plan is given up; nothing is done before ``until``, None to plan again at once."""

    until: float | None = None


class Mismatched(Struct, frozen=True):
    """The scheduler does not place the pod on the node where it should fit."""


class Unaffordable(Struct, frozen=True):
    """The eviction limits allow the plan at ``until``."""

    until: float


Event: TypeAlias = (
    Qualified
    | Disqualified
    | ClusterChanged
    | Fits
    | NotPlanned
    | Unaffordable
    | Planned
    | Reserved
    | Adopted
    | VerificationDelayed
    | Checked
    | Verified
    | Evicted
    | EvictionDelayed
    | VictimSpared
    | AllEvicted
    | Abandoned
    | Mismatched
)
