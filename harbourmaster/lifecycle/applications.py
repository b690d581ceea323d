"""The KeptnAppVersion that runs the checks of an Application, which placement deploys.

The phase machine takes it through its phases like that of a KeptnApp; its deployment is that of the
Application, of which an annotation tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from harbourmaster.api.metadata import Metadata
from harbourmaster.gates.names import NAME_LIMIT, resource_name
from harbourmaster.lifecycle.check_facts import check_reports, phases_before
from harbourmaster.lifecycle.model import (
    APPLICATION_PREFIX,
    FAILED,
    AppVersion,
    AppVersionSpec,
    WorkloadEntry,
)
from harbourmaster.lifecycle.phases import APPLICATION_PHASES, PASSED, state_of
from harbourmaster.lifecycle.waiting import may_begin

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.lifecycle.check_facts import CheckReport, Facts
    from harbourmaster.lifecycle.model import Checks

DEPLOYED_KEY: Final = "placement.harbourmaster.dev/deployed"
"""The annotation by which placement says that the Application is deployed and ready."""
_NAME_LEAST: Final = 60
_SHOWN: Final = 3
_MISSING: Final = "definition-missing"


class CheckProgress(NamedTuple):
    """The reason of the condition Checked, and the checks that failed or lack a definition.

    The reason is Deploying as soon as all checks before the deployment passed.
    """

    reason: Literal["Checking", "DefinitionNotFound", "CheckFailed", "Deploying", "Passed"]
    text: str = ""


def application_version(
    application: Metadata,
    owner: OwnerReference,
    checks: Checks,
    generation: int,
    context: Mapping[str, str],
    seed: str,
) -> AppVersion:
    """Return the version of a generation of an Application; ``seed`` is the end of its name."""
    version = str(generation)
    fields = {name: getattr(checks, name) for name in checks.__struct_fields__}
    return AppVersion(
        metadata=Metadata(
            name=resource_name(
                NAME_LIMIT, _NAME_LEAST, "application", application.name, version, seed
            ),
            namespace=application.namespace,
            owner_references=(owner,),
        ),
        spec=AppVersionSpec(
            app_name=f"{APPLICATION_PREFIX}{application.name}",
            version=version,
            workloads=(WorkloadEntry(name=application.name, version=version),),
            metadata=dict(context),
            **fields,
        ),
    )


def progress_of(version: AppVersion, facts: Facts, now: datetime) -> CheckProgress:
    """Return how far the checks of an Application's version are."""
    has_failed = version.status.status == FAILED
    phases = APPLICATION_PHASES if may_begin(version) else phases_before(version)
    reports = check_reports(version, facts, now, phases=[phase for phase in phases if phase.checks])
    faults = [report for report in reports if _is_at_fault(report, has_failed=has_failed)]
    texts = [_text(report) for report in faults[:_SHOWN]]
    more = [f"and {len(faults) - _SHOWN} more"] if len(faults) > _SHOWN else []
    text = "; ".join([*texts, *more])
    if has_failed:
        return CheckProgress("CheckFailed", text)
    if may_begin(version):
        states = {state_of(version.status, phase) for phase in phases}
        return CheckProgress("Passed" if states <= PASSED else "Deploying")
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
