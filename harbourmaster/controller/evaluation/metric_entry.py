"""The state of a KeptnMetric between two queries, and when the next one is due.

Times are seconds since 1970.
"""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from harbourmaster.api.times import parse_rfc3339
from harbourmaster.controller.evaluation.shared_queries import Fault, RetryAfter
from harbourmaster.evaluation.metric_status import value_time
from harbourmaster.evaluation.schedule import SLACK, retry_wait, slots, stable_hash

if TYPE_CHECKING:
    from harbourmaster.controller.evaluation.shared_queries import FetchOutcome, SharedQuery
    from harbourmaster.evaluation.model import MetricRange, MetricStatus
    from harbourmaster.evaluation.schedule import Slots

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
