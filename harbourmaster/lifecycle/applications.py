"""The KeptnAppVersion that runs the checks of an Application, which placement deploys.

The phase machine takes it through its phases like that of a KeptnApp; its deployment is that of the
Application, of which an annotation tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from harbourmaster.lifecycle.check_facts import check_reports, phases_before
from harbourmaster.lifecycle.model import FAILED
from harbourmaster.lifecycle.phases import APPLICATION_PHASES, PASSED, state_of
from harbourmaster.lifecycle.waiting import may_begin

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.lifecycle.check_facts import CheckReport, Facts
    from harbourmaster.lifecycle.model import AppVersion

DEPLOYED_KEY: Final = "placement.harbourmaster.dev/deployed"
"""The annotation by which placement says that the Application is deployed and ready."""
_SHOWN: Final = 3
_MISSING: Final = "definition-missing"


class CheckProgress(NamedTuple):
    """The reason of the condition Checked, and the checks that failed or lack a definition.

    The reason is Deploying as soon as all checks before the deployment passed.
    """

    reason: Literal["Checking", "DefinitionNotFound", "CheckFailed", "Deploying", "Passed"]
    text: str = ""


def progress_of(version: AppVersion, facts: Facts, now: datetime) -> CheckProgress:
    """Return how far the checks of an Application's version are."""
    has_failed, is_past = version.status.status == FAILED, may_begin(version)
    if is_past and not has_failed:
        states = {state_of(version.status, phase) for phase in APPLICATION_PHASES}
        return CheckProgress("Passed" if states <= PASSED else "Deploying")
    phases = APPLICATION_PHASES if is_past else phases_before(version)
    reports = check_reports(version, facts, now, phases=[phase for phase in phases if phase.checks])
    faults = [report for report in reports if _is_at_fault(report, has_failed=has_failed)]
    texts = [_text(report) for report in faults[:_SHOWN]]
    more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
    text = "; ".join([*texts, *more])
    if has_failed:
        return CheckProgress("CheckFailed", text)
    return CheckProgress("DefinitionNotFound" if faults else "Checking", text)


def _is_at_fault(report: CheckReport, *, has_failed: bool) -> bool:
    return report.state == FAILED if has_failed else report.fault == _MISSING


def _text(report: CheckReport) -> str:
    """Return the check with the values and thresholds that are not met, or its message."""
    name = f"{report.kind} {report.name}"
    if report.fault == _MISSING:
        return f"the definition of {name} does not exist"
    unmet = [objective.text for objective in report.objectives if objective.state == FAILED]
    return f"{name}: {', '.join(unmet) or report.message or 'failed'}"
