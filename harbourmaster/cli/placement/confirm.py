"""``harbourmaster placement confirm``: lets applications be placed that wait for a person."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli.arguments import subject_of
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    collect,
    complain,
    namespace_of,
    run_with_client,
    say,
)
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.placement.confirmation import CONFIRMED
from harbourmaster.placement.model import NOT_CONFIRMED, SCHEDULED, Application, condition
from harbourmaster.placement.snapshot import key_of

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.kube.client import Client

_decode: Final = msgspec.json.Decoder(Application).decode


def confirm(arguments: Arguments) -> int:
    """Confirm, or list what waits; 0 nothing waits, 1 something does, 2 no cluster."""
    return run_with_client(arguments, partial(_confirm, arguments))


async def _confirm(arguments: Arguments, client: Client) -> int:
    default = client.connection.namespace
    places = [subject_of(arguments, application, default) for application in arguments.applications]
    waiting: dict[tuple[str, str], str] = {}
    namespace = name = ""
    try:
        if not places:
            waiting = await _waiting(arguments, client)
        for namespace, name in places or (waiting if arguments.all else ()):
            patch = MergePatch({"metadata": {"annotations": {CONFIRMED: "true"}}})
            await client.patch(APPLICATIONS, name, patch, namespace)
            say(f"{namespace}/{name} confirmed")
    except NotFoundError as error:
        complain(await ClusterReader(client).not_found(error, APPLICATIONS, name, namespace))
        return LEFT
    except ApiError as error:
        complain(str(error))
        return LEFT
    if arguments.all or not waiting:
        return DONE
    for (namespace, name), text in waiting.items():
        say(f"{namespace}/{name}: {text}")
    return LEFT


async def _waiting(arguments: Arguments, client: Client) -> dict[tuple[str, str], str]:
    """The message of each that waits, by namespace and name. Raises ApiError."""
    applications = await collect(
        client,
        APPLICATIONS,
        _decode,
        namespace=namespace_of(arguments, client) or None,
        label_selector=arguments.selector or "",
    )
    states = {
        key_of(application.metadata): condition(application.status.conditions, SCHEDULED)
        for application in applications
    }
    return {
        key: state.message
        for key, state in states.items()
        if state and state.reason == NOT_CONFIRMED
    }
