"""Looks at a cluster again after each change of what is watched."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from harbourmaster.api.resources import APP_VERSIONS, CORE_EVENTS, TASKS, WORKLOAD_VERSIONS
from harbourmaster.cli.live.cluster import complain
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.errors import ApiError, ForbiddenError, UnauthorizedError
from harbourmaster.kube.reflector import Reflector
from harbourmaster.telemetry.logging import configure_logging

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

T = TypeVar("T")
_SPACING: Final = 0.2
"""Seconds between two looks, at least."""
_SHARE: Final = 4
"""The pause after a look is so many times as long as it took, so that it loads no API server."""
_RETRIES: Final = Backoff(first=1.0, limit=30.0)


class Watched(NamedTuple):
    """Objects whose changes are awaited."""

    resource: Resource
    label_selector: str = ""
    field_selector: str = ""


GATE_CHANGES: Final = (
    *map(Watched, (WORKLOAD_VERSIONS, APP_VERSIONS, TASKS)),
    # By these events the controller says for which objects a pod still waits.
    Watched(CORE_EVENTS, field_selector="reportingComponent=harbourmaster.dev/lifecycle"),
)
"""Objects that change with the reasons for which pods wait, besides the pods."""


async def look_until_done(
    client: Client,
    watched: Iterable[Watched],
    namespace: str | None,
    look: Callable[[], Awaitable[T | None]],
) -> T:
    """Call ``look`` now and after changes, until it returns a result, which is returned.

    Changes during a look lead to one more. A look that fails is repeated. Raises the ApiError by
    which the first look is forbidden, or the user is not known.
    """
    changed = asyncio.Event()
    # What a look cannot read, it says itself; a watch goes on by itself.
    configure_logging("error")
    watches = [
        asyncio.create_task(
            Reflector(
                client,
                resource,
                lambda raw: metadata_in(raw).resource_version,
                namespace=namespace,
                label_selector=labels,
                field_selector=fields,
                on_change=lambda _keys: changed.set(),
                on_state=changed.set,
                metadata_only=True,
            ).run()
        )
        for resource, labels, fields in watched
    ]
    try:
        return await _repeat(look, changed)
    finally:
        for watch in watches:
            watch.cancel()
        await asyncio.gather(*watches, return_exceptions=True)


async def remaining(
    client: Client, watched: Watched, patience: float, namespace: str | None = None
) -> tuple[str, ...]:
    """Wait until there is no such object; the names of those still there after ``patience`` s.

    The first list has the time of any request, for before it nothing is known.
    """
    names: set[str] = set()

    async def look() -> tuple[str, ...] | None:
        resource, labels, fields = watched
        page = await client.list(
            resource, namespace, metadata_only=True, label_selector=labels, field_selector=fields
        )
        names.clear()
        names.update(metadata_in(raw).name for raw in page.items)
        return None if names else ()

    await look()
    try:
        async with asyncio.timeout(patience):
            return () if not names else await look_until_done(client, [watched], namespace, look)
    except TimeoutError:
        return tuple(sorted(names))


async def _repeat(look: Callable[[], Awaitable[T | None]], changed: asyncio.Event) -> T:
    loop, failures, has_looked = asyncio.get_running_loop(), 0, False
    while True:
        changed.clear()
        begun, patience = loop.time(), None
        try:
            result = await look()
            failures, has_looked = 0, True
        except ApiError as error:
            # An API server that starts forbids for a moment what it allows.
            final = UnauthorizedError if has_looked else (UnauthorizedError, ForbiddenError)
            if isinstance(error, final):
                raise
            if not failures:
                complain(f"{error}; trying again")
            patience = _RETRIES.delay(failures, random.random())  # noqa: S311 - only a pause
            failures += 1
        else:
            if result is not None:
                return result
        await asyncio.sleep(max(_SPACING, _SHARE * (loop.time() - begun)))
        with suppress(TimeoutError):
            async with asyncio.timeout(patience):
                await changed.wait()
