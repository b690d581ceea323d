"""Reasons, types and texts of events, in two vocabularies (keptn-spec 3.0, 5.1 to 5.3).

Keptn uses ``Finished`` and ``Failed``, its documentation ``Succeeded`` and ``Errored``. Every
reason is a literal in these tables. A CloudEvent's type is the phase's long name, a dot and the
state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Mapping

Vocabulary: TypeAlias = Literal["keptn", "documented", "both"]

STARTED: Final = "Started"
FINISHED: Final = "Finished"
FAILED: Final = "Failed"
PROMOTED: Final = "Promoted"

APP_COMPLETED: Final = "AppCompleted"
APPLICATION_COMPLETED: Final = "ApplicationCompleted"
WORKLOAD_COMPLETED: Final = "WorkloadCompleted"
COMPLETED: Final = "Completed"
DEPRECATED: Final = "Deprecated"
DEADLINE: Final = "PreCheckDeadline"
EXCEEDED: Final = "Exceeded"

REASONS: Final[Mapping[str, tuple[str, ...]]] = {
    "AppPreDeployTasksStarted": ("AppPreDeployTasksStarted",),
    "AppPreDeployTasksFinished": ("AppPreDeployTasksSucceeded",),
    "AppPreDeployTasksFailed": ("AppPreDeployTasksErrored",),
    "AppPreDeployEvaluationsStarted": ("AppPreDeployEvaluationsStarted",),
    "AppPreDeployEvaluationsFinished": ("AppPreDeployEvaluationsSucceeded",),
    "AppPreDeployEvaluationsFailed": ("AppPreDeployEvaluationsErrored",),
    "AppPreDeployEvaluationsAppVersionNotFound": ("AppPreDeployEvaluationsAppVersionNotFound",),
    "AppDeployStarted": ("AppDeployStarted",),
    "AppDeployFinished": ("AppDeploySucceeded",),
    "AppDeployFailed": ("AppDeployErrored",),
    "AppPostDeployTasksStarted": ("AppPostDeployTasksStarted",),
    "AppPostDeployTasksFinished": ("AppPostDeployTasksSucceeded",),
    "AppPostDeployTasksFailed": ("AppPostDeployTasksErrored",),
    "AppPostDeployEvaluationsStarted": ("AppPostDeployEvaluationsStarted",),
    "AppPostDeployEvaluationsFinished": ("AppPostDeployEvaluationsSucceeded",),
    "AppPostDeployEvaluationsFailed": ("AppPostDeployEvaluationsErrored",),
    "PromotionTasksStarted": ("PromotionTasksStarted",),
    "PromotionTasksFinished": ("PromotionTasksSucceeded",),
    "PromotionTasksFailed": ("PromotionTasksErrored",),
    "AppCompletedFinished": ("Completed",),
    "AppCompletedFailed": ("AppCompletedErrored",),
    "ApplicationPreDeployTasksStarted": ("ApplicationPreDeployTasksStarted",),
    "ApplicationPreDeployTasksFinished": ("ApplicationPreDeployTasksSucceeded",),
    "ApplicationPreDeployTasksFailed": ("ApplicationPreDeployTasksErrored",),
    "ApplicationPreDeployEvaluationsStarted": ("ApplicationPreDeployEvaluationsStarted",),
    "ApplicationPreDeployEvaluationsFinished": ("ApplicationPreDeployEvaluationsSucceeded",),
    "ApplicationPreDeployEvaluationsFailed": ("ApplicationPreDeployEvaluationsErrored",),
    "ApplicationDeployStarted": ("ApplicationDeployStarted",),
    "ApplicationDeployFinished": ("ApplicationDeploySucceeded",),
    "ApplicationPostDeployTasksStarted": ("ApplicationPostDeployTasksStarted",),
    "ApplicationPostDeployTasksFinished": ("ApplicationPostDeployTasksSucceeded",),
    "ApplicationPostDeployTasksFailed": ("ApplicationPostDeployTasksErrored",),
    "ApplicationPostDeployEvaluationsStarted": ("ApplicationPostDeployEvaluationsStarted",),
    "ApplicationPostDeployEvaluationsFinished": ("ApplicationPostDeployEvaluationsSucceeded",),
    "ApplicationPostDeployEvaluationsFailed": ("ApplicationPostDeployEvaluationsErrored",),
    "ApplicationCompletedFinished": ("Completed",),
    "ApplicationCompletedFailed": ("ApplicationCompletedErrored",),
    "WorkloadPreDeployTasksStarted": ("WorkloadPreDeployTasksStarted",),
    "WorkloadPreDeployTasksFinished": ("WorkloadPreDeployTasksSucceeded",),
    "WorkloadPreDeployTasksFailed": ("WorkloadPreDeployTasksErrored",),
    "WorkloadPreDeployEvaluationsStarted": ("WorkloadPreDeployEvaluationsStarted",),
    "WorkloadPreDeployEvaluationsFinished": ("WorkloadPreDeployEvaluationsSucceeded",),
    "WorkloadPreDeployEvaluationsFailed": (
        "WorkloadPreDeployEvaluationsErrored",
        # The documentation has the short name in one place.
        "WorkloadPreDeployErrored",
    ),
    "WorkloadDeployStarted": ("WorkloadDeployStarted", "WorkloadDeployReconcile"),
    "WorkloadDeployFinished": ("WorkloadDeploySucceeded",),
    "WorkloadDeployFailed": ("WorkloadDeployErrored",),
    "WorkloadDeployReconcileError": ("WorkloadDeployReconcileErrored",),
    "WorkloadStageStarted": ("WorkloadStageStarted",),
    "WorkloadStageFinished": ("WorkloadStageSucceeded",),
    "WorkloadStageHeld": ("WorkloadStageErrored",),
    "WorkloadStagePromoted": ("WorkloadStagePromoted",),
    "WorkloadStageRefused": ("WorkloadStageRefused",),
    "WorkloadStagePodsUnavailable": ("WorkloadStagePodsUnavailable",),
    "WorkloadStagePodStuck": ("WorkloadStagePodStuck",),
    "WorkloadPostDeployTasksStarted": ("WorkloadPostDeployTasksStarted",),
    "WorkloadPostDeployTasksFinished": ("WorkloadPostDeployTasksSucceeded",),
    "WorkloadPostDeployTasksFailed": ("WorkloadPostDeployTasksErrored",),
    "WorkloadPostDeployEvaluationsStarted": ("WorkloadPostDeployEvaluationsStarted",),
    "WorkloadPostDeployEvaluationsFinished": ("WorkloadPostDeployEvaluationsSucceeded",),
    "WorkloadPostDeployEvaluationsFailed": ("WorkloadPostDeployEvaluationsErrored",),
    "WorkloadCompletedFinished": ("Completed",),
    "WorkloadCompletedFailed": ("WorkloadCompletedErrored",),
    "ReconcileWorkloadNotFound": ("ReconcileWorkloadNotFound",),
    "ReconcileTaskStatusChanged": ("ReconcileTask",),
    "ReconcileTaskFailed": ("ReconcileTaskErrored",),
    "ReconcileEvaluationStatusChanged": ("ReconcileEvaluation",),
    "ReconcileEvaluationFailed": ("ReconcileEvaluationErrored",),
    "ReconcileAnalysisStatusChanged": ("ReconcileAnalysis",),
    "ReconcileEvaluationReconcileTimeout": ("ReconcileEvaluationReconcileTimeout",),
    "ReconcileEvaluationReconcileError": ("ReconcileEvaluationReconcileErrored",),
    "ReconcileConfigFailed": ("ReconcileConfigErrored",),
    "CreateTaskNotFound": ("CreateTaskNotFound",),
    "CreateTaskFailed": ("CreateTaskErrored",),
    "CreateTaskDefinitionIgnored": ("CreateTaskDefinitionIgnored",),
    "TaskPodWaiting": ("TaskPodWaiting",),
    "TaskPodFailed": ("TaskPodFailed",),
    "CreateEvaluationNotFound": ("CreateEvaluationNotFound",),
    "ReferenceRefused": ("ReferenceRefused",),
    "CreateAnalysisNotFound": ("CreateAnalysisNotFound",),
    "CreateAnalysisFailed": ("CreateAnalysisErrored",),
    "CreateAnalysisDefinitionIgnored": ("CreateAnalysisDefinitionIgnored",),
    "CreateEvaluationFailed": ("CreateEvaluationErrored",),
    "CreateEvaluationDefinitionIgnored": ("CreateEvaluationDefinitionIgnored",),
    "CreateAppFailed": ("CreateAppErrored",),
    "DeleteAppFinished": ("DeleteAppSucceeded",),
    "CreateAppCreationRequestFailed": ("CreateAppCreationRequestErrored",),
    "AppContextLate": ("AppContextLate",),
    "CreateAppVersionFailed": ("CreateAppVersionErrored",),
    "CreateAppVersionChecksIgnored": ("CreateAppVersionChecksIgnored",),
    "DeprecateAppVersionFailed": ("DeprecateAppVersionErrored",),
    "CreateWorkloadFailed": ("CreateWorkloadErrored",),
    "CreateWorkloadContainerMissing": ("CreateWorkloadContainerMissing",),
    "ReadWorkloadFailed": ("ReadWorkloadErrored",),
    "UpdateWorkloadFailed": ("UpdateWorkloadErrored",),
    "UpdateWorkloadOwnersShared": ("UpdateWorkloadOwnersShared",),
    "UpdateWorkloadOwnerUnknown": ("UpdateWorkloadOwnerUnknown",),
    "CreateWorkloadVersionFailed": ("CreateWorkloadVersionErrored",),
    "EvaluationTargetInvalid": ("EvaluationTargetInvalid",),
    "RepeatChecksStarted": ("RepeatChecksStarted",),
    "GateExpired": ("GateExpired",),
    "GateKeyUnknown": ("GateKeyUnknown",),
    "GateListEmpty": ("GateListEmpty",),
    "GateListInvalid": ("GateListInvalid",),
    "GateOwnerUnsupported": ("GateOwnerUnsupported",),
    "GateOrphaned": ("GateOrphaned",),
    "GateReleased": ("GateReleased",),
    "GateTimeoutInvalid": ("GateTimeoutInvalid",),
    "GateWaitInvalid": ("GateWaitInvalid",),
    "PreCheckDeadlineExceeded": ("PreCheckDeadlineExceeded",),
}
"""Reasons in the documentation by Keptn's reason, which is a phase and a state in one word."""
ONLY_DOCUMENTED: Final = {
    "CreateApp": "has been created",
    "CreateAppVersion": "has been created",
    "CreateWorkload": "has been created",
    "CreateWorkloadVersion": "has been created",
    "CreateAnalysis": "has been created",
    "CreateTask": "has been created",
    "CreateEvaluation": "has been created",
    "Deprecated": "is superseded",
    "WorkloadDeployReconcile": "is being reconciled",
}
"""Texts of the reasons for which Keptn has no event."""
_TIMED_OUT: Final = ("WorkloadDeployReconcileErrored",)
"""The documented reason of a time-out, which Keptn calls WorkloadDeployFinished with type Warning.
"""

