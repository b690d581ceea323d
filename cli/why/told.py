"""What our controller has told of an object by events, as far as the caller may read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import Resource
from harbourmaster.cli.cluster import collect
from harbourmaster.kube.errors import ApiError

if TYPE_CHECKING:
    from harbourmaster.kube.client import Client

_EVENTS: Final = Resource("", "v1", "events", "Event")
"""In their old group: there one may ask for those of a uid."""
_OURS: Final = "harbourmaster.dev/"
MOST: Final = 3
"""Events that are shown."""


class _Series(Struct, frozen=True, rename="camel"):
    count: int = 1
    last_observed_time: str | None = None


class _Event(Struct, frozen=True, rename="camel"):
    reason: str = ""
    message: str = ""
    type: str = ""
    reporting_component: str = ""
    event_time: str | None = None
    last_timestamp: str | None = None
    series: _Series | None = None


class Told(Struct, frozen=True, rename="camel"):
    """One event; ``time`` is that of the last of its kind."""

    time: str
    reason: str
    message: str
    is_warning: bool = False


_decode: Final = msgspec.json.Decoder(_Event).decode


async def told_of(client: Client, namespace: str, uid: str, *, of: str = "") -> tuple[Told, ...]:
    """The newest events of ours about the object, the newest first; none where nobody may ask.

    ``of`` is the part of the controller that told them: ``lifecycle``, ``rescheduler``.
    """
    if not uid:
        return ()
    selector = f"involvedObject.uid={uid}"
    try:
        events = await collect(
            client, _EVENTS, _decode, namespace=namespace, field_selector=selector
        )
    except ApiError:
        # They say more, and nothing depends on them.
        return ()
    found = [
        Told(_time(each), each.reason, _text(each.message), each.type == "Warning")
        for each in events
        if each.reporting_component.startswith(f"{_OURS}{of}")
    ]
    return tuple(sorted(found, key=lambda each: each.time, reverse=True)[:MOST])


def _text(message: str) -> str:
    """Without what names the object once more."""
    return message.partition(" / Namespace: ")[0]


def _time(event: _Event) -> str:
    series = event.series.last_observed_time if event.series is not None else None
    return series or event.event_time or event.last_timestamp or ""
