"""The rules of decisions (krake-spec 0, 6.1; decision D11)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from harbourmaster.api.settings import CountFromZero

ConstraintValue = Literal["Raw", "Weighted", "Normalised"]
OnMetricsLoss = Literal["Stay", "Move"]
OnUnreachable = Literal["Stay", "Move"]
OnFailure = Literal["Move", "Stay"]

MOVE_WINDOW: Final = 3600.0
"""Seconds over which the moves of one application are counted."""
MOST_MOVES: Final = 100
"""Moves that are remembered."""


class Rules(Struct, frozen=True, gc=False, forbid_unknown_fields=True, rename="camel"):
    """The rules of a pass over all applications. A number of moves of 0 is unlimited.

    Moves to a better cluster and forced moves have separate limits.
    """

    reschedule_after: Annotated[
        float,
        Meta(ge=0, le=31536000),
        "seconds between decisions, and after a move until the next one",
    ] = 60.0
    stickiness: Annotated[
        float, Meta(ge=0, le=1e6), "stickiness: weight of the current cluster in the score"
    ] = 0.1
    constraint_value: Annotated[
        ConstraintValue, "what metric constraints compare; Weighted is Krake's behaviour"
    ] = "Raw"
    on_metrics_loss: Annotated[
        OnMetricsLoss,
        "whether applications stay on, or move away from, a cluster whose metrics are not "
        "available",
    ] = "Stay"
    on_unreachable: Annotated[
        OnUnreachable,
        "whether applications stay on, or move away from, a cluster that does not answer; they "
        "always stay if it refuses our credentials or its nodes are not ready",
    ] = "Stay"
    offline_after_seconds: Annotated[
        float, Meta(ge=0, le=86400), "seconds without an answer before onUnreachable: Move moves"
    ] = 300.0
    on_failure: Annotated[
        OnFailure, "whether an application moves on from a cluster where it was never ready"
    ] = "Move"
    failed_after_seconds: Annotated[
        float, Meta(ge=1, le=86400), "seconds within which an application must be ready (onFailure)"
    ] = 600.0
    hold_off_on_update: Annotated[
        bool, "whether a changed application also waits rescheduleAfter after a move"
    ] = True
    moves_per_application: Annotated[
        int, Meta(ge=0, le=MOST_MOVES), "moves of one application in an hour; 0 is unlimited"
    ] = 20
    moves_per_target: Annotated[CountFromZero, "moves to one cluster in a pass; 0 is unlimited"] = (
        10
    )
    forced_moves_per_cluster: Annotated[
        CountFromZero, "moves in a pass of applications that must leave one cluster; 0 is unlimited"
    ] = 10
    forced_moves_total: Annotated[
        CountFromZero, "moves in a pass of all applications that must leave; 0 is unlimited"
    ] = 20
    stateless_kinds: Annotated[
        tuple[str, ...],
        "custom resources that hold no data, as KIND.GROUP or *.GROUP, beside the known ones; an "
        "application with other custom resources stays on its cluster",
    ] = ()
    seed: Annotated[
        str,
        "seed for the choice among clusters with equal scores; the same seed and application name "
        "give the same choice",
    ] = ""
