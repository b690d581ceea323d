"""The results of the actions of a flow, from which ``apply_event`` makes the next state.

Times are seconds of a monotonic clock.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct

from harbourmaster.rescheduling.flow_states import ActivePlan
from harbourmaster.rescheduling.plans import Victim


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
