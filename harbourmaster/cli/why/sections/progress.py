"""The progress of an app, a version, a task or an evaluation, and what it waits for.

That of an Application of placement is the progress of its checks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api import resources
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.why.check_facts import GateFactsReader
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.pod_causes import refusal_step
from harbourmaster.cli.why.sections.gate import check_lines
from harbourmaster.cli.why.subjects import event_lines, events_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.evaluation.metric_status import read_metric
from harbourmaster.lifecycle import apps, model, workloads
from harbourmaster.lifecycle.check_facts import (
    STALE_AFTER,
    CheckReport,
    check_reports,
    report_on_check,
)
from harbourmaster.lifecycle.gate_verdict import (
    BLOCKED,
    release_command,
    sentence,
    verdict_on_phase,
    verdict_on_stage,
)
from harbourmaster.lifecycle.model import DEPRECATED, FAILED
from harbourmaster.lifecycle.phases import PASSED, check_phases, phases_of, state_of
from harbourmaster.lifecycle.stages import is_staging
from harbourmaster.placement.model import Application

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.why.model import State, WhyContext
    from harbourmaster.cli.why.subjects import Event
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.model import Version

    Verdict = tuple[str, State, str, str]
    """A code, its urgency, a text, and a step or ""."""

_KINDS: Final[dict[str, Any]] = {
    resources.APPS.kind: model.App,
    resources.APP_VERSIONS.kind: model.AppVersion,
    resources.WORKLOADS.kind: model.Workload,
    resources.WORKLOAD_VERSIONS.kind: model.WorkloadVersion,
    resources.TASKS.kind: model.Task,
    resources.EVALUATIONS.kind: model.Evaluation,
    resources.EVALUATION_DEFINITIONS.kind: model.EvaluationDefinition,
    resources.APPLICATIONS.kind: Application,
}


class ProgressDetail(Struct, frozen=True):
    """The checks for programs."""

    checks: tuple[CheckReport, ...]


async def section(context: WhyContext) -> Section | None:
    """Explain the state of the subject; that of an app or a workload is its current version's."""
    subject, live, now = context.subject, context.live, context.now
    settings, _ = await live.assumed_settings(CONTROLLER, ControllerSettings)
    places = (live.namespace, *settings.lifecycle.definition_namespaces)
    reader = GateFactsReader(live, subject.namespace, places)
    own = msgspec.json.decode(subject.raw, type=_KINDS[subject.kind])
    obj = await _current_version(live, own)
    if obj is None and isinstance(own, Application):
        return None
    events = await events_of(live, subject.namespace, (obj or own).metadata.uid, of="lifecycle")
    is_version = isinstance(obj, (model.AppVersion, model.WorkloadVersion))

    def reports(facts: Facts) -> list[CheckReport]:
        if is_version:
            is_staged = isinstance(obj, model.WorkloadVersion) and is_staging(obj)
            phases = check_phases(obj) if is_staged else phases_of(obj)
            phases = tuple(phase for phase in phases if phase.checks)
            return check_reports(obj, facts, now, phases=phases)
        return [report_on_check(obj, facts, now)] if obj else []

    facts = await reader.facts_for(reports)
    checks = reports(facts)
    if is_version:
        verdict = _with_check(await _of_version(live, obj), checks, subject.namespace)
    elif obj:
        verdict = _of_check(obj, checks[0], facts, now)
    else:
        verdict = _without_version(own, events)
    code, state, text, step = verdict
    lines = [line for check in checks for line in check_lines(check, now)]
    lines += [Line(note, label="unknown", tone="dim") for note in reader.notes.values()]
    lines += event_lines(events) if state != "fine" else ()
    text = text if obj is None or obj is own else f"{obj.metadata.name}: {text}"
    return Section(
        name="progress",
        state=state,
        code=code,
        summary=text,
        step=step,
        lines=tuple(lines),
        detail=ProgressDetail(tuple(checks)),
    )


