"""Why a pod waits at our gate or in its scheduler: which check, since when, and until when."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import PODS
from harbourmaster.api.times import parse_rfc3339
from harbourmaster.cli.gate.show import short_age
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.installation import NOT_INSTALLED
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.live.waits import live_waits, waiting_pod
from harbourmaster.cli.why.events import Event, event_lines, events_of
from harbourmaster.cli.why.gate_facts import GateFacts, owned, template_pod
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.ungated import why_unchecked, why_ungated
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.check_facts import Facts
from harbourmaster.lifecycle.gate_report import GateReport, gate_report
from harbourmaster.lifecycle.gate_verdict import BLOCKED, GateWaitRules
from harbourmaster.lifecycle.gate_waits import REASONS
from harbourmaster.lifecycle.gated_pods import PENDING_PODS, decode_pod, decode_whole

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.cli.why.model import State, WhyContext
    from harbourmaster.cli.why.ungated import Reason
    from harbourmaster.lifecycle.check_facts import CheckReport, ObjectiveReport

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
    """What programs read."""

    report: GateReport
    deadline_unknown: str = ""
    """Why the deadline is unknown; empty where it is known, be it never."""
    unread: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Definitions of checks that are to come."""
    events: tuple[Event, ...] = ()
    """Of ours about the pod, the newest first."""
    elsewhere: str = ""
    """The scheduler that the pod names, where by its keys it may wait there for its checks."""


async def section(context: WhyContext) -> Section | None:
    """Of a pod in the cluster, or of a workload there whose pods have a KeptnWorkloadVersion."""
    live, raw = context.live, context.subject.raw
    settings, unknown = await live.assumed_settings(CONTROLLER, ControllerSettings)
    lifecycle = settings.lifecycle
    scheduler = settings.scheduler.scheduler_name if unknown else settings.scheduler.of_pods
    from_tag = lifecycle.version_from_tag
    wanted = template_pod(context.subject, context.owners, version_from_tag=from_tag)
    is_made = not context.is_pod or (context.given is not None and wanted is not None)
    pod = wanted if is_made else decode_whole(raw, scheduler)
    if pod is None:
        return None
    reader = GateFacts(live, pod.namespace, (live.namespace, *lifecycle.definition_namespaces))
    try:
        # Of a pod that does not wait for us nothing more need be known.
        facts = await reader.of(pod) if pod.is_ours else Facts()
    except ApiError as error:
        summary = read_error(error, f"what {context.subject.shown} waits for")
        return Section(name="gate", state="unknown", code="unread", summary=summary)
    if pod.is_ours and not pod.has_waited:
        pick = partial(waiting_pod, scheduler)
        # Without permission to list pods, no cycle of waits is found.
        listed = live.list_all(PODS, pick, pod.namespace, field_selector=PENDING_PODS)
        others = await live.attempt(listed, [])
        waits = await live_waits(live, pod.namespace, [pod, *others], context.files)
        facts = waits.of(pod, facts)
    rules = GateWaitRules() if unknown or is_made else lifecycle.wait_rules
    if is_made and facts.version is not None:
        pod = owned(pod, facts.version)
    report = gate_report(pod, facts, rules, context.now)
    is_new = is_made and facts.version is None
    missing: list[str] = []
    if report.code == "not-gated" or is_new:
        reason = await why_ungated(context, wanted)
    else:
        reason = await why_unchecked(context, pod) if report.code == "released" else None
    if is_new and reason is None and pod.has_checks:
        return None
    if is_new and pod.has_checks:
        missing = await reader.missing(workload_of(pod.annotations, pod.labels))
    events: tuple[Event, ...] = ()
    if report.is_waiting:
        found = await events_of(live, pod.namespace, pod.uid, of="lifecycle")
        # Events that send users here say what the report says.
        events = tuple(each for each in found if each.reason not in REASONS)
    detail = GateDetail(
        report=report,
        deadline_unknown=unknown if report.is_waiting else "",
        unread=tuple(reader.notes.values()),
        missing=tuple(each for each in missing if each not in (context.given or ())),
        events=events,
        elsewhere=decode_pod(raw, scheduler).elsewhere,
    )
    return told(detail, reason, context.now, is_pod=not is_made)


