"""Builds the page of nodes that are reserved for critical add-ons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import NODES
from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages.states import Notice, StateCount, Topic
from harbourmaster.dashboard.query import Listing, select_page
from harbourmaster.dashboard.sources import values
from harbourmaster.rescheduling.reservation import is_ours, parse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from harbourmaster.dashboard.pages.states import Tally
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.rescheduling.model import Node

PATH: Final = "/reservations"
_TOPIC: Final = Topic("Reservations", PATH, ("reservation", "reservations"), ((NODES,),))
OVERDUE: Final = "overdue"


class ReservationRow(Struct, frozen=True, gc=False):
    """A node that is reserved for a pod; a taint of ours without a reservation has no pod."""

    node: str
    taints: tuple[str, ...]
    is_ready: bool
    namespace: str = ""
    pod: str = ""
    since: str = ""
    deadline: str = ""
    is_overdue: bool = False
    attempt: int = 0
    tier: int = 0
    victims: tuple[str, ...] = ()


class ReservationsPage(Struct, frozen=True):
    """The page of reservations."""

    listing: Listing[ReservationRow]
    parts: tuple[StateCount, ...]


def reservations(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> ReservationsPage:
    """Build the page of reservations, the earliest deadline first."""
    rows = _rows(sources, visible, now)
    listing = select_page(
        rows,
        query,
        namespace=lambda row: row.namespace,
        texts=lambda row: (row.node, row.pod, row.namespace),
        key=lambda row: (row.deadline, row.node, row.pod),
        row=lambda row: row,
        holds=lambda row: not query.state or row.is_overdue,
    )
    return ReservationsPage(listing, tuple(_parts(rows)))


def tally(sources: PageSources, visible: Visibility, now: datetime) -> Tally:
    """Count reservations for the overview."""
    rows = _rows(sources, visible, now)
    overdue = [row for row in rows if row.is_overdue]
    return _TOPIC.tally(sources, visible, rows, _parts(rows), overdue, _notice)


def _notice(row: ReservationRow) -> Notice:
    text = f"is kept for {row.namespace}/{row.pod} beyond its deadline"
    return Notice("warn", "Reservation", row.node, text, PATH)


def _rows(sources: PageSources, visible: Visibility, now: datetime) -> list[ReservationRow]:
    if not visible.sees(NODES):
        return []
    return [row for node in values(sources.nodes) for row in _rows_of_node(node, now)]


def _rows_of_node(node: Node, now: datetime) -> Iterator[ReservationRow]:
    taints = tuple(str(taint) for taint in node.taints if is_ours(taint.value))
    reservations = parse(node.reservations) if node.reservations else ()
    if not reservations and taints:
        yield ReservationRow(node.name, taints, node.is_ready)
    for reservation in reservations:
        namespace, _, name = reservation.pod.partition("/")
        end = moment(reservation.deadline)
        yield ReservationRow(
            node=node.name,
            taints=taints,
            is_ready=node.is_ready,
            namespace=namespace,
            pod=name,
            since=reservation.since,
            deadline=reservation.deadline,
            is_overdue=end is not None and end < now,
            attempt=reservation.attempt,
            tier=reservation.tier,
            victims=tuple(victim.key for victim in reservation.victims),
        )


def _parts(rows: Sequence[ReservationRow]) -> Iterator[StateCount]:
    overdue = sum(row.is_overdue for row in rows)
    if overdue:
        yield StateCount("beyond the deadline", overdue, "warn", OVERDUE)
    victims = sum(len(row.victims) for row in rows)
    if victims:
        what = "pod that has to go" if victims == 1 else "pods that have to go"
        yield StateCount(what, victims, "busy")
