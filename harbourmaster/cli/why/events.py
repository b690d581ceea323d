"""The events that our controller has written about an object, as far as the caller may read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import CORE_EVENTS
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.cli.why.model import Line
from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.live.reader import ClusterReader

_OURS: Final = "harbourmaster.dev/"
MOST: Final = 3
"""Events that are shown."""


class Event(Struct, frozen=True, rename="camel"):
    """One event; ``time`` is that of the last of its kind."""

    time: str
    reason: str
    message: str
    is_warning: bool = False


async def events_of(live: ClusterReader, namespace: str, uid: str, *, of: str) -> tuple[Event, ...]:
    """Return our newest events about the object, the newest first; none without permission.

    ``of`` is the part of the controller that wrote them: ``lifecycle``, ``rescheduler``.
    """
    if not uid:
        return ()
    selector = f"involvedObject.uid={uid}"
    try:
        stored = await live.list_all(
            CORE_EVENTS, decode_anything, namespace, field_selector=selector
        )
    except ApiError:
        # They say more, and nothing depends on them.
        return ()
    events = []
    for event in stored:
        if str(event.get("reportingComponent")).startswith(f"{_OURS}{of}"):
            last = (event.get("series") or {}).get("lastObservedTime")
            times = (last, event.get("eventTime"), event.get("lastTimestamp"))
            # The end of the message repeats the name of the object.
            text = (event.get("message") or "").partition(" / Namespace: ")[0]
            is_warning = event.get("type") == "Warning"
            time = next(filter(None, times), "")
            events.append(Event(time, event.get("reason") or "", text, is_warning))
    return tuple(sorted(events, key=lambda event: event.time, reverse=True)[:MOST])


def event_lines(events: Sequence[Event]) -> Iterator[Line]:
    """One line for each."""
    for event in events:
        text = f"{event.time} {event.reason}: {event.message}"
        yield Line(text, label="event", tone="bad" if event.is_warning else "dim")
