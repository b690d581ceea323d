"""Describes the objects of events, spans and metrics (keptn-spec 5)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from msgspec import Struct

from harbourmaster.evaluation.model import Analysis
from harbourmaster.lifecycle.model import (
    APPLICATION_PREFIX,
    App,
    AppCreationRequest,
    AppVersion,
    Evaluation,
    Task,
    Version,
    Workload,
    WorkloadVersion,
)

Finishable: TypeAlias = Version | Task | Evaluation
"""An object that runs and ends."""

PROMOTION: Final = "promotion"
"""Check type of promotion tasks."""


class EventSubject(Struct, frozen=True, gc=False):
    """The subject: ``app`` is the name of the KeptnApp, ``fields`` are annotations of events."""

    app: str = ""
    version: str = ""
    fields: Mapping[str, str] = {}


def subject(obj: object) -> EventSubject:
    """Return the subject of an event about an object; empty for an object of another model."""
    match obj:
        case App(metadata=metadata, spec=spec):
            fields = {"appName": metadata.name, "appVersion": spec.version}
            revision = {"appRevision": str(spec.revision)}
            return EventSubject(metadata.name, spec.version, fields | revision)
        case AppVersion(metadata=metadata, spec=spec):
            fields = {"appName": spec.app_name, "appVersion": spec.version}
            version_name = {"appVersionName": metadata.name}
            return EventSubject(spec.app_name, spec.version, fields | version_name)
        case AppCreationRequest(spec=request):
            return EventSubject(request.app_name, "", {"appName": request.app_name})
        case Workload(metadata=metadata, spec=spec):
            return EventSubject(
                spec.app, spec.version, _workload(spec.app, metadata.name, spec.version)
            )
        case WorkloadVersion(metadata=metadata, spec=spec):
            fields = _workload(spec.app, spec.workload_name, spec.version)
            return EventSubject(
                spec.app, spec.version, {**fields, "workloadVersionName": metadata.name}
            )
        case Task(metadata=metadata, spec=spec):
            names = {"taskDefinitionName": spec.task_definition, "taskName": metadata.name}
            return _of_child(obj, names)
        case Evaluation(metadata=metadata, spec=spec):
            names = {
                "evaluationDefinitionName": spec.evaluation_definition,
                "evaluationName": metadata.name,
            }
            return _of_child(obj, names)
        case Analysis(metadata=metadata, spec=spec):
            names = {
                "workloadName": spec.args.get("workload", ""),
                "workloadVersion": spec.args.get("version", ""),
                "analysisDefinitionName": spec.analysis_definition.name,
                "analysisName": metadata.name,
            }
            return EventSubject(fields=names)
    return EventSubject()


def owners_of(child: Task | Evaluation) -> tuple[str, str, str, str]:
    """Return names and versions of the app and workload of a check, with "" for none."""
    if isinstance(child, Task):
        context = child.spec.context
        return (
            context.app_name,
            context.app_version,
            context.workload_name,
            context.workload_version,
        )
    spec = child.spec
    return spec.app_name, spec.app_version, spec.workload, spec.workload_version


def state_of(obj: Finishable) -> str:
    """Return the state, which has another name in each kind."""
    return obj.status.overall_status if isinstance(obj, Evaluation) else obj.status.status


def span_attributes(obj: Finishable) -> dict[str, str]:
    """Return the attributes of the span, without empty values."""
    if isinstance(obj, AppVersion):
        attributes = {"app.name": obj.spec.app_name, **_of_version(obj, "app")}
    elif isinstance(obj, WorkloadVersion):
        names = {"app.name": obj.spec.app, "workload.name": obj.spec.workload_name}
        attributes = {**names, **_of_version(obj, "workload")}
    else:
        kind = "task" if isinstance(obj, Task) else "evaluation"
        keys = ("app.name", "app.version", "workload.name", "workload.version")
        attributes = {
            **dict(zip(keys, owners_of(obj), strict=True)),
            f"{kind}.name": obj.metadata.name,
            f"{kind}.type": obj.spec.check_type,
            f"{kind}.status": state_of(obj),
        }
    return {f"keptn.deployment.{key}": value for key, value in attributes.items() if value}


def _of_version(version: Version, level: str) -> dict[str, str]:
    return {
        f"{level}.version": version.spec.version,
        f"{level}.namespace": version.metadata.namespace,
        f"{level}.status": version.status.status,
        f"{level}.previousversion": version.spec.previous_version,
    }


def phase_of(child: Task | Evaluation) -> str:
    """Return the parent's phase in which a task or evaluation runs, or "" without a parent."""
    if isinstance(child, Task):
        context = child.spec.context
        level, what = context.object_type, "Tasks"
        level = level or _level(context.app_name, context.workload_name)
    else:
        level, what = _level(child.spec.app_name, child.spec.workload), "Evaluations"
    check = child.spec.check_type.removesuffix("-eval")
    if check.startswith("stage-"):
        return "WorkloadDeploy"
    phases = {
        "pre": f"{level}PreDeploy{what}",
        "post": f"{level}PostDeploy{what}",
        PROMOTION: "PromotionTasks",
    }
    return phases.get(check, "")


def _level(app: str, workload: str) -> str:
    level = "Application" if app.startswith(APPLICATION_PREFIX) else "App"
    return "Workload" if workload else level


def _workload(app: str, name: str, version: str) -> dict[str, str]:
    return {"appName": app, "workloadName": name, "workloadVersion": version}


def _of_child(child: Task | Evaluation, names: dict[str, str]) -> EventSubject:
    app, app_version, workload, workload_version = owners_of(child)
    owners = {
        "appName": app,
        "appVersion": app_version,
        "workloadName": workload,
        "workloadVersion": workload_version,
    }
    return EventSubject(app, workload_version or app_version, {**owners, **names})