APP_PHASES: Final = {
    "AppPreDeployTasks": "App Pre-Deployment Tasks",
    "AppPreDeployEvaluations": "App Pre-Deployment Evaluations",
    "AppDeploy": "App Deployment",
    "AppPostDeployTasks": "App Post-Deployment Tasks",
    "AppPostDeployEvaluations": "App Post-Deployment Evaluations",
    "PromotionTasks": "Promotion Tasks",
}
"""Long names of an app's phases, in their order."""
APPLICATION_PHASES: Final = {
    "ApplicationPreDeployTasks": "Application Pre-Deployment Tasks",
    "ApplicationPreDeployEvaluations": "Application Pre-Deployment Evaluations",
    "ApplicationDeploy": "Application Deployment",
    "ApplicationPostDeployTasks": "Application Post-Deployment Tasks",
    "ApplicationPostDeployEvaluations": "Application Post-Deployment Evaluations",
}
"""Long names of the phases of an Application, which placement deploys, in their order."""
WORKLOAD_PHASES: Final = {
    "WorkloadPreDeployTasks": "Workload Pre-Deployment Tasks",
    "WorkloadPreDeployEvaluations": "Workload Pre-Deployment Evaluations",
    "WorkloadDeploy": "Workload Deployment",
    "WorkloadPostDeployTasks": "Workload Post-Deployment Tasks",
    "WorkloadPostDeployEvaluations": "Workload Post-Deployment Evaluations",
}
"""Long names of a workload's phases, in their order."""
LONG_NAMES: Final = {
    **APP_PHASES,
    **APPLICATION_PHASES,
    **WORKLOAD_PHASES,
    APP_COMPLETED: "App Completed",
    APPLICATION_COMPLETED: "Application Completed",
    WORKLOAD_COMPLETED: "Workload Completed",
    DEPRECATED: "Deprecated",
    "WorkloadStage": "Workload Stage",
    "ReconcileAnalysis": "Reconcile Analysis",
    "CreateAnalysis": "Create Analysis",
    "ReconcileEvaluation": "Reconcile Evaluation",
    "ReconcileTask": "Reconcile Task",
    "ReconcileWorkload": "Reconcile Workloads",
    "ReconcileConfig": "Reconcile Config",
    "EvaluationTarget": "Evaluation Target",
    "RepeatChecks": "Repeat Checks",
    "Gate": "Scheduling Gate",
    DEADLINE: "Pre-Deployment Check Deadline",
    "Reference": "Reference",
    "CreateEvaluation": "Create Evaluation",
    "CreateTask": "Create Task",
    "TaskPod": "Task Pod",
    "CreateApp": "Create App",
    "DeleteApp": "Delete App",
    "CreateAppCreationRequest": "Create AppCreationRequest",
    "CreateWorkload": "Create Workload",
    "ReadWorkload": "Read Workload",
    "UpdateWorkload": "Update Workload",
    "CreateWorkloadVersion": "Create WorkloadVersion",
    "AppContext": "App Context",
    "CreateAppVersion": "Create AppVersion",
    "DeprecateAppVersion": "Deprecate AppVersion",
}
"""Long names of all phases that have events."""
_TITLES: Final = {
    COMPLETED: COMPLETED,
    "WorkloadPreDeployErrored": "Workload Pre-Deployment Evaluations.Errored",
}
"""Types of CloudEvents whose reason does not begin with the phase."""
_TEXTS: Final = {
    STARTED: "has started",
    FINISHED: "has finished",
    FAILED: "has failed",
    "AppVersionNotFound": "has no KeptnAppVersion yet",
}
_NORMAL: Final = frozenset(
    (
        *(STARTED, FINISHED, "StatusChanged", "OwnersShared", PROMOTED),
        *("AppVersionNotFound", "ReconcileWorkloadNotFound"),
    )
)
"""States and one reason of type Normal: an app may come after its workloads, and before them."""


