"""The status of a KeptnMetric after an answer or a fault (keptn-spec 4.2).

``lastUpdated`` is the time of the value, so a fault changes neither. With ``storedResults``, all
values are in ``intervalResults``, the newest last. Faults in a row are one result there, so that
they displace no values.
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
"""Bytes of a raw answer that are stored, before base64."""
LATE: Final = 300.0
"""Seconds that a sample may be older than the queried range, as many providers lag behind."""
KEPT_RAW: Final = 64
"""Characters of a raw value in memory, as a thousand metrics may have a megabyte each."""


def status_after_answer(
    status: MetricStatus, spec: MetricSpec, value: str, raw: bytes, time: str
) -> MetricStatus:
    """Return the status after an answer; ``time`` is in RFC 3339."""
    if _max_results(spec):
        return MetricStatus(
            interval_results=_add_result(status, spec, value, time), question=question_hash(spec)
        )
    encoded = b64encode((raw or value.encode())[:MAX_RAW]).decode()
    return MetricStatus(
        value=value, raw_value=encoded, last_updated=time, question=question_hash(spec)
    )


def status_after_fault(
    status: MetricStatus, spec: MetricSpec, fault: str, time: str
) -> MetricStatus:
    """Return the status after a fault; equal to ``status`` if that has the same fault."""
    if not _max_results(spec):
        asked = status.question if status.value else ""
        return msgspec.structs.replace(status, err_msg=fault, interval_results=(), question=asked)
    newest = status.interval_results[-1:]
    if newest and newest[0].err_msg == fault:
        results = status.interval_results[-_max_results(spec) :]
    else:
        results = _add_result(status, spec, "", time, fault)
    return MetricStatus(err_msg=fault, interval_results=results, question=status.question)


def question_hash(spec: MetricSpec) -> str:
    """Return a hash of all fields that determine the value of a metric."""
    span = spec.range or MetricRange(interval="")
    parts = (spec.provider.name, spec.query, span.interval, span.step, span.aggregation)
    return f"{stable_hash(*parts):016x}"


def has_current_question(status: MetricStatus, spec: MetricSpec) -> bool:
    """Return whether the values answer the current question, or their question is unknown."""
    return status.question in {"", question_hash(spec)}


def measurement_time(newest: float, asked: float, span: float) -> float:
    """Return the time of a value: that of its query, if its newest sample is not much older.

    A sample from long before the queried ``span`` seconds keeps its own time. All times are
    seconds since 1970.
    """
    return newest if newest < asked - span - LATE else asked


def without_raw(status: MetricStatus) -> MetricStatus:
    """Return the status for the cache, with only the beginning of a raw value."""
    if len(status.raw_value) <= KEPT_RAW:
        return status
    return msgspec.structs.replace(status, raw_value=status.raw_value[:KEPT_RAW])


def value_time(status: MetricStatus) -> str:
    """Return the time of the newest value in RFC 3339; empty without a value."""
    if status.last_updated:
        return status.last_updated
    values = (result for result in reversed(status.interval_results) if not result.err_msg)
    return next((value.last_updated for value in values), "")


def _max_results(spec: MetricSpec) -> int:
    return 0 if spec.range is None else max(spec.range.stored_results, 0)


def _add_result(
    status: MetricStatus, spec: MetricSpec, value: str, time: str, fault: str = ""
) -> tuple[IntervalResult, ...]:
    before = status.interval_results
    if fault and before and before[-1].err_msg:
        before = before[:-1]
    result = IntervalResult(
        value=value, range=spec.range or MetricRange(), last_updated=time, err_msg=fault
    )
    return (*before, result)[-_max_results(spec) :]
