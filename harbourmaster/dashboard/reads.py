"""Reads from the API server what a page shows and no cache has, on request and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from harbourmaster.api.resources import PODS
from harbourmaster.dashboard.caches import UNFINISHED
from harbourmaster.dashboard.pages.cluster_map import PodCells, PodsRead, namespace_of
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.sources import PageSources
from harbourmaster.dashboard.visibility import Visibility
from harbourmaster.kube.client import Client
from harbourmaster.kube.errors import ApiError
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from msgspec import Raw

Reads: TypeAlias = Callable[[Client, PageSources, Visibility, PageQuery], Awaitable[Any]]
"""Returns ``PageSources.read`` of one page. Raises ApiError and TimeoutError."""


async def read_pod(
    client: Client, sources: PageSources, visible: Visibility, query: PageQuery
) -> Raw | None:
    """Return the pod of the query in JSON; None if it does not exist."""
    key = f"{query.namespace}/{query.name}"
    is_known = sources.labels is not None and key in sources.labels.store
    if not is_known or not visible.sees(PODS, query.namespace):
        return None
    # The controller has the permission to list pods, not to get one.
    selector = f"metadata.name={query.name}"
    listed = await client.list(PODS, query.namespace, field_selector=selector)
    return next(iter(listed.items), None)


PATIENCE: Final = 5.0
"""Seconds for all that a page reads."""
MOST_PODS: Final = 5000
"""Maximum pods of the map."""


async def read_pods(
    client: Client, sources: PageSources, visible: Visibility, query: PageQuery
) -> PodsRead | None:
    """Return the cells of the pods in the namespace of the map; None if no pods are shown."""
    namespace = namespace_of(sources, visible, query)
    if not namespace or not visible.sees(PODS, namespace):
        return None
    rows: list[dict[str, Any]] = []
    fault = ""
    token: str | None = None
    try:
        async with asyncio.timeout(PATIENCE):
            while token != "" and len(rows) < MOST_PODS:
                page = await client.table(
                    PODS, namespace, continue_token=token or "", field_selector=UNFINISHED
                )
                rows += (dict(zip(page.columns, row, strict=False)) for row in page.rows)
                token = page.continue_token
        fault = f"Only the first {len(rows)} pods are shown." if token else ""
    except (ApiError, TimeoutError) as error:
        fault = f"Not all pods could be read: {reason(error)}"
    return PodsRead(namespace, tuple(map(_cells, rows)), fault)


def _cells(row: dict[str, Any]) -> PodCells:
    name, ready, status, restarts, node = (
        str(row.get(column) or "") for column in ("Name", "Ready", "Status", "Restarts", "Node")
    )
    return PodCells(name, ready, status, restarts, node.removeprefix("<none>"))
