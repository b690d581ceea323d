"""Parts of all commands for a live cluster: the connection, whole lists, waiting, and messages.

They work with the rights of the caller, and need nothing of ours to run in the cluster.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from harbourmaster.api.resources import EVENTS
from harbourmaster.cli import program
from harbourmaster.cli.live.kinds import decode_anything
from harbourmaster.kube.client import Client
from harbourmaster.kube.connection import FALLBACK_NAMESPACE
from harbourmaster.kube.connection_sources import connect
from harbourmaster.kube.errors import (
    ApiError,
    ConnectionSettingsError,
    GoneError,
    TooLargeError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.kube.lease import micro_time
from harbourmaster.kube.reading import readable
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Awaitable, Callable

    import msgspec

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.connection import Connection
    from harbourmaster.kube.reading import Metadata as Named

DONE: Final = 0
LEFT: Final = 1
UNUSABLE: Final = 2
"""Exit codes: nothing is left; something is; there was no cluster to work on."""
REQUEST_SECONDS: Final = 20.0
_RESTARTS: Final = 3
_PAGE, _SMALL_PAGE = 5000, 32
"""Objects of a page: few requests in a large cluster, and pages fit that are of the usual size."""
SKIPPED: Final = " is skipped, because it cannot be read: "
"""Follows the name of an object in the line that says why it was left out of a list."""

Decoded = TypeVar("Decoded")


def run_with_client(arguments: Arguments, work: Callable[[Client], Awaitable[int]]) -> int:
    """Connect as ``arguments`` say and run ``work``; returns its exit code.

    Where the connection cannot be had, that is one line on standard error, and UNUSABLE.
    """
    try:
        connection = connect(arguments.kubeconfig, context=arguments.context)
        return asyncio.run(_run(connection, work))
    except (ConnectionSettingsError, UnreachableError, UnauthorizedError) as error:
        complain(str(error))
        return UNUSABLE


def context_namespace(arguments: Arguments) -> str:
    """The namespace of the connection; that it cannot be had is said when it is used."""
    try:
        return connect(arguments.kubeconfig, context=arguments.context).namespace
    except ConnectionSettingsError:
        return FALLBACK_NAMESPACE


def namespace_of(arguments: Arguments, client: Client) -> str:
    """Return the namespace that is asked about, "" for all; by default the connection's own."""
    given: str | None = arguments.namespace
    return client.connection.namespace if given is None else given


async def _run(connection: Connection, work: Callable[[Client], Awaitable[int]]) -> int:
    async with Client(
        connection, user_agent="harbourmaster-cli", timeout=REQUEST_SECONDS
    ) as client:
        await greet(client)
        return await work(client)


async def greet(client: Client) -> None:
    """Find out whether the API server answers us. Raises UnreachableError, UnauthorizedError."""
    try:
        client.greeting = await client.request("GET", "/version")
    except (UnreachableError, UnauthorizedError):
        raise
    except ApiError:
        # Not everybody may ask for the version; an answer it is.
        return


def say(line: str) -> None:
    """Print a line; names of strangers do not reach the terminal as they are."""
    print(clean(line), flush=True)


def complain(line: str) -> None:
    """Print a line on standard error."""
    print(f"{program.name.get()}: {clean(line)}", file=sys.stderr, flush=True)


def event_of(regarding: dict[str, Any], namespace: str, note: str, **fields: str) -> dict[str, Any]:
    """The event about what the caller did to an object; ``fields`` are its type and so on."""
    return {
        **EVENTS.type_fields,
        "metadata": {"generateName": f"{regarding['name'][:200]}-", "namespace": namespace},
        "eventTime": micro_time(datetime.now(UTC)),
        "reportingController": "harbourmaster.dev/cli",
        "reportingInstance": socket.gethostname()[:128] or "unknown",
        "regarding": regarding,
        "note": note[:1000],
        **fields,
    }


async def collect(  # noqa: PLR0913 - what a list takes
    client: Client,
    resource: Resource,
    pick: Callable[[msgspec.Raw], Decoded | None],
    *,
    namespace: str | None = None,
    label_selector: str = "",
    field_selector: str = "",
    metadata_only: bool = False,
    unread: Callable[[str], object] = complain,
) -> list[Decoded]:
    """Return the results of ``pick`` for all objects, page by page, without None.

    Only what was picked is kept, however many objects there are. An object that cannot be read is
    skipped, and ``unread`` gets a line that names it. Raises an ApiError.
    """
    skipped: list[str] = []

    def skip(named: Named, error: Exception) -> None:
        skipped.append(f"{resource.kind} {named.key}{SKIPPED}{error}: correct or delete it")

    limit = _PAGE
    for attempt in range(_RESTARTS + 1):
        objects: list[Decoded] = []
        skipped.clear()
        token = ""
        try:
            while True:
                page = await client.list(
                    resource,
                    namespace,
                    limit=limit,
                    continue_token=token,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    metadata_only=metadata_only,
                )
                picked = readable(page.items, pick, skip)
                objects += [obj for obj in picked if obj is not None]
                token = page.continue_token
                if not token:
                    for line in skipped:
                        unread(line)
                    return objects
        except TooLargeError:
            # So many objects of the largest size that etcd takes fit.
            if limit == _SMALL_PAGE:
                raise
            limit = max(limit // 8, _SMALL_PAGE)
        except GoneError:
            # The pages had become too old; after a few times the list is too long for the server.
            if attempt == _RESTARTS:
                raise
    raise AssertionError


async def count(client: Client, resource: Resource, namespace: str | None = None) -> int:
    """Count the objects of a kind by one request. Raises an ApiError."""
    answer = await client.request("GET", resource.path(namespace), query={"limit": "1"})
    page = decode_anything(answer)
    return len(page.get("items") or ()) + (page["metadata"].get("remainingItemCount") or 0)
