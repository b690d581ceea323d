"""By which rules decisions are made (krake-spec 0, 6.1; decision D11)."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

ConstraintValue = Literal["Raw", "Weighted", "Normalised"]
OnMetricsLoss = Literal["Stay", "Move"]
OnUnreachable = Literal["Stay", "Move"]

MOVE_WINDOW: Final = 3600.0
"""Seconds over which the moves of one application are counted."""
MOST_MOVES: Final = 100
"""Moves that are remembered."""


class Rules(Struct, frozen=True, gc=False, forbid_unknown_fields=True, rename="camel"):
    """What a pass holds for all applications. Numbers of moves that are 0 are no limit.

    Only moves to a better cluster are limited: who must leave its cluster leaves at once.
    """

    reschedule_after: Annotated[
        float,
        Meta(ge=0, le=31536000, description="seconds between decisions, and after a move"),
    ] = 60.0
    stickiness: Annotated[
        float, Meta(ge=0, le=1e6, description="weight by which an application stays where it is")
    ] = 0.1
    constraint_value: Annotated[
        ConstraintValue,
        Meta(description="what metric constraints compare: Weighted is as Krake does"),
    ] = "Raw"
    on_metrics_loss: Annotated[
        OnMetricsLoss,
        Meta(description="whether applications leave a cluster whose metrics are not available"),
    ] = "Stay"
    on_unreachable: Annotated[
        OnUnreachable,
        Meta(
            description="whether applications leave a cluster that does not answer; one that "
            "refuses our credentials, or whose nodes are not ready, is never left"
        ),
    ] = "Stay"
    hold_off_on_update: Annotated[
        bool, Meta(description="whether the wait after a move also holds for a changed application")
    ] = True
    moves_per_application: Annotated[
        int, Meta(ge=0, le=MOST_MOVES, description="moves of one application in an hour; 0 is any")
    ] = 20
    moves_per_target: Annotated[
        int, Meta(ge=0, description="moves to one cluster in a pass; 0 is any number")
    ] = 10
    seed: Annotated[
        str, Meta(description="which of equal clusters is drawn follows from it and the name")
    ] = ""
