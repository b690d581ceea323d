"""Everything in a few numbers, and what needs attention first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.dashboard.pages import (
    applications,
    attention,
    clusters,
    gates,
    policies,
    reservations,
)
from harbourmaster.dashboard.pages.states import MOST_NOTICES, Notice, Tally

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.turns import Sliced
    from harbourmaster.dashboard.visibility import Visibility

_TALLIES: Final = (
    applications.tally,
    policies.tally,
    clusters.tally,
    clusters.tally_placed,
    reservations.tally,
)
_RANK: Final = {"bad": 0, "warn": 1}


class Further(Struct, frozen=True, gc=False):
    """Notices beyond those on the page."""

    title: str
    link: str
    count: int


class OverviewPage(Struct, frozen=True):
    """The page."""

    tallies: tuple[Tally, ...]
    notices: tuple[Notice, ...]
    further: tuple[Further, ...]


def overview(
    sources: PageSources, visible: Visibility, _query: PageQuery, now: datetime
) -> Sliced[OverviewPage]:
    """The page."""
    tallies = []
    for each in _TALLIES:
        tallies.append(each(sources, visible, now))
        yield
    # Second on the page, and the one that takes long.
    tallies.insert(1, (yield from gates.tally(sources, visible, now)))
    every = [*tallies, (yield from attention.tally(sources, visible, now))]
    notices = [notice for tally in every for notice in tally.notices]
    notices.sort(key=lambda each: _RANK.get(each.tone, len(_RANK)))
    further = tuple(
        Further(each.title, each.link, each.urgent - MOST_NOTICES)
        for each in every
        if each.urgent > MOST_NOTICES
    )
    return OverviewPage(tuple(tallies), tuple(notices), further)
