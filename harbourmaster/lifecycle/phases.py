"""The phases of applications and workloads as two tables.

The same machine moves both through their phases (keptn-spec 3.0, 3.3, 3.5).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from harbourmaster.lifecycle.model import (
    DEPRECATED,
    FAILED,
    SUCCEEDED,
    WARNING,
    AppVersion,
    AppVersionStatus,
    WorkloadVersion,
    WorkloadVersionStatus,
)

if TYPE_CHECKING:
    from harbourmaster.lifecycle.model import Version

Status: TypeAlias = AppVersionStatus | WorkloadVersionStatus

TASK: Final = "KeptnTask"
EVALUATION: Final = "KeptnEvaluation"
ANALYSIS: Final = "Analysis"
COMPLETED_PHASE: Final = "Completed"
"""Value of ``currentPhase`` at the end."""
PASSED: Final = frozenset((SUCCEEDED, WARNING))
"""States of a phase after which the next one begins."""
SETTLED: Final = frozenset((SUCCEEDED, FAILED, WARNING, DEPRECATED))
"""States of an item that is not read again."""


class Phase(Struct, frozen=True, gc=False):
    """A phase. ``state``, ``items`` are fields of the status, ``checks`` is one of the spec."""

    name: str
    """The short name, as in ``currentPhase`` and in reasons of events."""
    state: str
    """Empty for the checks of a stage, whose state is that of the stage."""
    kind: str = ""
    """The kind of its children; empty for the deployment, which has none."""
    items: str = ""
    checks: str = ""
    check_type: str = ""
    """The ``checkType`` of the children, with which their names begin."""


def _tasks(level: str, when: str, check_type: str) -> Phase:
    return Phase(
        name=f"{level}{when}DeployTasks",
        state=f"{check_type}_deployment_status",
        kind=TASK,
        items=f"{check_type}_deployment_task_status",
        checks=f"{check_type}_deployment_tasks",
        check_type=check_type,
    )


def _evaluations(level: str, when: str, check_type: str) -> Phase:
    return Phase(
        name=f"{level}{when}DeployEvaluations",
        state=f"{check_type}_deployment_evaluation_status",
        kind=EVALUATION,
        items=f"{check_type}_deployment_evaluation_task_status",
        checks=f"{check_type}_deployment_evaluations",
        check_type=f"{check_type}-eval",
    )


APP_DEPLOY: Final = Phase("AppDeploy", "workload_overall_status")
WORKLOAD_DEPLOY: Final = Phase("WorkloadDeploy", "deployment_status")
PROMOTION: Final = Phase(
    name="PromotionTasks",
    state="promotion_status",
    kind=TASK,
    items="promotion_task_status",
    checks="promotion_tasks",
    check_type="promotion",
)
APP_PRE_EVALUATIONS: Final = _evaluations("App", "Pre", "pre")
"""The phase of an app that workloads wait for."""

APP_PHASES: Final = (
    _tasks("App", "Pre", "pre"),
    APP_PRE_EVALUATIONS,
    APP_DEPLOY,
    _tasks("App", "Post", "post"),
    _evaluations("App", "Post", "post"),
    PROMOTION,
)
APPLICATION_PHASES: Final = (
    _tasks("Application", "Pre", "pre"),
    _evaluations("Application", "Pre", "pre"),
    Phase("ApplicationDeploy", APP_DEPLOY.state),
    _tasks("Application", "Post", "post"),
    _evaluations("Application", "Post", "post"),
)
APP_CHECKS: Final = APP_PHASES[:2]
"""The phases of an app that its workloads wait for."""
WORKLOAD_PHASES: Final = (
    _tasks("Workload", "Pre", "pre"),
    _evaluations("Workload", "Pre", "pre"),
    WORKLOAD_DEPLOY,
    _tasks("Workload", "Post", "post"),
    _evaluations("Workload", "Post", "post"),
)


@cache
def stage_phases(number: int) -> tuple[Phase, ...]:
    """Return the checks at the end of a stage, which all run at once."""
    kinds = (
        (TASK, "Tasks", "stage_task_status", "stage_tasks", ""),
        (EVALUATION, "Evaluations", "stage_evaluation_status", "stage_evaluations", "-eval"),
        (ANALYSIS, "Analyses", "stage_analysis_status", "stage_analyses", "-analysis"),
    )
    return tuple(
        Phase(f"WorkloadStage{word}", "", kind, items, checks, f"stage-{number}{suffix}")
        for kind, word, items, checks, suffix in kinds
    )


def check_phases(version: Version) -> tuple[Phase, ...]:
    """Return the phases with checks, and those of the current stage."""
    phases = phases_of(version)
    if not isinstance(version, WorkloadVersion) or not version.spec.stages:
        return tuple(phase for phase in phases if phase.kind)
    stage = version.status.stage
    staged = stage_phases(stage.number if stage is not None else 0)
    return (*phases[:2], *staged, *phases[3:])


def phases_of(version: Version) -> tuple[Phase, ...]:
    """Return all phases in order, including the promotion, which may be off."""
    if isinstance(version, AppVersion):
        return APPLICATION_PHASES if version.is_of_application else APP_PHASES
    return WORKLOAD_PHASES


def has_checks(version: Version) -> bool:
    """Whether the version names a check of its own."""
    return any(getattr(version.spec, phase.checks) for phase in check_phases(version))


def state_of(status: Status, phase: Phase) -> str:
    """Return the state of the phase."""
    state: str = getattr(status, phase.state, "")
    return state


def has_passed(version: Version, phase: Phase) -> bool:
    """Whether the phase passed, if it is in APP_CHECKS with what a later context added, too."""
    listed = getattr(version.spec, phase.checks) if phase in APP_CHECKS else ()
    passed = checks_in_status(version, phase) if listed else set()
    return state_of(version.status, phase) in PASSED and passed.issuperset(listed)


def checks_in_status(version: Version, phase: Phase) -> set[str]:
    """Return the names of those definitions of the phase that are in the status."""
    return {item.definition_name for item in getattr(version.status, phase.items)}
