"""Why a pod waits at our gate or in its scheduler: which check, since when, and until when."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.resources import (
    APP_VERSIONS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    PODS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.api.times import parse_rfc3339, utc_now
from harbourmaster.cli.gate import short_age
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.cli.live.installation import NOT_INSTALLED
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import read_error
from harbourmaster.cli.live.waits import live_waits, pod_of_workload, waiting_pod
from harbourmaster.cli.why.missing_gate import (
    definitions_of,
    template_pod,
    why_unchecked,
    why_ungated,
)
from harbourmaster.cli.why.model import Line, Section
from harbourmaster.cli.why.subjects import Event, event_lines, events_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.evaluation.model import Metric
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError
from harbourmaster.lifecycle.check_facts import Facts, check_reports, facts_in, with_version
from harbourmaster.lifecycle.evaluations import written_at
from harbourmaster.lifecycle.gate_report import GateReport, gate_report
from harbourmaster.lifecycle.gate_verdict import BLOCKED, GateWaitRules
from harbourmaster.lifecycle.gate_waits import REASONS
from harbourmaster.lifecycle.gated_pods import PENDING_PODS, decode_pod, decode_whole
from harbourmaster.lifecycle.model import (
    AppVersion,
    Evaluation,
    EvaluationDefinition,
    Task,
    TaskDefinition,
    Workload,
    WorkloadVersion,
)
from harbourmaster.lifecycle.workloads import names_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.terminal import Tone
    from harbourmaster.cli.why.missing_gate import Reason
    from harbourmaster.cli.why.model import State, WhyContext
    from harbourmaster.gates.workload import WorkloadMetadata
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


MOST: Final = 100
"""Maximum number of objects of one kind that are read."""
_TYPES: Final[dict[Resource, Any]] = {
    WORKLOADS: Workload,
    TASKS: Task,
    TASK_DEFINITIONS: TaskDefinition,
    EVALUATIONS: Evaluation,
    EVALUATION_DEFINITIONS: EvaluationDefinition,
    KEPTN_METRICS: Metric,
}


class GateFactsReader:
    """Reads facts with the caller's rights, each object by its name.

    What is needed is found out by what a report asks for. ``notes`` has a line for each kind that
    it cannot read.
    """

    def __init__(self, live: Installation, namespace: str, places: Sequence[str]) -> None:
        """``places`` are namespaces in which definitions are looked up, in their order."""
        self._live = live
        self._namespace = namespace
        self._places = tuple(dict.fromkeys((namespace, *places)))
        self._objects: dict[tuple[Resource, str], Any] = {}
        self._wanted: dict[Resource, dict[str, None]] = {}
        self._measured: dict[str, datetime] = {}
        self.notes: dict[str, str] = {}

    async def of(self, pod: Pod) -> Facts:
        """Return the facts about a pod's checks. Raises ApiError if its version cannot be read."""
        described = workload_of(pod.annotations, pod.labels)
        if described is None or not pod.has_checks:
            return Facts()
        # Without a version nothing can be said; to say that there is none would be wrong.
        name, decode = names_of_pod(described).version, Decoder(WorkloadVersion).decode
        version = await self._live.read(WORKLOAD_VERSIONS, name, decode, self._namespace)
        apps = await self._apps() if version is not None else []

        def report(facts: Facts) -> None:
            for checked in (facts.app, facts.version):
                if checked is not None:
                    check_reports(checked, facts, utc_now())

        return await self._facts_for(report, version, apps)

    async def missing_definitions(self, described: WorkloadMetadata | None) -> list[str]:
        """Return those of ``definitions_of`` that are known not to exist."""

        def missing(facts: Facts) -> list[str]:
            known: dict[str, Collection[str]] = {
                TASK_DEFINITIONS.kind: facts.task_definitions,
                EVALUATION_DEFINITIONS.kind: facts.definitions,
            }
            pairs = [definition.split(" ", 1) for definition in definitions_of(described)]
            return [f"{kind} {name}" for kind, name in pairs if name not in known[kind]]

        unknown = missing(await self._facts_for(missing))
        return [name for name in unknown if not name.startswith(tuple(self.notes))]

    async def _apps(self) -> list[AppVersion]:
        note = partial(self.notes.setdefault, APP_VERSIONS.kind)
        decode = Decoder(AppVersion).decode
        try:
            return await self._live.items(APP_VERSIONS, decode, self._namespace, skipped=note)
        except ApiError as error:
            self._note(APP_VERSIONS, error)
            return []

    async def _facts_for(
        self,
        use: Callable[[Facts], object],
        version: WorkloadVersion | None = None,
        apps: Sequence[AppVersion] = (),
    ) -> Facts:
        """Return facts with all that ``use`` looks at; it is called again after each read."""
        while True:
            facts = facts_in(self._namespace, self._places, self._find)
            facts = with_version(facts, version, apps, self._find)
            facts = msgspec.structs.replace(
                facts, measured=self._measured, unread=frozenset(self.notes)
            )
            use(facts)
            if not self._wanted:
                return facts
            wanted, self._wanted = self._wanted, {}
            await asyncio.gather(*(self._read(kind, *keys) for kind, keys in wanted.items()))

    def _find(self, resource: Resource, key: str) -> Any:  # noqa: ANN401 - an object of that kind
        is_named = not key.endswith("/")
        if is_named and (resource, key) not in self._objects:
            self._wanted.setdefault(resource, {})[key] = None
        return self._objects.get((resource, key))

    async def _read(self, resource: Resource, *keys: str) -> None:
        """Read objects; a note says if there are too many, so that none is called missing."""
        names = list(dict.fromkeys(key.partition("/")[2] for key in keys))
        if len(names) > MOST:
            text = f"{resource.kind}: only {MOST} of {len(names)} were looked at"
            self.notes.setdefault(resource.kind, text)
        self._objects |= dict.fromkeys((resource, key) for key in keys)
        looked = [key for key in keys if key.partition("/")[2] in names[:MOST]]
        await asyncio.gather(*(self._read_object(resource, key) for key in looked))

    async def _read_object(self, resource: Resource, key: str) -> None:
        namespace, _, name = key.partition("/")
        try:
            raw = await self._live.find(resource, name, namespace)
            if raw is not None:
                self._objects[resource, key] = msgspec.json.decode(raw, type=_TYPES[resource])
                if resource == EVALUATIONS and (time := written_at(raw)) is not None:
                    self._measured[name] = time
        except (ApiError, ValueError) as error:
            self._note(resource, error)

    def _note(self, resource: Resource, error: Exception) -> None:
        what = resource.kind
        text = read_error(error, what) if isinstance(error, ApiError) else f"{what}: {error}"
        self.notes.setdefault(what, text)


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
        others = [] if pod.has_waited else await live.attempt(read(), [])
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
    if report.is_waiting:
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
    if reason is None and report.is_waiting and (unled := await context.live.why_unled()):
        return "not-led", "fault", f"{unled}; the pod {report.sentence}"
    if report.code == "waits-for-version":
        return await _why_no_version(context, pod)
    return reason


async def _why_no_version(context: WhyContext, pod: Pod) -> Reason | None:
    """Return why the controller cannot create the version of a pod, as by a quota on objects."""
    live, described = context.live, workload_of(pod.annotations, pod.labels)
    name = names_of_pod(described).workload if described is not None else ""
    raw = await live.attempt(live.find(WORKLOADS, name, pod.namespace), None) if name else None
    if raw is None:
        return None
    uid = metadata_in(raw).uid
    for event in await events_of(live, pod.namespace, uid, of="lifecycle"):
        if event.is_warning and event.reason.startswith("CreateWorkloadVersion"):
            return "version-refused", "fault", f"its version is not created: {event.message}"
    return None


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
        step=detail.report.advice if detail.report.since and not reason else "",
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
        yield from _check_lines(check, now)
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


def _check_lines(check: CheckReport, now: datetime) -> Iterator[Line]:
    whose = "app" if check.phase.startswith("App") else "workload"
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