async def _current_version(live: Installation, obj: Any) -> Any:  # noqa: ANN401 - of _KINDS
    """Return the version of an app or a workload, None if there is none; else the object itself."""
    if isinstance(obj, model.App):
        name, resource = apps.version_of(obj), resources.APP_VERSIONS
    elif isinstance(obj, model.Workload):
        name, resource = workloads.version_of(obj), resources.WORKLOAD_VERSIONS
    elif isinstance(obj, Application):
        name, resource = obj.status.check, resources.APP_VERSIONS
    else:
        return obj
    if not name:
        return None
    decode = msgspec.json.Decoder(_KINDS[resource.kind]).decode
    return await live.read(resource, name, decode, obj.metadata.namespace)


def _without_version(obj: model.App | model.Workload, events: Sequence[Event]) -> Verdict:
    refusal = next((event.message for event in events if event.is_warning), "")
    if not refusal:
        text = f"its version {obj.spec.version} is not there yet"
        return "waits-for-version", "waits", text, ""
    step = refusal_step(refusal, obj.metadata.namespace)
    return "version-refused", "fault", f"its version is not created: {refusal}", step


async def _of_version(live: Installation, version: Version) -> Verdict:
    status, place = version.status, version.metadata.namespace
    if status.status in PASSED:
        return "succeeded", "fine", f"{status.status} at {status.end_time}", ""
    if status.status == DEPRECATED:
        return "deprecated", "note", "a newer version has replaced it", ""
    is_begun = bool(status.current_phase) or status.status == FAILED
    if isinstance(version, model.WorkloadVersion) and not is_begun:
        app = version.spec.app
        step = f"harbourmaster why keptnapp {place}/{app}"
        return "waits-for-app", "waits", f"waits for the checks of the app {app}", step
    phases = phases_of(version)
    phase = next((phase for phase in phases if state_of(status, phase) not in PASSED), phases[-1])
    if not phase.checks:
        return await _of_deployment(live, version)
    name = phase.checks.replace("_deployment_", "-deployment ").replace("_", " ")
    verdict = verdict_on_phase(name, phase, version)
    if verdict is None or verdict.code != "checks-failed":
        text = verdict.reason if verdict else f"waits for {name}"
        return "checks-pending", "waits", text, "wait for them; each says what it lacks"
    step = f"kubectl -n {place} describe keptntasks,keptnevaluations"
    if isinstance(version, model.AppVersion):
        step = f"raise spec.revision: kubectl -n {place} edit keptnapp {version.spec.app_name}"
        if version.is_of_application:
            rerun = release_command(f"{version.spec.app_name} -n {place}", "checks-failed", "rerun")
            step = f"correct its cause, and run {rerun}"
    elif phase in phases[:2]:
        owner = version.spec.resource_reference
        target = f"{owner.kind.lower()}/{owner.name} -n {place}"
        rerun = release_command(target, "checks-failed", "rerun")
        step = f"correct its cause, and run {rerun}"
    return "checks-failed", "fault", f"Blocked: {verdict.reason}", step


def _with_check(verdict: Verdict, checks: list[CheckReport], place: str) -> Verdict:
    """Return the verdict on a version whose checks are pending with what the first one lacks."""
    begun = [check for check in checks if check.is_open and (check.object or check.fault)]
    if verdict[0] != "checks-pending" or not begun:
        return verdict
    check = max(begun, key=lambda begun_check: bool(begun_check.fault))
    name = f"keptn{check.kind} {place}/{check.object}"
    step = f"harbourmaster why {name}" if check.object else _definitions(place)
    if not check.fault:
        return *verdict[:3], step
    return check.fault, "fault", f"{check.kind} {check.name}: {check.message}", step


def _definitions(place: str) -> str:
    kinds = "keptntaskdefinitions,keptnevaluationdefinitions"
    return f"create it, or name one that exists: kubectl -n {place} get {kinds}"


