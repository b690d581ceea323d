"""Who may read which value."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from harbourmaster.controller.exposure.discovery import GROUP, RESOURCE
from harbourmaster.kube.access import HELD, LIMIT, PATIENCE, Attributes, Decisions, User

if TYPE_CHECKING:
    from collections.abc import Callable

    from harbourmaster.kube.client import Client

__all__ = ["HELD", "LIMIT", "PATIENCE", "Access", "Wish"]


class Wish(Struct, frozen=True):
    """Who wants to read what; ``name`` and ``metric`` may be ``*``."""

    user: User
    version: str
    namespace: str
    name: str
    metric: str


class Access:
    """Asks for each wish once at a time; ``clock`` gives seconds that only go forward."""

    def __init__(
        self, client: Client, clock: Callable[[], float], *, patience: float = PATIENCE
    ) -> None:
        self._decisions = Decisions(client, clock, patience=patience)

    async def is_allowed(self, wish: Wish) -> bool:
        """What the API server decides. Raises ApiError, and TimeoutError."""
        attributes = Attributes(
            verb="get",
            group=GROUP,
            version=wish.version,
            resource=RESOURCE,
            namespace=wish.namespace,
            subresource=wish.metric,
            name=wish.name,
        )
        return await self._decisions.is_allowed(wish.user, attributes)
