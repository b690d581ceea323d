"""All of it in a few numbers, and what needs attention first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from controller.dashboard.pages import (
    applications,
    clusters,
    gates,
    policies,
    reservations,
)
from controller.dashboard.pages.states import Notice, Tally

if TYPE_CHECKING:
    from datetime import datetime

    from controller.dashboard.query import Query
    from controller.dashboard.sight import Sight
    from controller.dashboard.world import World

MOST_NOTICES: Final = 30
_TALLIES: Final = (
    applications.tally,
    gates.tally,
    policies.tally,
    clusters.tally,
    clusters.tally_placed,
    reservations.tally,
)
_RANK: Final = {"bad": 0, "warn": 1}


class Overview(Struct, frozen=True):
    """The page."""

    tallies: tuple[Tally, ...]
    notices: tuple[Notice, ...]
    more: int
    """Notices beyond those on the page, as far as they were counted."""


def overview(world: World, sight: Sight, _query: Query, now: datetime) -> Overview:
    """The page."""
    tallies = tuple(each(world, sight, now) for each in _TALLIES)
    notices = sorted(
        (notice for tally in tallies for notice in tally.notices),
        key=lambda each: _RANK.get(each.tone, 9),
    )
    return Overview(tallies, tuple(notices[:MOST_NOTICES]), max(len(notices) - MOST_NOTICES, 0))
