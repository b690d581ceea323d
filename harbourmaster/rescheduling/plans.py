"""The planner's settings, inputs and results (rescheduler-spec 5, 6.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from harbourmaster.rescheduling.model import TAINT_KEY, Pod

NonDrainable: TypeAlias = Literal["avoid", "forbid", "forbidMarked", "ignore"]
ScoreOrder: TypeAlias = Literal["documented", "priorityFirst", "random"]
Mode: TypeAlias = Literal["complement", "standalone"]
ScoreTerm: TypeAlias = tuple[str, int | str]
"""A part of a score, by name; less is better."""

DEFAULT_GRACE: Final = 10
"""Seconds; above it a grace is long, even where the setting leaves graces as they are."""
NOTHING: Final[Mapping[str, int]] = {}


class PlannerSettings(Struct, frozen=True, kw_only=True):
    """The part of the settings that plans depend on.

    ``grace_limit`` -1 keeps each pod's own grace period. ``mode`` only concerns the controller.
    """

    allow_pdb_violation: bool = True
    non_drainable: NonDrainable = "avoid"
    grace_limit: int = DEFAULT_GRACE
    max_victims: int = 10
    max_victim_priority: int = 2_000_000_000
    protected_namespaces: frozenset[str] = frozenset()
    score_order: ScoreOrder = "documented"
    seed: int = 0
    prefer_relocatable: bool = False
    taint_key: str = TAINT_KEY
    mode: Mode = "complement"

    @property
    def long_grace(self) -> int:
        """Seconds above which a grace is long."""
        return self.grace_limit if self.grace_limit > 0 else DEFAULT_GRACE


class Circumstances(Struct, frozen=True, kw_only=True):
    """Other plans in progress, and exclusions.

    ``reserved``: by node, the pods that other plans make room for; they count as present.
    ``departing``: UIDs of the pods that other plans evict; they count as gone. ``claimed``: by key,
    what live plans take of a budget without its status showing it. ``excluded_nodes``: by name, a
    reason. ``excluded_pods``: UIDs of pods that can't be evicted. ``spared_owners``: UIDs of owners
    whose pods were evicted often (rescheduler-spec 7).
    """

    reserved: Mapping[str, Iterable[Pod]] = {}
    departing: frozenset[str] = frozenset()
    claimed: Mapping[str, int] = NOTHING
    excluded_nodes: Mapping[str, str] = {}
    excluded_pods: frozenset[str] = frozenset()
    spared_owners: frozenset[str] = frozenset()


class Victim(Struct, frozen=True, gc=False, kw_only=True):
    """A pod that has to move.

    ``new_grace`` is what it gets, at least 1 s; ``grace`` is its own. ``is_leaving``: it goes
    already, and only its grace is to be shortened (by DELETE). ``budget`` is the key of the budget
    that its eviction takes from, empty for none; with ``violates`` the budget doesn't allow it.
    """

    uid: str
    namespace: str
    name: str
    node: str
    priority: int = 0
    grace: int = 30
    new_grace: int = 30
    is_leaving: bool = False
    budget: str = ""
    violates: bool = False
    is_bare: bool = False
    is_non_drainable: bool = False
    is_marked: bool = False
    is_grouped: bool = False
    runs_once: bool = False
    evicts_in_background: bool = False
    has_claim: bool = False
    owner: str = ""

    @property
    def key(self) -> str:
        """The key of the pod in the stores: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


class CandidateNode(Struct, frozen=True, gc=False):
    """A node on which the pod fits after these have moved; in tier 0 it does as it is."""

    node: str
    tier: int
    victims: tuple[Victim, ...]
    score: tuple[ScoreTerm, ...]


class Plan(Struct, frozen=True, gc=False, kw_only=True):
    """The best node for a pod, the next best ones, and why the others are out of the question.

    ``reasons`` counts nodes by reason, a node once by each of its reasons. ``unsupported`` has, in
    words, the constraints that are not supported; then there is no candidate.
    """

    candidate: CandidateNode | None = None
    runners_up: tuple[CandidateNode, ...] = ()
    reasons: dict[str, int] = {}
    unsupported: tuple[str, ...] = ()
    evaluated: int = 0
