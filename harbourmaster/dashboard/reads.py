"""Reads from the API server what a page shows and no cache has, on request and within bounds."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from harbourmaster.api.resources import PODS
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.sources import PageSources
from harbourmaster.dashboard.visibility import Visibility
from harbourmaster.kube.client import Client

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
