"""The object that is asked about, its owners, its events, and what is seen of it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import CORE_EVENTS
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.cli.batches import short_age
from harbourmaster.cli.live.kinds import decode_anything, decode_workload, metadata_in
from harbourmaster.cli.live.reader import is_kind_missing, read_error
from harbourmaster.cli.why.commands import RESOURCES
from harbourmaster.cli.why.model import Line, Subject
from harbourmaster.kube.errors import ApiError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.reader import ClusterReader


BY_KIND: Final = {resource.kind: resource for resource in RESOURCES}
_MOST_OWNERS: Final = 4


async def fetch_subject(
    live: ClusterReader, resource: Resource, namespace: str, name: str
) -> Subject:
    """The object. Raises an ApiError."""
    raw = await live.get(resource, name, namespace or None)
    return Subject(resource.api_version, resource.kind, namespace, name, raw)


async def owners_of(live: ClusterReader, subject: Subject) -> tuple[tuple[Subject, ...], str]:
    """The controllers above it, the nearest first, as far as kinds are known; and who is missing.

    Raises UnreachableError and UnauthorizedError.
    """
    owners: list[Subject] = []
    current = subject
    while len(owners) < _MOST_OWNERS:
        owner = metadata_in(current.raw).controller
        resource = BY_KIND.get(owner.kind) if owner else None
        if owner is None or resource is None or owner.api_version != resource.api_version:
            break
        shown = f"its owner, {owner.kind} {owner.name}"
        try:
            current = await fetch_subject(live, resource, subject.namespace, owner.name)
        except NotFoundError as error:
            gone = "is of a kind that the cluster no longer knows"
            return tuple(owners), f"{shown}, {gone if is_kind_missing(error) else 'is gone'}"
        except ApiError as error:
            return tuple(owners), read_error(error, shown)
        uid = metadata_in(current.raw).uid
        if uid and owner.uid and uid != owner.uid:
            return tuple(owners), f"{shown}, is gone: another one has its name"
        owners.append(current)
    return tuple(owners), ""


def summarize(subject: Subject, owners: tuple[Subject, ...], now: datetime) -> str:
    """Return a line with the phase, the age, the node and the owner of an object."""
    workload = decode_workload(subject.raw)
    parts: list[str] = []
    if workload.status.phase:
        parts.append(workload.status.phase)
        if workload.gates:
            parts[-1] += " behind a scheduling gate"
    if workload.metadata.creation_timestamp:
        age = max(
            int((now - parse_rfc3339(workload.metadata.creation_timestamp)).total_seconds()), 0
        )
        parts.append(f"{short_age(age)} old")
    if workload.spec.node_name:
        parts.append(f"on node {workload.spec.node_name}")
    if owners:
        parts.append(f"of {owners[-1].kind} {owners[-1].name}")
    if workload.status.replicas is not None:
        parts.append(f"{workload.status.ready_replicas} of {workload.status.replicas} pods ready")
    if workload.metadata.deletion_timestamp:
        parts.append("being deleted")
    return ", ".join(parts)


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
