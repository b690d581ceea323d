"""Why a pod waits at our gate or in its scheduler: which check, since when, and until when."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.resources import PODS
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.cli.batches import short_age
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.installation import NOT_INSTALLED
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.live.waits import live_waits, pod_of_workload, waiting_pod
from harbourmaster.cli.why.check_facts import GateFactsReader
from harbourmaster.cli.why.missing_gate import template_pod, why_unchecked, why_ungated
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.pod_causes import refusal_step
from harbourmaster.cli.why.subjects import Event, event_lines, events_of
from harbourmaster.cli.why.workloads import version_refusal
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.gates.stages import STAGED_LABEL
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.check_facts import Facts
from harbourmaster.lifecycle.gate_report import GateReport, gate_report
from harbourmaster.lifecycle.gate_verdict import BLOCKED, GateWaitRules
from harbourmaster.lifecycle.gate_waits import REASONS
from harbourmaster.lifecycle.gated_pods import PENDING_PODS, decode_pod, decode_whole
from harbourmaster.lifecycle.wait_cycles import waits_for_pods

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.cli.why.model import State, WhyContext
    from harbourmaster.cli.why.pod_causes import Reason
    from harbourmaster.lifecycle.check_facts import CheckReport, ObjectiveReport
    from harbourmaster.lifecycle.gated_pods import Pod

_TONES: Final[dict[str, Tone]] = {
    "Succeeded": "good",
    "Warning": "good",
    "Failed": "bad",
    "Met": "good",
    "Blocked": "bad",
    "Pending": "waiting",
    "Progressing": "waiting",
}


class GateDetail(Struct, frozen=True, rename="camel", kw_only=True):
    """The details of a gate for programs."""

    report: GateReport
    deadline_unknown: str = ""
    """Why the deadline is unknown; empty where it is known, be it never."""
    unread: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Definitions of checks that are to come."""
    events: tuple[Event, ...] = ()
    """Our events about the pod, the newest first."""
    elsewhere: str = ""
    """The scheduler that the pod names, where by its keys it may wait there for its checks."""


async def section(context: WhyContext) -> Section | None:
    """Explain what a pod, or the pods of a workload, wait for; None if gates do not concern it."""
    live, raw = context.live, context.subject.raw
    settings, unknown = await live.assumed_settings(CONTROLLER, ControllerSettings)
    lifecycle = settings.lifecycle
    scheduler = settings.scheduler.scheduler_name if unknown else settings.scheduler.of_pods
    from_tag = lifecycle.version_from_tag
    wanted = template_pod(context.subject, context.owners, version_from_tag=from_tag)
    is_made = not context.is_pod or (context.created_with is not None and wanted is not None)
    pod = wanted if is_made else decode_whole(raw, scheduler)
    if pod is None:
        return None
    if not context.is_pod and context.created_with is None:
        pick = partial(pod_of_workload, scheduler, (context.subject.kind, context.subject.name))
        reading = live.list_all(PODS, pick, pod.namespace, field_selector=PENDING_PODS)
        held = await live.attempt(reading, [])
        is_made = not held
        pod = min(held, key=lambda held_pod: held_pod.creation_timestamp, default=pod)
    reader = GateFactsReader(
        live, pod.namespace, (live.namespace, *lifecycle.definition_namespaces)
    )
    try:
        # Of a pod that does not wait for us nothing more need be known.
        facts = await reader.of(pod) if pod.is_ours else Facts()
    except ApiError as error:
        summary = read_error(error, f"what {context.subject.reference} waits for")
        return Section(name="gate", state="unknown", code="unread", summary=summary)
    if pod.is_ours:
        # Without permission to list pods, no cycle of waits is found.
        pick = partial(waiting_pod, scheduler)
        read = partial(live.list_all, PODS, pick, pod.namespace, field_selector=PENDING_PODS)
        may_turn = waits_for_pods(pod) and not pod.has_waited
        others = filter(waits_for_pods, await live.attempt(read(), []) if may_turn else ())
        waits = await live_waits(live, pod.namespace, [pod, *others], context.files)
        facts = waits.of(pod, facts)
    rules = GateWaitRules() if unknown or is_made else lifecycle.wait_rules
    if is_made and facts.version is not None:
        # Its pods would be of the newest owner of their version.
        newest = facts.version.spec.resource_reference
        owner = OwnerReference(kind=newest.kind, name=newest.name, uid=newest.uid)
        pod = msgspec.structs.replace(pod, owner_references=(owner,))
    report = gate_report(pod, facts, rules, context.now)
    is_new = is_made and facts.version is None
    missing: list[str] = []
    if report.code == "not-gated" or is_new:
        reason = await why_ungated(context, wanted)
    else:
        reason = await _why_waiting(context, pod, report)
    if is_new and reason is None and pod.has_checks:
        return None
    if is_new and pod.has_checks:
        missing = await reader.missing_definitions(workload_of(pod.annotations, pod.labels))
    events: tuple[Event, ...] = ()
    if report.is_waiting or STAGED_LABEL in pod.labels:
        written = await events_of(live, pod.namespace, pod.uid, of="lifecycle")
        # Events that send users here say what the report says.
        events = tuple(event for event in written if event.reason not in REASONS)
    detail = GateDetail(
        report=report,
        deadline_unknown=unknown if report.is_waiting else "",
        unread=tuple(reader.notes.values()),
        missing=tuple(name for name in missing if name not in (context.created_with or ())),
        events=events,
        elsewhere=decode_pod(raw, scheduler).elsewhere,
    )
    return gate_section(detail, reason, context.now, is_pod=context.is_pod and not is_made)


