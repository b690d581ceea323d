"""``harbourmaster doctor --break-glass``: all webhooks fail open, until it is ended.

It uses the caller's permissions, and needs nothing of ours to run in the cluster.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.resources import EVENTS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    UNUSABLE,
    complain,
    event_of,
    run_with_client,
    say,
)
from harbourmaster.cli.live.reader import caller_name
from harbourmaster.kube.errors import ApiError, ConflictError, ForbiddenError, NotFoundError
from harbourmaster.registration.break_glass import (
    BreakGlass,
    break_glass_of,
    is_open,
    with_break_glass,
    without_break_glass,
)
from harbourmaster.registration.desired import NAME

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

TRIES: Final = 5
"""Times that a configuration is read again after a conflict."""
_PLACE: Final = "default"
"""The namespace for events about cluster-scoped objects."""
_MEANWHILE: Final = (
    "until --break-glass off, objects are admitted when no webhook answers: pods of namespaces "
    "with gates start without their checks, and policies and definitions are not checked; "
    "conversion of older versions still needs a webhook"
)


def run(arguments: Arguments) -> int:
    """Start or end it; 0 done, 1 not for every configuration, 2 no cluster."""
    if arguments.break_glass == "on" and not arguments.reason:
        complain('--break-glass on needs --reason "TEXT": it is stored in the configurations')
        return UNUSABLE
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    is_on = arguments.break_glass == "on"
    who, now = await caller_name(client), datetime.now(UTC)
    glass = BreakGlass(by=who, at=now.isoformat(timespec="seconds"), reason=arguments.reason or "")
    codes = []
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        try:
            codes.append(await _change(client, resource, glass, is_on=is_on))
        except NotFoundError:
            complain(f"{resource.kind} {NAME} not found: it calls no webhook of ours")
            codes.append(LEFT)
        except ApiError as error:
            is_forbidden = isinstance(error, ForbiddenError)
            why = f"missing permission: {error.message}" if is_forbidden else str(error)
            complain(f"{resource.kind}: not changed: {why}")
            codes.append(LEFT)
    if is_on and DONE in codes:
        say(_MEANWHILE)
    return LEFT if LEFT in codes else DONE


async def _change(client: Client, resource: Resource, glass: BreakGlass, *, is_on: bool) -> int:
    """Write one configuration, unless it is as it should be. Raises ApiError."""
    for attempt in range(TRIES):
        stored = msgspec.json.decode(await client.get(resource, NAME))
        standing_now = break_glass_of(stored)
        entries = stored.get("webhooks") or ()
        if is_on and standing_now is not None and all(map(is_open, entries)):
            say(f"{resource.kind}: break-glass mode is on already, {standing_now}")
            return DONE
        if not is_on and standing_now is None:
            say(f"{resource.kind}: break-glass mode is off")
            return DONE
        changed = (
            with_break_glass(stored, glass)
            if is_on
            else without_break_glass(stored, standing_now or glass)
        )
        try:
            await client.replace(resource, NAME, changed)
        except ConflictError:
            if attempt == TRIES - 1:
                raise
            continue
        entries = changed.get("webhooks") or ()
        policies = ", ".join(f"{entry['name']} {entry.get('failurePolicy')}" for entry in entries)
        done = "fails open" if is_on else "restored"
        say(f"{resource.kind}: {done}: {policies}")
        noted = standing_now or glass
        names = [str(entry["name"]) for entry in entries]
        unknown = [name for name in names if not noted.has_noted(name)]
        if unknown and not is_on:
            say(
                f"{resource.kind}: the earlier failurePolicy of {', '.join(unknown)} is unknown: "
                "compare it with your settings or manifests"
            )
        try:
            await client.create(EVENTS, event(resource, stored, glass, is_on=is_on), _PLACE)
        except ApiError as error:
            complain(f"{resource.kind}: done, but the event could not be written: {error.message}")
        return DONE
    raise AssertionError


def event(
    resource: Resource, stored: dict[str, Any], glass: BreakGlass, *, is_on: bool
) -> dict[str, Any]:
    """The event that says who did it, and why."""
    did = "started break-glass mode, all webhooks fail open" if is_on else "ended break-glass mode"
    why = f": {glass.reason}" if glass.reason else ""
    uid = (stored.get("metadata") or {}).get("uid", "")
    return event_of(
        {**resource.type_fields, "name": NAME, "uid": uid},
        _PLACE,
        f"{glass.by} {did}{why}",
        type="Warning" if is_on else "Normal",
        reason="BreakGlassStarted" if is_on else "BreakGlassEnded",
        action="BreakGlass",
    )