class LifecycleEvent(Struct, frozen=True, gc=False):
    """An event to emit; ``title`` is the type of its CloudEvent."""

    reason: str
    title: str
    text: str
    is_warning: bool = False


def events_of(
    phase: str, state: str, text: str, vocabulary: Vocabulary, *, warning: bool | None = None
) -> tuple[LifecycleEvent, ...]:
    """Return the events that report a state of a phase, each reason once.

    ``text`` and ``warning`` default to those of the state. Raises KeyError for a state that is not
    in REASONS.
    """
    text = text or _TEXTS.get(state, "")
    reason = f"{phase}{state}"
    is_warning = _NORMAL.isdisjoint((state, reason)) if warning is None else warning
    documented = _TIMED_OUT if state == FINISHED and is_warning else REASONS[reason]
    reasons = {
        "keptn": (reason,),
        "documented": documented,
        "both": dict.fromkeys((reason, *documented)),
    }
    return tuple(
        _event(reason, phase, text, is_warning=is_warning) for reason in reasons[vocabulary]
    )


def documented_event(reason: str, vocabulary: Vocabulary) -> tuple[LifecycleEvent, ...]:
    """Return the event about a creation or a deprecation, for which Keptn has none."""
    if vocabulary == "keptn" or reason not in ONLY_DOCUMENTED:
        return ()
    return (_event(reason, reason, "", is_warning=False),)


def message(event: LifecycleEvent, namespace: str, name: str, version: str = "") -> str:
    """Return the text of an event, without an unknown version."""
    known = f", Version: {version}" if version else ""
    heading = event.title.partition(".")[0]
    return f"{heading}: {event.text} / Namespace: {namespace}, Name: {name}{known}"


def _event(reason: str, phase: str, text: str, *, is_warning: bool) -> LifecycleEvent:
    heading, state = LONG_NAMES[phase], reason.removeprefix(phase)
    title = _TITLES.get(reason) or (f"{heading}.{state}" if state else heading)
    return LifecycleEvent(reason, title, ONLY_DOCUMENTED.get(reason, text), is_warning)