async def _why_waiting(context: WhyContext, pod: Pod, report: GateReport) -> Reason | None:
    """Return what is known besides the report on a pod that is or was held."""
    reason = await why_unchecked(context, pod) if report.code == "released" else None
    if report.code == "waits-for-version" and (refusal := await version_refusal(context.live, pod)):
        return "version-refused", "fault", refusal
    return reason


def gate_section(
    detail: GateDetail, reason: Reason | None, now: datetime, *, is_pod: bool = False
) -> Section:
    """The section; ``reason`` is known besides the report and comes before it."""
    if reason and reason[0] == "to-be-gated" and detail.report.code == "wait-blocked":
        reason = None
    if reason and reason[0] == "to-be-gated" and detail.missing:
        text = f"{reason[2]}; not found: {', '.join(detail.missing)}"
        reason = ("definition-missing", "fault", text)
    code, state, text = reason or _state_of(detail.report, is_pod=is_pod)
    return Section(
        name="gate",
        state=state,
        summary=text,
        code=code,
        # The pods of a template do not exist yet.
        step=detail.report.advice
        if detail.report.since and not reason
        else refusal_step(text, detail.report.namespace),
        lines=tuple(_lines(detail, now)),
        detail=detail,
    )


def _state_of(report: GateReport, *, is_pod: bool) -> Reason:
    state: State = "fine"
    if report.code in BLOCKED:
        state = "fault"
    elif report.code == "ending":
        state = "note"
    elif report.is_waiting or report.code == "foreign-gates-only":
        state = "waits"
    text = report.sentence
    if not is_pod:
        is_due = report.code == "released"
        told = f" wait for {report.text}" if text.startswith("waits for ") else f": {text}"
        passed = "all that they wait for is there" if report.items else "their checks passed"
        told = f" can be released: {passed}" if is_due else told
        return report.code, "fine" if is_due else state, f"its pods{told}"
    if report.is_waiting:
        place = "at our gate" if report.place == "gate" else "in its scheduler"
        text = f"{place} for {short_age(report.age)}, {text}"
    return report.code, state, text


