"""The queries of KeptnMetrics: each is sent once for all metrics that have it, when one is due.

Times of the state of a metric between two queries are seconds since 1970.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import InitVar, dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from harbourmaster.api.times import parse_rfc3339
from harbourmaster.evaluation.metric_status import value_time
from harbourmaster.evaluation.schedule import SLACK, retry_wait, slots, stable_hash
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
    from harbourmaster.evaluation.model import MetricRange, MetricStatus, Provider
    from harbourmaster.evaluation.schedule import Slots
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


UNKNOWN: Final = "Unknown"
"""The kind of a reported fault of an earlier term, or of the metric before its change."""
CREDENTIALS: Final = 60.0
"""Seconds until the next try after missing or refused credentials; no watch tells of Secrets."""
_BEHIND: Final = 10.0
"""Seconds that metrics may be late and still share an answer, which may be large."""
_SPREAD: Final = 30.0
"""Seconds over which a new leader spreads the queries of metrics that have failed."""


class FetchInputs(NamedTuple):
    """The inputs of a query; it is due at once when any of them changes."""

    uid: str
    provider_key: str
    """The ``namespace/name`` of the provider."""
    query: str
    range: MetricRange | None
    provider_uid: str
    """The UID of the provider; empty if it does not exist."""
    provider_generation: int

    @property
    def question(self) -> tuple[object, ...]:
        """The inputs that determine the value, of any version of the provider."""
        return (self.provider_key, self.query, self.range)

    @property
    def span(self) -> tuple[str, str]:
        """The interval and step of the range; empty without one."""
        return ("", "") if self.range is None else (self.range.interval, self.range.step)

    @property
    def query_key(self) -> tuple[object, ...]:
        """The key of the SharedQuery, which differs for each version of a provider."""
        provider = (self.provider_key, self.provider_uid, self.provider_generation)
        return (*provider, self.query, *self.span)


@dataclass(slots=True, eq=False)
class MetricEntry:
    """The state of the metric ``key``."""

    key: InitVar[str]
    inputs: FetchInputs
    interval: int
    due: float = -math.inf
    slot: float = math.nan
    """The slot for which the metric is due; NaN if it is due for another reason."""
    fetched: float = -math.inf
    """The time of the last query."""
    asked: float = -math.inf
    """The time of the query with the last outcome, which may be that of another metric."""
    query: SharedQuery | None = None
    is_waiting: bool = False
    outcome: FetchOutcome | None = None
    """The outcome that is not yet written."""
    failures: int = 0
    reported: str = ""
    """The kind of the reported fault; empty without one."""
    answered: tuple[object, ...] | None = None
    """The question that the value in the status answers; None if unknown."""
    status: MetricStatus | None = None
    """The written status, until the cache has it."""
    _hash: int = field(init=False)
    _question_hash: int = field(init=False)

    def __post_init__(self, key: str) -> None:
        """Compute the hashes by which metrics and queries are spread."""
        self._hash = stable_hash(key)
        self._question_hash = _hash_of(self.inputs)

    @property
    def slots(self) -> Slots:
        """The slots of the metric, for the current number of metrics with its query."""
        count = 1 if self.query is None else len(self.query.members)
        return slots(self.interval, self._question_hash, self._hash, count)

    def requeue_after(self, now: float) -> float | None:
        """Return the seconds until the metric is due; None if it waits for a change."""
        left = self.due - now
        if left > self.interval and math.isfinite(self.slot):
            # The clock was set back: no slot is so far away.
            return 0.0
        return None if left == math.inf else max(left, 0.0)

    @property
    def cache_seconds(self) -> float:
        """The seconds for which an answer is cached for other metrics with the query."""
        return self.slots.spread + max(min(self.interval / 2, _BEHIND), SLACK)

    def shared_since(self, now: float) -> float:
        """Return the earliest query time of an answer that the metric may share now."""
        slot = None if math.isnan(self.slot) else self.slot
        return self.slots.shared_since(now, slot)

    def begin(self, status: MetricStatus, now: float, *, is_current: bool) -> None:
        """Continue where the status ends; a metric without a usable status is due at once.

        ``is_current`` is false if the status is that of another question.
        """
        if status.err_msg:
            self.reported = UNKNOWN
            spread = min(_SPREAD, self.interval / 4)
            self.due = now + spread * (self._hash % 4096) / 4096
            return
        if not is_current:
            return
        try:
            updated = parse_rfc3339(value_time(status)).timestamp()
        except ValueError:
            return
        self.fetched = self.slots.last_fetch(updated, now)
        self._await_slot(self.fetched)
        if self.due <= now:
            # It was due while no process led, which does not count as late.
            self.slot = math.nan

    def change(self, inputs: FetchInputs, interval: int) -> None:
        """Reset the entry for changed inputs, and make it due now."""
        self.inputs = inputs
        self.interval = interval
        self.due, self.slot = -math.inf, math.nan
        self.is_waiting, self.outcome = False, None
        self.failures = 0
        self.reported = UNKNOWN if self.reported else ""
        self._question_hash = _hash_of(inputs)

    def change_interval(self, interval: int) -> None:
        """Change the interval, and make the entry due now if it waits for a change."""
        self.interval = interval
        if math.isfinite(self.fetched) and math.isfinite(self.due):
            self._await_slot(self.fetched)
        else:
            self.due, self.slot = -math.inf, math.nan

    def settle(self, outcome: FetchOutcome, now: float) -> float:
        """Schedule the next query after the outcome was written; return the lateness in seconds.

        The lateness is NaN for a fault, and if the metric was not due for a slot.
        """
        result, late = outcome.result, now - self.slot
        self.outcome = None
        self.asked = outcome.asked
        if isinstance(result, Fault):
            late = math.nan
            self.failures += 1
            self._await_slot(now)
            self._await_retry(result, now)
        else:
            self.failures = 0
            self._await_slot(self.fetched)
        return late

    def _await_slot(self, fetched: float) -> None:
        self.due = self.slot = self.slots.next(fetched)

    def _await_retry(self, fault: Fault, now: float) -> None:
        """Schedule the retry after a fault, unless the slot comes first."""
        if fault.retry is RetryAfter.CHANGE:
            self.due, self.slot = math.inf, math.nan
            return
        retry = math.inf
        if fault.retry is RetryAfter.BACK_OFF:
            retry = now + retry_wait(self.failures, self.interval, fault.seconds)
        elif fault.retry is RetryAfter.MINUTE:
            retry = now + CREDENTIALS
        if retry < self.due or fault.seconds:
            self.due, self.slot = retry, math.nan


def _hash_of(inputs: FetchInputs) -> int:
    """Return a hash that is equal for all versions of a provider."""
    return stable_hash(inputs.provider_key, inputs.query, *inputs.span)
