"""Which event tells users why the pods of a version wait, and when it is due. Pure.

What makes an event is its reason, its check and its version. A changed value gives no new one; the
next repetition has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.evaluation.objectives import INCONCLUSIVE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.lifecycle.check_facts import CheckFault, CheckReport, ObjectiveReport
    from harbourmaster.lifecycle.gate_report import GateReport

BLOCKED: Final = "GateBlocked"
WAITING: Final = "GateWaiting"
APP_MISSING: Final = "GateAppMissing"
FAULTS: Final[Mapping[CheckFault, str]] = {
    "definition-missing": "GateDefinitionMissing",
    "metric-unavailable": "GateMetricUnavailable",
    "task-stuck": "GateTaskStuck",
}
"""The gravest first."""
REASONS: Final = (BLOCKED, *FAULTS.values(), APP_MISSING, WAITING)
REPEAT: Final = 45 * 60.0
"""Seconds after which an event is repeated: the API server deletes it after an hour."""
SETTLED: Final = 3.0
"""Seconds for which a fault must last before it is reported."""
HEALTHY: Final = 10.0
"""The same of what ends by itself, as a rule."""
_BLOCKING: Final = frozenset(("checks-failed", "app-failed"))
_OPEN: Final = frozenset(("checks-pending", "waits-for-app"))


class GateWait(Struct, frozen=True, gc=False, kw_only=True):
    """Why pods wait, as an event says it."""

    reason: str
    """One of REASONS."""
    version: str
    """The name of their KeptnWorkloadVersion."""
    text: str
    check: str = ""
    """Phase and definition of the check that the event is about; empty for none."""

    @property
    def is_warning(self) -> bool:
        """Whether a person has to do something."""
        return self.reason != WAITING

    @property
    def identity(self) -> str:
        """What two events of one series have in common, besides their object."""
        return f"{self.reason}/{self.version}/{self.check}"

    @property
    def delay(self) -> float:
        """Seconds that it must last before it is reported."""
        return SETTLED if self.is_warning else HEALTHY


class Told(Struct, frozen=True):
    """What was told of a wait: ``at`` by the UID of the object, ``since`` when the wait began."""

    identity: str
    since: float
    at: Mapping[str, float] = {}

    def after(self, uid: str, now: float) -> Told:
        """The same once the object with this UID was told."""
        return replace(self, at={**self.at, uid: now})


class EventStep(NamedTuple):
    """``due``: the UID of the object to tell now, empty for none; ``wait``: seconds to the next."""

    told: Told | None = None
    due: str = ""
    wait: float | None = None


def next_event(
    wait: GateWait | None, uids: Sequence[str], told: Told | None, now: float
) -> EventStep:
    """The first event that is due for the objects with these UIDs, after what was told."""
    if wait is None or not uids:
        return EventStep()
    if told is None or told.identity != wait.identity:
        told = Told(wait.identity, now)
    told = replace(told, at={uid: told.at[uid] for uid in uids if uid in told.at})
    first = told.since + wait.delay
    times = {uid: max(first, told.at[uid] + REPEAT) if uid in told.at else first for uid in uids}
    due = min(uids, key=times.__getitem__)
    left = times[due] - now
    return EventStep(told, "", left) if left > 0 else EventStep(told, due, 0.0)


def gate_wait(report: GateReport, *, is_app_late: bool) -> GateWait | None:
    """What to tell of a pod with this report; None for nothing, as it goes on by itself.

    ``is_app_late``: a KeptnAppVersion that is to come would be there by now.
    """
    version = report.version_object
    if report.code in _BLOCKING:
        failed = next((each for each in report.checks if each.state == "Failed"), None)
        if failed is None:
            return GateWait(reason=BLOCKED, version=version, text=f"Blocked: {report.text}")
        text = f"Blocked: {_name(failed)} failed and will not be retried{_detail(failed)}"
        return GateWait(reason=BLOCKED, version=version, text=text, check=_key(failed))
    if report.code not in _OPEN:
        return None
    if report.code == "waits-for-app" and not report.app_version_object:
        reason, text = APP_MISSING if is_app_late else WAITING, f"waits for {report.text}"
        text = f"{text}: {report.advice}" if report.advice else text
        return GateWait(reason=reason, version=version, text=text)
    grades = (*FAULTS, "")
    first = min(
        (each for each in report.checks if each.is_open),
        key=lambda each: grades.index(each.fault),
        default=None,
    )
    if first is None:
        return None
    tries = f"; try {first.tries} of {first.retries}" if first.tries and first.retries else ""
    again = f"{tries}, next try {first.next_try}" if tries and first.next_try else tries
    text = f"waits for {_name(first)}{_detail(first)}{again}"
    reason = FAULTS.get(first.fault, WAITING)
    return GateWait(reason=reason, version=version, text=text, check=_key(first))


def _key(check: CheckReport) -> str:
    return f"{check.phase}/{check.name}"


def _name(check: CheckReport) -> str:
    of_app = " of the app" if check.phase.startswith("App") else ""
    return f"pre-deployment {check.kind} {check.name}{of_app}"


def _detail(check: CheckReport) -> str:
    """What is known of a check: value and threshold, or its own message."""
    unmet = next((each for each in check.objectives if each.state != "Succeeded"), None)
    if check.fault == "definition-missing" or unmet is None or not (check.tries or unmet.value):
        return f": {check.message}" if check.message else ""
    return f": {_objective(unmet)}"


def _objective(found: ObjectiveReport) -> str:
    wanted = f", must be {found.threshold}" if found.threshold else ""
    if found.message.startswith(INCONCLUSIVE) or not found.value:
        why = found.message.removeprefix(INCONCLUSIVE)
        return f"{found.name} has no value{wanted}" + (f" ({why})" if why else "")
    return f"{found.name} is {found.value}{wanted}"
