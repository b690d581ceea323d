"""What events, spans and metrics say of the objects that they are about (keptn-spec 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from harbourmaster.lifecycle.model import (
    App,
    AppCreationRequest,
    AppVersion,
    Evaluation,
    Task,
    Workload,
    WorkloadVersion,
)

Finishable: TypeAlias = AppVersion | WorkloadVersion | Task | Evaluation
"""What runs and ends."""

PROMOTION: Final = "promotion"
"""Check type of promotion tasks."""


class Subject(Struct, frozen=True, gc=False):
    """``app`` is the name of the KeptnApp, ``fields`` are annotations of events."""

    app: str = ""
    version: str = ""
    fields: Mapping[str, str] = {}


def subject(obj: object) -> Subject:
    """What is said of an object of the model; nothing of any other."""
    match obj:
        case App(metadata=metadata, spec=spec):
            return Subject(
                metadata.name,
                spec.version,
                {
                    "appName": metadata.name,
                    "appVersion": spec.version,
                    "appRevision": str(spec.revision),
                },
            )
        case AppVersion(metadata=metadata, spec=spec):
            return Subject(
                spec.app_name,
                spec.version,
                {
                    "appName": spec.app_name,
                    "appVersion": spec.version,
                    "appVersionName": metadata.name,
                },
            )
        case AppCreationRequest(spec=request):
            return Subject(request.app_name, "", {"appName": request.app_name})
        case Workload(metadata=metadata, spec=spec):
            return Subject(spec.app, spec.version, _workload(spec.app, metadata.name, spec.version))
        case WorkloadVersion(metadata=metadata, spec=spec):
            fields = _workload(spec.app, spec.workload_name, spec.version)
            return Subject(spec.app, spec.version, {**fields, "workloadVersionName": metadata.name})
        case Task():
            return _task(obj)
        case Evaluation():
            return _evaluation(obj)
    return Subject()


def state_of(obj: Finishable) -> str:
    """Its state, whatever the kind calls it."""
    return obj.status.overall_status if isinstance(obj, Evaluation) else obj.status.status


def span_attributes(obj: Finishable) -> dict[str, str]:
    """What its span says; empty values are left out."""
    if isinstance(obj, AppVersion | WorkloadVersion):
        found = _of_version(obj)
    elif isinstance(obj, Task):
        found = _of_task(obj)
    else:
        found = _of_evaluation(obj)
    return {f"keptn.deployment.{key}": value for key, value in found.items() if value}


def _of_version(obj: AppVersion | WorkloadVersion) -> dict[str, str]:
    spec = obj.spec
    if isinstance(obj, AppVersion):
        found, level = {"app.name": obj.spec.app_name}, "app"
    else:
        found = {"app.name": obj.spec.app, "workload.name": obj.spec.workload_name}
        level = "workload"
    return {
        **found,
        f"{level}.version": spec.version,
        f"{level}.namespace": obj.metadata.namespace,
        f"{level}.status": obj.status.status,
        f"{level}.previousversion": spec.previous_version,
    }


def _of_task(obj: Task) -> dict[str, str]:
    context = obj.spec.context
    return {
        "app.name": context.app_name,
        "app.version": context.app_version,
        "workload.name": context.workload_name,
        "workload.version": context.workload_version,
        "task.name": obj.metadata.name,
        "task.type": obj.spec.check_type,
        "task.status": obj.status.status,
    }


def _of_evaluation(obj: Evaluation) -> dict[str, str]:
    spec = obj.spec
    return {
        "app.name": spec.app_name,
        "app.version": spec.app_version,
        "workload.name": spec.workload,
        "workload.version": spec.workload_version,
        "evaluation.name": obj.metadata.name,
        "evaluation.type": spec.check_type,
        "evaluation.status": obj.status.overall_status,
    }


def phase_of(child: Task | Evaluation) -> str:
    """The phase of its parent in which a task or an evaluation runs; empty for one of its own."""
    if isinstance(child, Task):
        context = child.spec.context
        level, what = context.object_type or _level(context.workload_name), "Tasks"
    else:
        level, what = _level(child.spec.workload), "Evaluations"
    check = child.spec.check_type.removesuffix("-eval")
    phases = {
        "pre": f"{level}PreDeploy{what}",
        "post": f"{level}PostDeploy{what}",
        PROMOTION: "PromotionTasks",
    }
    return phases.get(check, "")


def _level(workload: str) -> str:
    return "Workload" if workload else "App"


def _workload(app: str, name: str, version: str) -> dict[str, str]:
    return {"appName": app, "workloadName": name, "workloadVersion": version}


def _task(task: Task) -> Subject:
    context = task.spec.context
    return Subject(
        context.app_name,
        context.workload_version or context.app_version,
        {
            "appName": context.app_name,
            "appVersion": context.app_version,
            "workloadName": context.workload_name,
            "workloadVersion": context.workload_version,
            "taskDefinitionName": task.spec.task_definition,
            "taskName": task.metadata.name,
        },
    )


def _evaluation(evaluation: Evaluation) -> Subject:
    spec = evaluation.spec
    return Subject(
        spec.app_name,
        spec.workload_version or spec.app_version,
        {
            "appName": spec.app_name,
            "appVersion": spec.app_version,
            "workloadName": spec.workload,
            "workloadVersion": spec.workload_version,
            "evaluationDefinitionName": spec.evaluation_definition,
            "evaluationName": evaluation.metadata.name,
        },
    )
