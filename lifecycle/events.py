"""What is told of phases: names in two vocabularies, types and texts (keptn-spec 3.0, 5.1 to 5.3).

Keptn says ``Finished`` and ``Failed``, its documentation ``Succeeded`` and ``Errored``. A reason is
a phase's short name and a state, and a CloudEvent's type is the long name, a dot and the state.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from msgspec import Struct

Vocabulary: TypeAlias = Literal["keptn", "documented", "both"]

STARTED: Final = "Started"
FINISHED: Final = "Finished"
FAILED: Final = "Failed"
STATUS_CHANGED: Final = "StatusChanged"
RECONCILE_ERROR: Final = "ReconcileError"
RECONCILE_TIMEOUT: Final = "ReconcileTimeout"
NOT_FOUND: Final = "NotFound"
APP_VERSION_NOT_FOUND: Final = "AppVersionNotFound"
GET_APP_VERSION_FAILED: Final = "GetAppVersionFailed"

APP_COMPLETED: Final = "AppCompleted"
WORKLOAD_COMPLETED: Final = "WorkloadCompleted"
WORKLOAD_DEPLOY: Final = "WorkloadDeploy"
PRE_EVALUATIONS: Final = "WorkloadPreDeployEvaluations"
RECONCILE_TASK: Final = "ReconcileTask"
RECONCILE_EVALUATION: Final = "ReconcileEvaluation"
COMPLETED: Final = "Completed"
DEPRECATED: Final = "Deprecated"
DEADLINE: Final = "PreCheckDeadline"
EXCEEDED: Final = "Exceeded"

APP_PHASES: Final = {
    "AppPreDeployTasks": "App Pre-Deployment Tasks",
    "AppPreDeployEvaluations": "App Pre-Deployment Evaluations",
    "AppDeploy": "App Deployment",
    "AppPostDeployTasks": "App Post-Deployment Tasks",
    "AppPostDeployEvaluations": "App Post-Deployment Evaluations",
    "PromotionTasks": "Promotion Tasks",
}
"""Long names of an app's phases, in their order."""
WORKLOAD_PHASES: Final = {
    "WorkloadPreDeployTasks": "Workload Pre-Deployment Tasks",
    PRE_EVALUATIONS: "Workload Pre-Deployment Evaluations",
    WORKLOAD_DEPLOY: "Workload Deployment",
    "WorkloadPostDeployTasks": "Workload Post-Deployment Tasks",
    "WorkloadPostDeployEvaluations": "Workload Post-Deployment Evaluations",
}
"""The same of a workload."""
LONG_NAMES: Final = {
    **APP_PHASES,
    **WORKLOAD_PHASES,
    APP_COMPLETED: "App Completed",
    WORKLOAD_COMPLETED: "Workload Completed",
    COMPLETED: "Completed",
    DEPRECATED: "Deprecated",
    RECONCILE_EVALUATION: "Reconcile Evaluation",
    RECONCILE_TASK: "Reconcile Task",
    "ReconcileWorkload": "Reconcile Workloads",
    "ReconcileConfig": "Reconcile Config",
    "Gate": "Scheduling Gate",
    DEADLINE: "Pre-Deployment Check Deadline",
    "CreateEvaluation": "Create Evaluation",
    "CreateTask": "Create Task",
    "CreateApp": "Create App",
    "CreateAppCreationRequest": "Create AppCreationRequest",
    "CreateWorkload": "Create Workload",
    "ReadWorkload": "Read Workload",
    "UpdateWorkload": "Update Workload",
    "CreateWorkloadVersion": "Create WorkloadVersion",
    "CreateAppVersion": "Create AppVersion",
    "DeprecateAppVersion": "Deprecate AppVersion",
}
"""Of everything that is told of by phase; an unknown short name is its own long name."""
CREATIONS: Final = {
    "App": "CreateApp",
    "AppVersion": "CreateAppVersion",
    "Workload": "CreateWorkload",
    "WorkloadVersion": "CreateWorkloadVersion",
    "Task": "CreateTask",
    "Evaluation": "CreateEvaluation",
}
"""What the documentation calls a creation, by the class of the model."""

