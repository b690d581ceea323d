"""Selects the event that tells users why the pods of a version wait, and when it is due. Pure.

An event is identified by its reason, its check and its version. A changed value causes no new
event; the next repetition has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.evaluation.objectives import INCONCLUSIVE
from harbourmaster.lifecycle.wait_items import items_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.lifecycle.check_facts import CheckReport
    from harbourmaster.lifecycle.gate_report import GateReport

BLOCKED: Final = "GateBlocked"
WAITING: Final = "GateWaiting"
APP_MISSING: Final = "GateAppMissing"
FAULTS: Final = {
    "definition-missing": "GateDefinitionMissing",
    "metric-unavailable": "GateMetricUnavailable",
    "task-stuck": "GateTaskStuck",
    "": WAITING,
}
"""Reasons by the fault of a check, the most severe first."""
REASONS: Final = (BLOCKED, *FAULTS.values(), APP_MISSING)
REPEAT: Final = 45 * 60.0
"""Seconds after which an event is repeated: the API server deletes it after an hour."""
SETTLED: Final = 3.0
"""Seconds for which a fault must last before it is reported."""
HEALTHY: Final = 10.0
"""Seconds for which a wait that usually ends by itself must last before it is reported."""
APP_DUE: Final = 60
"""Maximum age of a pod in seconds within which its KeptnAppVersion may still come."""


class GateWait(Struct, frozen=True, gc=False, kw_only=True):
    """The reason why pods wait, for an event; ``reason`` is one of REASONS."""

    reason: str
    identity: str
    """The text that two events of one series have in common, besides their object."""
    text: str
    left: float | None = None
    """Seconds until time alone makes it another wait."""

    @property
    def is_warning(self) -> bool:
        """Whether a person must act."""
        return self.reason != WAITING


class ReportedWait(Struct, frozen=True):
    """The events about a wait: ``at`` by the UID of the object, ``since`` when the wait began."""

    identity: str
    since: float
    at: Mapping[str, float] = {}


class EventStep(NamedTuple):
    """The event to emit now, for the object with the UID ``due``; empty for none."""

    told: ReportedWait | None = None
    due: str = ""
    requeue_after: float | None = None
    """Seconds until the next event."""


def next_event(
    wait: GateWait | None, uids: Sequence[str], told: ReportedWait | None, now: float
) -> EventStep:
    """Return the first event that is due for the objects with these UIDs, after ``told``."""
    if wait is None or not uids:
        return EventStep()
    if told is None or told.identity != wait.identity:
        told = ReportedWait(wait.identity, now)
    at = {uid: told.at[uid] for uid in uids if uid in told.at}
    first = told.since + (SETTLED if wait.is_warning else HEALTHY)
    times = {uid: max(first, at[uid] + REPEAT) if uid in at else first for uid in uids}
    due = min(uids, key=times.__getitem__)
    if times[due] <= now:
        return EventStep(replace(told, at={**at, due: now}), due)
    return EventStep(replace(told, at=at), "", min(times[due] - now, wait.left or REPEAT))


def gate_wait(report: GateReport) -> GateWait | None:
    """Return the wait to report for a pod with this report, or None if it goes on by itself."""
    check, left = None, None
    open_items = [item for item in report.items if item.state != "Met"]
    if report.code in {"checks-failed", "app-failed"}:
        check = next((check for check in report.checks if check.state == "Failed"), None)
        reason, text = BLOCKED, report.sentence
        if check is not None:
            text = f"Blocked: {_name(check)} failed and will not be retried{_detail(check)}"
    elif report.code == "waits-for-app" and not report.app_version_object:
        left = float(max(APP_DUE - report.age, 0)) or None
        reason, text = WAITING if left else APP_MISSING, report.sentence
        text = f"{text}: {report.advice}" if report.advice else text
    elif report.code in {"checks-pending", "waits-for-app"}:
        grades, checks = list(FAULTS), [check for check in report.checks if check.is_open]
        check = min(checks, key=lambda check: grades.index(check.fault), default=None)
        if check is None:
            return None
        tries = f"; try {check.tries} of {check.retries}" if check.tries and check.retries else ""
        again = f", next try {check.next_try}" if tries and check.next_try else ""
        reason = FAULTS[check.fault]
        text = f"waits for {_name(check)}{_detail(check)}{tries}{again}"
    elif report.code == "stage-pending":
        check = next((check for check in report.checks if check.is_open and check.fault), None)
        reason = FAULTS[check.fault if check is not None else ""]
        text = f"{report.sentence}{_detail(check) if check is not None else ''}"
    elif report.code in {"wait-blocked", "superseded", "stage-held"}:
        reason, text = BLOCKED, report.sentence
        text = f"{text}: {report.advice}" if report.code != "wait-blocked" else text
    elif report.code == "waits-for-objects":
        reason, text = WAITING, f"waits for {items_text(open_items)}"
    else:
        return None
    if open_items and report.code not in {"wait-blocked", "waits-for-objects"}:
        text = f"{text}; it also waits for {items_text(open_items)}"
    # A further stage is another wait, and a held one another than one that is superseded.
    stage = {"stage-pending": report.text.partition(":")[0], "stage-held": report.code}
    about = f"{check.phase}/{check.name}" if check is not None else stage.get(report.code, "")
    identity = "/".join((reason, report.version_object, about, *(item.item for item in open_items)))
    return GateWait(reason=reason, identity=identity, text=text, left=left)


def _name(check: CheckReport) -> str:
    of_app = " of the app" if check.phase.startswith("App") else ""
    return f"pre-deployment {check.kind} {check.name}{of_app}"


def _detail(check: CheckReport) -> str:
    """Return the details of a check: value and threshold, or its own message."""
    unmet = next(
        (objective for objective in check.objectives if objective.state != "Succeeded"), None
    )
    if check.fault == "definition-missing" or unmet is None or not check.tries:
        return f": {check.message}" if check.message else ""
    why = unmet.message.removeprefix(INCONCLUSIVE)
    has_none = why != unmet.message or not unmet.value
    value = "has no value" if has_none else f"is {unmet.value}"
    wanted = f", must be {unmet.threshold}" if unmet.threshold else ""
    return f": {unmet.name} {value}{wanted}" + (f" ({why})" if has_none and why else "")
