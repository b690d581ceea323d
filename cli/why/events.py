"""The events that our controller has written about an object, as far as the caller may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import CORE_EVENTS
from harbourmaster.cli.why.model import Line
from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.live.reader import ClusterReader

_OURS: Final = "harbourmaster.dev/"
MOST: Final = 3
"""Events that are shown."""


class _Series(Struct, frozen=True, rename="camel"):
    last_observed_time: str | None = None


class _StoredEvent(Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    type: str = ""
    reporting_component: str = ""
    event_time: str | None = None
    last_timestamp: str | None = None
    series: _Series | None = None

    @property
    def time(self) -> str:
        series = self.series.last_observed_time if self.series is not None else None
        return series or self.event_time or self.last_timestamp or ""


class Event(Struct, frozen=True, rename="camel"):
    """One event; ``time`` is that of the last of its kind."""

    time: str
    reason: str
    message: str
    is_warning: bool = False


_decode: Final = msgspec.json.Decoder(_StoredEvent).decode


async def events_of(live: ClusterReader, namespace: str, uid: str, *, of: str) -> tuple[Event, ...]:
    """The newest events of ours about the object, the newest first; none where nobody may ask.

    ``of`` is the part of the controller that wrote them: ``lifecycle``, ``rescheduler``.
    """
    if not uid:
        return ()
    selector = f"involvedObject.uid={uid}"
    try:
        found = await live.listed(CORE_EVENTS, _decode, namespace, field_selector=selector)
    except ApiError:
        # They say more, and nothing depends on them.
        return ()
    events = [
        # Without what names the object once more.
        Event(
            each.time,
            each.reason,
            each.message.partition(" / Namespace: ")[0],
            each.type == "Warning",
        )
        for each in found
        if each.reporting_component.startswith(f"{_OURS}{of}")
    ]
    return tuple(sorted(events, key=lambda each: each.time, reverse=True)[:MOST])


def event_lines(events: Sequence[Event]) -> Iterator[Line]:
    """One line for each."""
    for each in events:
        text = f"{each.time} {each.reason}: {each.message}"
        yield Line(text, label="event", tone="bad" if each.is_warning else "dim")