_TEXTS: Final = {
    STARTED: "has started",
    FINISHED: "has finished",
    FAILED: "has failed",
    STATUS_CHANGED: "status has changed",
    RECONCILE_ERROR: "could not get reconciled",
    RECONCILE_TIMEOUT: "retryCount exceeded",
    NOT_FOUND: "could not be found",
    APP_VERSION_NOT_FOUND: "has no KeptnAppVersion yet",
    GET_APP_VERSION_FAILED: "could not get its KeptnAppVersion",
}
_NORMAL: Final = frozenset((STARTED, FINISHED, STATUS_CHANGED, ""))
_DOCUMENTED: Final = {FINISHED: "Succeeded", FAILED: "Errored", RECONCILE_ERROR: "ReconcileErrored"}
_BARE: Final = {
    (RECONCILE_TASK, STATUS_CHANGED),
    (RECONCILE_EVALUATION, STATUS_CHANGED),
}
"""What the documentation names by the phase alone."""
_ENDS: Final = {(APP_COMPLETED, FINISHED), (WORKLOAD_COMPLETED, FINISHED)}
_MISSPELT: Final = "WorkloadPreDeployErrored"
"""So the documentation calls failed evaluations of a workload in one place."""


class Occasion(Struct, frozen=True, gc=False):
    """One event as it is to be told; ``title`` is the type of its CloudEvent."""

    reason: str
    title: str
    heading: str
    """The long name with which its message begins."""
    text: str
    is_warning: bool = False


def occasions(
    phase: str, state: str, text: str, vocabulary: Vocabulary, *, warning: bool | None = None
) -> tuple[Occasion, ...]:
    """The events by which a state of a phase is told, each reason once.

    Without ``text`` or ``warning`` they are those of the state.
    """
    said = text or _TEXTS.get(state, "")
    is_warning = state not in _NORMAL if warning is None else warning
    found: list[Occasion] = []
    if vocabulary != "documented":
        found.append(_occasion(phase, state, said, is_warning=is_warning))
    if vocabulary != "keptn":
        found += _documented(phase, state, said, is_warning=is_warning)
    return tuple({each.reason: each for each in reversed(found)}.values())[::-1]


def creation(kind: str, vocabulary: Vocabulary) -> tuple[Occasion, ...]:
    """The same for an object made by us, by its class; Keptn says nothing then."""
    phase = CREATIONS.get(kind)
    if phase is None or vocabulary == "keptn":
        return ()
    return (_occasion(phase, "", "has been created", is_warning=False),)


def deprecation(vocabulary: Vocabulary) -> tuple[Occasion, ...]:
    """The same for a version that is superseded; Keptn says nothing then."""
    if vocabulary == "keptn":
        return ()
    return (_occasion(DEPRECATED, "", "is superseded", is_warning=False),)


def message(occasion: Occasion, namespace: str, name: str, version: str = "") -> str:
    """The text of an event; an unknown version is left out."""
    known = f", Version: {version}" if version else ""
    said = f"{occasion.heading}: {occasion.text}"
    return f"{said} / Namespace: {namespace}, Name: {name}{known}"


def _documented(phase: str, state: str, text: str, *, is_warning: bool) -> list[Occasion]:
    if (phase, state) in _ENDS:
        return [_occasion(COMPLETED, "", text, is_warning=is_warning)]
    if (phase, state) in _BARE:
        return [_occasion(phase, "", text, is_warning=is_warning)]
    if state == FINISHED and is_warning:
        # Keptn's name for a time-out; what did not succeed is not called so.
        return [_occasion(phase, _DOCUMENTED[RECONCILE_ERROR], text, is_warning=True)]
    found = [_occasion(phase, _DOCUMENTED.get(state, state), text, is_warning=is_warning)]
    if (phase, state) == (WORKLOAD_DEPLOY, STARTED):
        found.append(_occasion(phase, "Reconcile", "is being reconciled", is_warning=False))
    if (phase, state) == (PRE_EVALUATIONS, FAILED):
        found.append(
            Occasion(_MISSPELT, f"{LONG_NAMES[phase]}.Errored", LONG_NAMES[phase], text, is_warning)
        )
    return found


def _occasion(phase: str, state: str, text: str, *, is_warning: bool) -> Occasion:
    heading = LONG_NAMES.get(phase, phase)
    title = f"{heading}.{state}" if state else heading
    return Occasion(f"{phase}{state}", title, heading, text, is_warning)
