"""The report for people: faults first, each with what to do; a line for what is well."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.batches import many

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.cli.doctor.model import Finding, Report, Severity

_LABELS: Final[dict[Severity, str]] = {
    "fault": "FAULT",
    "warning": "WARNING",
    "unread": "NOT SEEN",
    "note": "note",
    "ok": "ok",
}
_LABEL: Final = 9
_CHECK: Final = 15


def lines(report: Report) -> list[str]:
    """The lines of the text output; the last one is the verdict."""
    found = []
    for one in report.findings:
        subject = f"{one.subject}: " if one.subject else ""
        found.append(f"{_LABELS[one.severity]:{_LABEL}} {one.check:{_CHECK}} {subject}{one.text}")
        if one.remedy:
            found.append(f"{'':{_LABEL}} {'':{_CHECK}} -> {one.remedy}")
    return [*found, "", report.summary]


def summary(findings: Sequence[Finding]) -> str:
    """The verdict in one line."""
    counts = Counter(one.severity for one in findings)
    parts = []
    if counts["fault"]:
        parts.append(many(counts["fault"], "fault"))
    if counts["warning"]:
        parts.append(many(counts["warning"], "warning"))
    if counts["unread"]:
        parts.append(f"{many(counts['unread'], 'thing')} that could not be looked at")
    if not parts:
        return "Harbourmaster is healthy."
    told = ", ".join(parts)
    if counts["fault"]:
        return f"Harbourmaster is not healthy: {told}."
    if counts["unread"]:
        return f"Nobody can tell whether Harbourmaster is healthy: {told}."
    return f"Harbourmaster works, with {told}."