def told(
    detail: GateDetail, reason: Reason | None, now: datetime, *, is_pod: bool = False
) -> Section:
    """The section; ``reason`` is known besides the report and comes before it."""
    if reason and reason[0] == "to-be-gated" and detail.report.code == "wait-blocked":
        reason = None
    if reason and reason[0] == "to-be-gated" and detail.missing:
        text = f"{reason[2]}; not found: {', '.join(detail.missing)}"
        reason = ("definition-missing", "fault", text)
    code, state, text = reason or _judged(detail.report, is_pod=is_pod)
    return Section(
        name="gate",
        state=state,
        summary=text,
        code=code,
        # The pods of a template have no names yet.
        step=detail.report.advice if is_pod and not reason else "",
        lines=tuple(_lines(detail, now)),
        detail=detail,
    )


def _judged(report: GateReport, *, is_pod: bool) -> Reason:
    """Of a pod, or of the pods that a template makes."""
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
    """What stands below the summary."""
    report = detail.report
    if report.is_waiting and report.workload:
        of_app = f" of the app {report.app}" if report.app else ""
        yield Line(f"{report.workload}@{report.version}{of_app}", label="workload")
    if report.is_waiting and report.since:
        # What a workload's template makes has no age.
        yield Line(f"{report.since}, {short_age(report.age)} ago", label="since")
        yield Line(_deadline(detail), label="deadline")
    if report.next_try:
        yield Line(_at(report.next_try, now), label="next try")
    if report.foreign_gates:
        names = ", ".join(report.foreign_gates)
        yield Line(f"{names}: set by others, who must remove them", label="other gates")
    for item in report.items:
        parts = (item.item, item.state, item.text)
        yield Line(": ".join(filter(None, parts)), label="object", tone=_TONES[item.state])
    for check in report.checks:
        yield from _check(check, now)
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


def _check(found: CheckReport, now: datetime) -> Iterator[Line]:
    whose = "app" if found.phase.startswith("App") else "workload"
    parts = [f"{found.kind} {found.name} of the {whose}: {found.state}"]
    if found.kind == "evaluation" and found.retries is not None:
        parts.append(f"try {found.tries} of {found.retries}")
    if found.since:
        ended = f" to {found.ended}" if found.ended else ""
        parts.append(f"{'' if found.ended else 'since '}{found.since}{ended}")
    if found.next_try and found.is_open:
        parts.append(f"next try {_at(found.next_try, now)}")
    yield Line(", ".join(parts), label="check", tone=_TONES.get(found.state, ""))
    shown = {objective.message for objective in found.objectives}
    if found.message and found.message not in shown:
        yield Line(found.message, depth=1)
    for each in found.objectives:
        yield from _objective(each)


def _objective(found: ObjectiveReport) -> Iterator[Line]:
    name = f"{found.name}: " if found.query not in {"", found.name} else ""
    yield Line(f"{name}{found.text}: {found.state}", depth=1, tone=_TONES.get(found.state, ""))
    if found.message and found.state != "Succeeded":
        yield Line(found.message, depth=2)
    if found.state == "Succeeded":
        return
    if found.fault and found.fault not in found.message:
        yield Line(f"now: {found.fault}", depth=2)
    elif found.current and found.current != found.value:
        fetched = f", fetched {found.updated}" if found.updated else ""
        yield Line(f"now: {found.current}{fetched}", depth=2)


def _at(time: str, now: datetime) -> str:
    seconds = int((parse_rfc3339(time) - now).total_seconds())
    return f"{time}, in {short_age(seconds)}" if seconds > 0 else f"{time}, due"
