"""Who may read which value: the API server is asked, and its word is kept for a moment."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from controller.exposure.discovery import GROUP, RESOURCE
from controller.exposure.front_proxy import User
from kube.resources import ACCESS_REVIEWS

if TYPE_CHECKING:
    from collections.abc import Callable

    from kube.client import Client

HELD: Final = 10.0
"""Seconds for which a decision holds, as in the API server's own libraries."""
LIMIT: Final = 4096
"""Decisions that are kept."""
PATIENCE: Final = 5.0
"""Seconds that a decision may take."""


class Wish(Struct, frozen=True):
    """Who wants to read what; ``name`` and ``metric`` may be ``*``."""

    user: User
    version: str
    namespace: str
    name: str
    metric: str


class _Decision(Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _Review(Struct, frozen=True):
    status: _Decision = _Decision()


_decode: Final = msgspec.json.Decoder(_Review).decode


class Access:
    """Asks for each wish once at a time; ``clock`` gives seconds that only go forward."""

    def __init__(
        self, client: Client, clock: Callable[[], float], *, patience: float = PATIENCE
    ) -> None:
        self._client = client
        self._clock = clock
        self._patience = patience
        self._known: dict[Wish, tuple[bool, float]] = {}
        self._asked: dict[Wish, asyncio.Task[bool]] = {}

    async def is_allowed(self, wish: Wish) -> bool:
        """What the API server decides. Raises ApiError, and TimeoutError."""
        known = self._known.get(wish)
        if known is not None and self._clock() < known[1]:
            return known[0]
        task = self._asked.get(wish)
        if task is None:
            task = asyncio.create_task(self._ask(wish))
            self._asked[wish] = task
            task.add_done_callback(lambda _: self._asked.pop(wish, None))
        # A client that goes away must not take the answer from the others.
        return await asyncio.shield(task)

    async def _ask(self, wish: Wish) -> bool:
        async with asyncio.timeout(self._patience):
            answer = await self._client.create(ACCESS_REVIEWS, _review(wish))
        status = _decode(answer).status
        is_allowed = status.allowed and not status.denied
        self._known.pop(wish, None)
        while len(self._known) >= LIMIT:
            # The oldest comes first.
            del self._known[next(iter(self._known))]
        self._known[wish] = (is_allowed, self._clock() + HELD)
        return is_allowed


def _review(wish: Wish) -> dict[str, Any]:
    user = wish.user
    spec: dict[str, Any] = {
        "user": user.name,
        "groups": list(user.groups),
        "resourceAttributes": {
            "namespace": wish.namespace,
            "verb": "get",
            "group": GROUP,
            "version": wish.version,
            "resource": RESOURCE,
            "subresource": wish.metric,
            "name": wish.name,
        },
    }
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}
    return {
        "apiVersion": ACCESS_REVIEWS.api_version,
        "kind": ACCESS_REVIEWS.kind,
        "spec": spec,
    }
