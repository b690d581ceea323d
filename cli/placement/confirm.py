"""``harbourmaster placement confirm``: lets applications be placed that wait for a person."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli.arguments import subject_of
from harbourmaster.cli.live.cluster import DONE, LEFT, collect, complain, run_with_client, say
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.placement.confirmation import CONFIRMED
from harbourmaster.placement.model import NOT_CONFIRMED, SCHEDULED, PlacedStatus, condition

if TYPE_CHECKING:
    from argparse import Namespace as Arguments

    from harbourmaster.kube.client import Client


class _Application(Struct, frozen=True):
    metadata: Metadata
    status: PlacedStatus = PlacedStatus()


_decode: Final = msgspec.json.Decoder(_Application).decode


def confirm(arguments: Arguments) -> int:
    """Confirm, or list what waits; 0 nothing waits, 1 something does, 2 no cluster."""
    return run_with_client(arguments, partial(_confirm, arguments))


async def _confirm(arguments: Arguments, client: Client) -> int:
    default = client.connection.namespace
    try:
        if arguments.applications:
            found = [subject_of(arguments, each, default) for each in arguments.applications]
            return max([await _confirmed(client, *each) for each in found])
        waiting = await _waiting(arguments, client)
        if arguments.all:
            places = [key.partition("/") for key in waiting]
            return max([await _confirmed(client, each[0], each[2]) for each in places], default=0)
    except ApiError as error:
        complain(str(error))
        return LEFT
    for key, text in waiting.items():
        say(f"{key}: {text}")
    return LEFT if waiting else DONE


async def _waiting(arguments: Arguments, client: Client) -> dict[str, str]:
    """The message of each that waits, by its key. Raises ApiError."""
    given = arguments.namespace
    found = await collect(
        client,
        APPLICATIONS,
        _decode,
        namespace=(client.connection.namespace if given is None else given) or None,
        label_selector=arguments.selector or "",
    )
    states = {each.metadata.key: condition(each.status.conditions, SCHEDULED) for each in found}
    return {
        key: each.message for key, each in states.items() if each and each.reason == NOT_CONFIRMED
    }


async def _confirmed(client: Client, namespace: str, name: str) -> int:
    """Confirm one. Raises ApiError."""
    patch = MergePatch({"metadata": {"annotations": {CONFIRMED: "true"}}})
    try:
        await client.patch(APPLICATIONS, name, patch, namespace)
    except NotFoundError as error:
        complain(await ClusterReader(client).not_found(error, APPLICATIONS, name, namespace))
        return LEFT
    say(f"{namespace}/{name} confirmed")
    return DONE