async def _of_deployment(live: Installation, version: Version) -> Verdict:
    """Return what the deployment of a version waits for."""
    place = version.metadata.namespace
    if isinstance(version, model.WorkloadVersion):
        if is_staging(version):
            verdict = verdict_on_stage(version)
            state: State = "fault" if verdict.code in BLOCKED else "waits"
            text = sentence(verdict.code, verdict.text)
            return verdict.code, state, text, verdict.advice or "wait for its stage"
        owner, has_failed = version.spec.resource_reference, version.status.status == FAILED
        text = f"of {owner.kind} {owner.name}"
        step = f"kubectl -n {place} describe {owner.kind.lower()} {owner.name}"
        if has_failed or version.status.deployment_status == FAILED:
            return "deployment-failed", "fault", f"the deployment {text} failed", step
        return "deployment-pending", "waits", f"waits for the deployment {text}", step
    if version.is_of_application:
        text = f"waits until it is ready on '{version.spec.metadata.get('cluster', '')}'"
        name = version.spec.app_name.removeprefix(model.APPLICATION_PREFIX)
        return "deployment-pending", "waits", text, f"harbourmaster why application {place}/{name}"
    states = {state.workload: state.status for state in version.status.workload_status}
    left, missing, first = [], "", ""
    for workload in version.spec.workloads:
        entry = f"{workload.name} {workload.version}"
        name = workloads.names_of(version.spec.app_name, workload.name, workload.version).version
        if states.get(workload) in PASSED:
            continue
        if await live.find(resources.WORKLOAD_VERSIONS, name, place) is None:
            left.append(f"{entry}, of which no pod was seen")
            missing = missing or entry
        else:
            left.append(f"{entry} {states.get(workload, '')}".rstrip())
            first = first or name
    step = f"harbourmaster why keptnworkloadversion {place}/{first}"
    if missing:
        names = f"keptn.sh/app, keptn.sh/workload and keptn.sh/version of {missing}"
        step = f"correct spec.workloads or {names}: kubectl -n {place} get keptnworkloadversions"
    shown = "; ".join(left)
    if version.status.workload_overall_status == FAILED:
        text = f"the deployment of its workloads failed: {shown}"
        return "deployment-failed", "fault", text, step
    return "deployment-pending", "waits", f"waits for its workloads: {shown}", step


def _of_check(
    obj: model.Task | model.Evaluation | model.EvaluationDefinition,
    check: CheckReport,
    facts: Facts,
    now: datetime,
) -> Verdict:
    own, place = obj.metadata, obj.metadata.namespace
    text = ": ".join(filter(None, (check.state, check.message)))
    describe = f"kubectl -n {place} describe keptn{check.kind} {own.name}"
    is_checked = not isinstance(obj, model.EvaluationDefinition)
    if is_checked and not check.is_open:
        if check.state != FAILED:
            return "succeeded", "fine", text, ""
        owner = own.controller
        above = owner and f"harbourmaster why {owner.kind.lower()} {place}/{owner.name}"
        return "checks-failed", "fault", text, above or describe
    if check.fault == "definition-missing":
        return "definition-missing", "fault", text, _definitions(place)
    fault, step = _metric_without_value(check, facts, place, now)
    if fault:
        text = f"{text}; {fault}" if is_checked and fault not in text else text
        return "metric-unavailable", "fault", text if is_checked else fault, step
    if not is_checked:
        return "succeeded", "fine", "each metric of its objectives has a value", ""
    if check.fault and isinstance(obj, model.Task):
        job = f"kubectl -n {place} describe job {obj.status.job_name}"
        return "task-stuck", "fault", text, refusal_step(text, place) or job
    return "checks-pending", "waits", text, describe


def _metric_without_value(
    check: CheckReport, facts: Facts, place: str, now: datetime
) -> tuple[str, str]:
    """Return the fault of the first metric that has no value that counts, and the next step."""
    definition = facts.definitions.get(check.name) if check.kind == "evaluation" else None
    for objective in definition.spec.objectives if definition else ():
        reference = objective.keptn_metric_ref
        metric = facts.metrics.get(reference)
        if metric is None and resources.KEPTN_METRICS.kind not in facts.unread:
            look = f"kubectl -n {reference.namespace or place} get keptnmetrics"
            return f"KeptnMetric {reference.name} not found", f"{look} lists those that exist"
        if metric is not None and (fault := read_metric(metric, STALE_AFTER, now).fault):
            return fault, f"harbourmaster why keptnmetric {metric.metadata.key}"
    return "", ""
