"""The state of one KeptnMetric between two fetches, and when it is due.

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
"""A fault that was told, by another term or of the metric as it was before."""
CREDENTIALS: Final = 60.0
"""Seconds until credentials are tried again that were absent or refused: nobody watches Secrets."""
_BEHIND: Final = 10.0
"""Seconds that metrics may be late and still share an answer; it may be large."""
_SPREAD: Final = 30.0
"""Seconds within which a new leader asks again what has failed under the last one."""


class FetchInputs(NamedTuple):
    """A metric is asked for at once when any of this changes."""

    uid: str
    place: str
    """Of the provider: ``namespace/name``."""
    query: str
    range: MetricRange | None
    provider_uid: str
    """Empty where there is no provider."""
    provider_generation: int

    @property
    def question(self) -> tuple[object, ...]:
        """What a value answers, from whichever provider."""
        return (self.place, self.query, self.range)

    @property
    def span(self) -> tuple[str, str]:
        """Interval and step of the range; empty without one."""
        return ("", "") if self.range is None else (self.range.interval, self.range.step)

    @property
    def query_key(self) -> tuple[object, ...]:
        """Metrics that agree in this share a question; each version of a provider has its own."""
        provider = (self.place, self.provider_uid, self.provider_generation)
        return (*provider, self.query, *self.span)


@dataclass(slots=True, eq=False)
class MetricEntry:
    """A metric between two looks, by its ``key``."""

    key: InitVar[str]
    inputs: FetchInputs
    interval: int
    due: float = -math.inf
    slot: float = math.nan
    """The slot for which it is due; not a number where it is due for another reason."""
    fetched: float = -math.inf
    """When it was due last."""
    asked: float = -math.inf
    """When the question was asked whose outcome it had last."""
    query: SharedQuery | None = None
    is_waiting: bool = False
    outcome: FetchOutcome | None = None
    """What is to be written."""
    failures: int = 0
    told: str = ""
    """The kind of fault that was reported; empty for none."""
    valued: tuple[object, ...] | None = None
    """What the value in the status is an answer to, where that is known."""
    status: MetricStatus | None = None
    """What was written, until the cache has it."""
    _hash: int = field(init=False)
    _question_hash: int = field(init=False)

    def __post_init__(self, key: str) -> None:
        """Spread metrics and questions by hashes."""
        self._hash = stable_hash(key)
        self._question_hash = _hash_of(self.inputs)

    @property
    def slots(self) -> Slots:
        """Its slots, with as many metrics as have its question now."""
        count = 1 if self.query is None else len(self.query.members)
        return slots(self.interval, self._question_hash, self._hash, count)

    def requeue_after(self, now: float) -> float | None:
        """Seconds until it is due; None for: not before it changes."""
        left = self.due - now
        if left > self.interval and math.isfinite(self.slot):
            # No slot is as far away as that: the clock was put back.
            return 0.0
        return None if left == math.inf else max(left, 0.0)

    @property
    def keep(self) -> float:
        """For how many seconds an answer is kept, for others of the same question."""
        return self.slots.spread + max(min(self.interval / 2, _BEHIND), SLACK)

    def shared_since(self, now: float) -> float:
        """When an answer was asked for at the earliest that will do now that it is due."""
        slot = None if math.isnan(self.slot) else self.slot
        return self.slots.shared_since(now, slot)

    def begin(self, status: MetricStatus, now: float, *, is_current: bool) -> None:
        """Go on where the status says that another term ended; at once where it says nothing.

        Nothing, too, where it is of another question: then it is not ``is_current``.
        """
        if status.err_msg:
            self.told = UNKNOWN
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
            # It was missed while nobody led, which does not count as late.
            self.slot = math.nan

    def change(self, inputs: FetchInputs, interval: int) -> None:
        """Be another metric from here on, and due at once."""
        self.inputs = inputs
        self.interval = interval
        self.due, self.slot = -math.inf, math.nan
        self.is_waiting, self.outcome = False, None
        self.failures = 0
        self.told = UNKNOWN if self.told else ""
        self._question_hash = _hash_of(inputs)

    def change_interval(self, interval: int) -> None:
        """Be due by another interval; at once where it was never due."""
        self.interval = interval
        if math.isfinite(self.fetched) and math.isfinite(self.due):
            self._await_slot(self.fetched)
        else:
            self.due, self.slot = -math.inf, math.nan

    def settle(self, outcome: FetchOutcome, now: float) -> float:
        """Be due again, now that the outcome is written; seconds after the slot, or not a number.

        Of a fault the slot does not matter.
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
        """Be due because of a fault, where that is before the slot or wanted to be after it."""
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
    """The same for all whose questions differ in nothing but the provider's version."""
    return stable_hash(inputs.place, inputs.query, *inputs.span)
