"""Queries that metrics share: each is sent once for all metrics that have it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from harbourmaster.providers.errors import (
    BadCredentialsError,
    ProviderError,
    ThrottledError,
    UnauthorizedError,
)
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from harbourmaster.controller.evaluation.query_service import QueryService
    from harbourmaster.evaluation.model import Provider
    from harbourmaster.providers.model import Answer, Question

MAX_CACHED: Final = 32 * 1024 * 1024
"""Bytes of the answers of all queries that are cached for other metrics."""
_SAMPLE: Final = 100
"""Bytes that a sample takes in memory."""


class RetryAfter(Enum):
    """The event after which a query is sent again that has failed."""

    BACK_OFF = auto()
    """A few seconds: the same query may succeed soon."""
    MINUTE = auto()
    """A minute: a Secret may be corrected, and no watch tells of it."""
    SLOT = auto()
    """The next slot of the metric: the error is probably permanent."""
    CHANGE = auto()
    """A change of the metric or its provider."""


class Fault(NamedTuple):
    """The reason why a metric has no value."""

    text: str
    kind: str
    """Faults of one kind in a row are one event."""
    retry: RetryAfter
    seconds: float | None = None
    """The wait that the provider asks for."""
    is_throttled: bool = False
    """Whether the provider was not asked, so that a former fault of this kind says more."""


class FetchOutcome(NamedTuple):
    """The result of a query, and when it was sent, in seconds since 1970."""

    asked: float
    result: Answer | Fault


Deliver: TypeAlias = "Callable[[str, FetchOutcome], None]"


@dataclass(slots=True, eq=False)
class SharedQuery:
    """One query, and the keys of the metrics that have it and of those that wait for its answer."""

    members: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)
    outcome: FetchOutcome | None = None
    """The last outcome while it is cached."""
    task: asyncio.Task[None] | None = None
    """The query while it runs; metrics that become due meanwhile wait for it."""


class SharedQueries:
    """The queries of all metrics. ``deliver`` gets each key that waited, and its outcome."""

    def __init__(self, service: QueryService, deliver: Deliver) -> None:
        self._service = service
        self._deliver = deliver
        self._queries: dict[Hashable, SharedQuery] = {}
        self._cached_bytes = 0
        self._log = get_logger("metrics")

    def join(self, query_key: Hashable, key: str) -> SharedQuery:
        """Add the metric ``key`` to the members of its query."""
        query = self._queries.setdefault(query_key, SharedQuery())
        query.members.add(key)
        return query

    def leave(self, query_key: Hashable, key: str) -> None:
        """Undo ``join``; a running query without members is cancelled."""
        query = self._queries[query_key]
        query.members.discard(key)
        query.waiting.discard(key)
        if not query.members:
            del self._queries[query_key]
            if query.task is not None:
                query.task.cancel()

    def ask(
        self,
        query: SharedQuery,
        key: str,
        provider: Provider,
        question: Question,
        *,
        now: float,
        keep: float,
    ) -> None:
        """Deliver the answer to ``key``, of this question or of the running one.

        Others share the answer for ``keep`` seconds.
        """
        query.waiting.add(key)
        if query.task is None:
            query.task = asyncio.create_task(self._run(query, provider, question, now, keep))

    async def close(self) -> None:
        """Cancel all queries."""
        tasks = [query.task for query in self._queries.values() if query.task is not None]
        self._queries.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(
        self, query: SharedQuery, provider: Provider, question: Question, now: float, keep: float
    ) -> None:
        result: Answer | Fault
        try:
            result = await self._service.ask(provider, question)
        except ProviderError as error:
            result = fault_of(error)
        except Exception:  # noqa: BLE001 - whatever it is, metrics must not wait forever
            self._log.exception("query failed", provider=provider.metadata.key)
            text = "the query failed: see the log of the controller"
            result = Fault(text, "Bug", RetryAfter.BACK_OFF)
        query.task = None
        outcome = FetchOutcome(now, result)
        self._cache(query, outcome, keep)
        waiting, query.waiting = query.waiting, set()
        for key in waiting:
            self._deliver(key, outcome)

    def _cache(self, query: SharedQuery, outcome: FetchOutcome, keep: float) -> None:
        """Cache the outcome, unless the cache is full: others then send the query again."""
        result = outcome.result
        size = 0 if isinstance(result, Fault) else len(result.raw) + _SAMPLE * len(result.samples)
        if self._cached_bytes + size > MAX_CACHED:
            query.outcome = None
            return
        query.outcome = outcome
        self._cached_bytes += size
        asyncio.get_running_loop().call_later(keep, self._evict, query, outcome, size)

    def _evict(self, query: SharedQuery, outcome: FetchOutcome, size: int) -> None:
        self._cached_bytes -= size
        if query.outcome is outcome:
            query.outcome = None


def fault_of(error: ProviderError) -> Fault:
    """Return the fault of an error, which itself would keep its traceback in memory."""
    retry = RetryAfter.BACK_OFF if error.helps_to_wait else RetryAfter.SLOT
    if isinstance(error, UnauthorizedError | BadCredentialsError):
        retry = RetryAfter.MINUTE
    is_away = retry is RetryAfter.BACK_OFF and error.is_unreachable
    return Fault(
        text=str(error),
        # A provider that is away fails in several ways, one after the other.
        kind="NoContact" if is_away else error.reason,
        retry=retry,
        seconds=error.seconds if isinstance(error, ThrottledError) else None,
        is_throttled=isinstance(error, ThrottledError),
    )
