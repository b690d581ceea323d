"""Access checks by the API server, whose decisions are cached for a short time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import ACCESS_REVIEWS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from harbourmaster.kube.client import Client

K = TypeVar("K")
V = TypeVar("V")

VALIDITY: Final = 10.0
"""Seconds for which a decision is valid, as in the API server's own libraries."""
LIMIT: Final = 4096
"""Decisions that are cached."""
PATIENCE: Final = 5.0
"""Seconds that a decision may take."""
_UNKNOWN: Final = "system:unauthenticated"
"""The group of unauthenticated users."""


class User(Struct, frozen=True):
    """A user, as the API server has authenticated it."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def is_known(self) -> bool:
        """Whether the user is authenticated."""
        return _UNKNOWN not in self.groups


class Attributes(Struct, frozen=True, omit_defaults=True):
    """A verb on a resource; an empty namespace or name stands for all."""

    verb: str
    group: str
    version: str
    resource: str
    namespace: str = ""
    subresource: str = ""
    name: str = ""


class Memo(Generic[K, V]):
    """Cached answers; concurrent callers share one request.

    ``clock`` is monotonic, in seconds.
    """

    def __init__(
        self, clock: Callable[[], float], *, patience: float = PATIENCE, limit: int | None = None
    ) -> None:
        self._clock = clock
        self._patience = patience
        self._limit = limit
        self._known: dict[K, tuple[V, float]] = {}
        self._asked: dict[K, asyncio.Task[V]] = {}

    async def get(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        """Return the cached answer, or that of ``ask``. Raises its errors, and TimeoutError."""
        known = self._known.get(key)
        if known is not None and self._clock() < known[1]:
            return known[0]
        task = self._asked.get(key)
        if task is None:
            task = asyncio.create_task(self._ask(key, ask))
            self._asked[key] = task
            task.add_done_callback(lambda _: self._asked.pop(key, None))
        # A caller that is cancelled must not cancel the request of the others.
        return await asyncio.shield(task)

    async def _ask(self, key: K, ask: Callable[[], Coroutine[Any, Any, V]]) -> V:
        async with asyncio.timeout(self._patience):
            answer = await ask()
        self._known.pop(key, None)
        while len(self._known) >= (self._limit or LIMIT):
            # The oldest comes first.
            del self._known[next(iter(self._known))]
        self._known[key] = (answer, self._clock() + VALIDITY)
        return answer


class Decisions:
    """Decides what users may do, by SubjectAccessReviews."""

    def __init__(
        self,
        client: Client,
        clock: Callable[[], float],
        *,
        patience: float = PATIENCE,
        limit: int | None = None,
    ) -> None:
        self._client = client
        self._memo: Memo[tuple[User, Attributes], bool] = Memo(
            clock, patience=patience, limit=limit
        )

    async def is_allowed(self, user: User, wish: Attributes) -> bool:
        """Whether the API server allows an access. Raises ApiError, and TimeoutError."""
        return await self._memo.get((user, wish), lambda: self._ask(user, wish))

    async def _ask(self, user: User, wish: Attributes) -> bool:
        status = _decode(await self._client.create(ACCESS_REVIEWS, _review(user, wish))).status
        return status.allowed and not status.denied


class _Decision(Struct, frozen=True):
    allowed: bool = False
    denied: bool = False


class _Review(Struct, frozen=True):
    status: _Decision = _Decision()


_decode: Final = msgspec.json.Decoder(_Review).decode


def _review(user: User, wish: Attributes) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "user": user.name,
        "groups": list(user.groups),
        "resourceAttributes": msgspec.to_builtins(wish),
    }
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}
    return {**ACCESS_REVIEWS.type_fields, "spec": spec}
