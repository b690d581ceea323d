"""What a Cluster's status says of its metrics, from what one pass measured (krake-spec 7.1)."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from harbourmaster.api.times import stamp
from harbourmaster.placement.application_status import changed, moment
from harbourmaster.placement.cluster_state import METRICS_AVAILABLE
from harbourmaster.placement.model import FALSE, TRUE, Condition, MetricReport, condition

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.placement.candidates import Candidate
    from harbourmaster.placement.measuring import Measured
    from harbourmaster.placement.model import ReportedStatus

FRESH: Final = timedelta(seconds=60)
"""For which other values of the same metrics are no news."""
_LONGEST: Final = 1024


def reported(
    status: ReportedStatus, candidate: Candidate, generation: int, now: datetime
) -> ReportedStatus:
    """The status with its metrics as they are; the very same one where that is no news."""
    measured = candidate.measured
    found = _condition(measured, generation)
    before = condition(status.conditions, METRICS_AVAILABLE)
    if before is None and not (measured.terms or measured.faults):
        return status
    after = replace(status, conditions=changed(status.conditions, found, now))
    reports = _reports(measured, stamp(now))
    if after == status and not _is_news(status.metrics, reports, now):
        return status
    return replace(after, metrics=reports)


def _condition(measured: Measured, generation: int) -> Condition:
    status, reason, message = TRUE, "MetricsAvailable", ""
    if measured.fault:
        status, reason, message = FALSE, measured.faults[0][1].reason, measured.fault[:_LONGEST]
    elif not measured.terms:
        reason = "NoMetrics"
    return Condition(
        type=METRICS_AVAILABLE,
        status=status,
        reason=reason,
        message=message,
        observed_generation=generation,
    )


def _reports(measured: Measured, time: str) -> tuple[MetricReport, ...]:
    """Those with values, else those without: a target is measured as a whole."""
    known = tuple(
        MetricReport(
            name=term.metric,
            scope=term.scope,
            value=term.value,
            normalised=term.normalised,
            time=time,
        )
        for term in measured.terms
    )
    return known or tuple(
        MetricReport(name=name, time=time, reason=fault.reason) for name, fault in measured.faults
    )


def _is_news(
    before: tuple[MetricReport, ...], after: tuple[MetricReport, ...], now: datetime
) -> bool:
    """Whether other metrics are told of than before, or other values than long ago."""

    def plain(reports: tuple[MetricReport, ...]) -> list[MetricReport]:
        return [replace(each, time="") for each in reports]

    if [(each.name, each.scope, each.reason) for each in before] != [
        (each.name, each.scope, each.reason) for each in after
    ]:
        return True
    if plain(before) == plain(after):
        return False
    told = moment(before[0].time) if before else None
    return told is None or abs(now - told) >= FRESH
