"""A KeptnMetric's status after an answer or a fault (keptn-spec 4.2).

``lastUpdated`` is the time of the value, so a fault leaves it, and the value, as they are. With
``storedResults`` there are no values but those of ``intervalResults``, of which the newest is the
last; faults in a row are one result, so that they push out no values.
"""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.evaluation.model import IntervalResult, MetricRange, MetricStatus
from harbourmaster.evaluation.schedule import stable_hash

if TYPE_CHECKING:
    from harbourmaster.evaluation.model import MetricSpec

MAX_RAW: Final = 1024 * 1024
"""Bytes of what the provider said that are kept, before base64."""
LATE: Final = 300.0
"""Seconds that a sample may be older than what was asked about: many providers lag behind."""
KEPT_RAW: Final = 64
"""Characters of a raw value that are kept in memory: a thousand of a megabyte are too many."""


def status_after_answer(
    status: MetricStatus, spec: MetricSpec, value: str, raw: bytes, time: str
) -> MetricStatus:
    """After an answer of that time, a stamp."""
    if _stored(spec):
        return MetricStatus(
            interval_results=_with(status, spec, value, time), question=question_hash(spec)
        )
    said = b64encode((raw or value.encode())[:MAX_RAW]).decode()
    return MetricStatus(
        value=value, raw_value=said, last_updated=time, question=question_hash(spec)
    )


def status_after_fault(
    status: MetricStatus, spec: MetricSpec, fault: str, time: str
) -> MetricStatus:
    """After a fault; equal to ``status`` where that says so already."""
    if not _stored(spec):
        asked = status.question if status.value else ""
        return msgspec.structs.replace(status, err_msg=fault, interval_results=(), question=asked)
    newest = status.interval_results[-1:]
    if newest and newest[0].err_msg == fault:
        results = status.interval_results[-_stored(spec) :]
    else:
        results = _with(status, spec, "", time, fault)
    return MetricStatus(err_msg=fault, interval_results=results, question=status.question)


def question_hash(spec: MetricSpec) -> str:
    """A hash of the question that a value answers: different where anything relevant changed."""
    span = spec.range or MetricRange(interval="")
    parts = (spec.provider.name, spec.query, span.interval, span.step, span.aggregation)
    return f"{stable_hash(*parts):016x}"


def has_current_question(status: MetricStatus, spec: MetricSpec) -> bool:
    """Whether the values are for what is asked now, as far as is known."""
    return status.question in {"", question_hash(spec)}


def measurement_time(newest: float, asked: float, span: float) -> float:
    """When a value was true: when it was asked for, if its newest sample is of about then.

    A sample from long before the ``span`` seconds that were asked about has its own time. All in
    seconds since 1970.
    """
    return newest if newest < asked - span - LATE else asked


def without_raw(status: MetricStatus) -> MetricStatus:
    """The status as it is kept in memory: whether there is a raw value, but not all of it."""
    if len(status.raw_value) <= KEPT_RAW:
        return status
    return msgspec.structs.replace(status, raw_value=status.raw_value[:KEPT_RAW])


def value_time(status: MetricStatus) -> str:
    """The stamp of the newest value; empty where there is none."""
    if status.last_updated:
        return status.last_updated
    values = (result for result in reversed(status.interval_results) if not result.err_msg)
    return next((value.last_updated for value in values), "")


def _stored(spec: MetricSpec) -> int:
    return 0 if spec.range is None else max(spec.range.stored_results, 0)


def _with(
    status: MetricStatus, spec: MetricSpec, value: str, time: str, fault: str = ""
) -> tuple[IntervalResult, ...]:
    """The results with one more, as many as are wanted."""
    before = status.interval_results
    if fault and before and before[-1].err_msg:
        before = before[:-1]
    result = IntervalResult(
        value=value, range=spec.range or MetricRange(), last_updated=time, err_msg=fault
    )
    return (*before, result)[-_stored(spec) :]