def _lines(detail: GateDetail, now: datetime) -> Iterator[Line]:
    report = detail.report
    if report.is_waiting and report.workload:
        of_app = f" of the app {report.app}" if report.app else ""
        yield Line(f"{report.workload}@{report.version}{of_app}", label="workload")
    if report.is_waiting and report.since:
        # What a workload's template makes has no age.
        yield Line(f"{report.since}, {short_age(report.age)} ago", label="since")
        yield Line(_deadline(detail), label="deadline")
    if report.next_try:
        yield Line(_time_left(report.next_try, now), label="next try")
    if report.foreign_gates:
        names = ", ".join(report.foreign_gates)
        yield Line(f"{names}: set by others, who must remove them", label="other gates")
    for item in report.items:
        parts = (item.item, item.state, item.text)
        yield Line(": ".join(filter(None, parts)), label="object", tone=_TONES[item.state])
    for check in report.checks:
        yield from check_lines(check, now)
    yield from event_lines(detail.events)
    if detail.elsewhere:
        text = (
            f"it names the scheduler {detail.elsewhere}; for that one to ask us about its pods, "
            "set the controller's scheduler.enabled and scheduler.schedulerName"
        )
        yield Line(text, label="note")
    for note in detail.unread:
        yield Line(note, label="unknown", tone="dim")


def _deadline(detail: GateDetail) -> str:
    report, unknown = detail.report, detail.deadline_unknown
    if unknown and not report.deadline:
        # The section on policies says what is not installed.
        is_said = unknown.startswith(NOT_INSTALLED)
        return f"unknown: {'the settings could not be read' if is_said else unknown}"
    if not report.deadline:
        return "none (lifecycle.maxGateAgeSeconds is 0)"
    passed = "has passed" if report.is_overdue else "then"
    ends = {"Release": "released without its checks", "Fail": "Blocked"}
    what = ends.get(report.on_expiry, "reported, and stays")
    by = "" if report.items else f" (onExpiry {report.on_expiry})"
    return f"{report.deadline}, {passed}: it is {what}{by}"


def check_lines(check: CheckReport, now: datetime) -> Iterator[Line]:
    """Return the lines on a check and its objectives."""
    levels = ("Application", "App")
    whose = next(filter(check.phase.startswith, levels), "workload").lower()
    parts = [f"{check.kind} {check.name} of the {whose}: {check.state}"]
    if check.kind == "evaluation" and check.retries is not None:
        parts.append(f"try {check.tries} of {check.retries}")
    if check.since:
        ended = f" to {check.ended}" if check.ended else ""
        parts.append(f"{'' if check.ended else 'since '}{check.since}{ended}")
    if check.next_try and check.is_open:
        parts.append(f"next try {_time_left(check.next_try, now)}")
    yield Line(", ".join(parts), label="check", tone=_TONES.get(check.state, ""))
    shown = {objective.message for objective in check.objectives}
    if check.message and check.message not in shown:
        yield Line(check.message, depth=1)
    for objective in check.objectives:
        yield from _objective_lines(objective)


def _objective_lines(objective: ObjectiveReport) -> Iterator[Line]:
    name = f"{objective.name}: " if objective.query not in {"", objective.name} else ""
    yield Line(
        f"{name}{objective.text}: {objective.state}", depth=1, tone=_TONES.get(objective.state, "")
    )
    if objective.message and objective.state != "Succeeded":
        yield Line(objective.message, depth=2)
    if objective.state == "Succeeded":
        return
    if objective.fault and objective.fault not in objective.message:
        yield Line(f"now: {objective.fault}", depth=2)
    elif objective.current and objective.current != objective.value:
        fetched = f", fetched {objective.updated}" if objective.updated else ""
        yield Line(f"now: {objective.current}{fetched}", depth=2)


def _time_left(time: str, now: datetime) -> str:
    seconds = int((parse_rfc3339(time) - now).total_seconds())
    return f"{time}, in {short_age(seconds)}" if seconds > 0 else f"{time}, due"
