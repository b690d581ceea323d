"""Determines the state of the checks before a deployment from all that is known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.metadata import choose_definition
from harbourmaster.api.resources import (
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    KEPTN_METRICS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOADS,
    Resource,
)
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.evaluation.metric_status import newest_value, read_metric, value_time
from harbourmaster.evaluation.model import Metric
from harbourmaster.evaluation.objectives import (
    INCONCLUSIVE,
    Progress,
    Result,
    by_result_key,
    max_tries,
)
from harbourmaster.gates.waits import WaitItem
from harbourmaster.lifecycle.evaluations import RETRIES, interval_of, objectives_of, progress_of
from harbourmaster.lifecycle.model import (
    COMPLETED,
    PENDING,
    SUCCEEDED,
    AppVersion,
    Evaluation,
    EvaluationDefinition,
    ItemStatus,
    MetricReference,
    Task,
    Workload,
    WorkloadVersion,
)
from harbourmaster.lifecycle.phases import ANALYSIS, TASK, Phase, phases_of, stage_phases
from harbourmaster.lifecycle.stages import is_staging
from harbourmaster.lifecycle.wait_items import ItemReport
from harbourmaster.lifecycle.waiting import app_version_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.lifecycle.model import Tries, Version

_BEFORE: Final = 2
STALE_AFTER: Final = 2.0
"""Default of the setting ``staleAfterIntervals``."""
Kind: TypeAlias = Literal["task", "evaluation", "analysis"]
Find: TypeAlias = Callable[[Resource, str], Any]
"""Returns the object of a kind by its key ``namespace/name``, or None."""
K = TypeVar("K")
T = TypeVar("T")


class Facts(Struct, frozen=True, kw_only=True):
    """The facts about the checks of a pod. Kinds that could not be read are in ``unread``."""

    workload: Workload | None = None
    version: WorkloadVersion | None = None
    """The KeptnWorkloadVersion that the pod names."""
    app: AppVersion | None = None
    """The KeptnAppVersion that ``waiting.app_version_of`` chooses."""
    tasks: Mapping[str, Task] = {}
    evaluations: Mapping[str, Evaluation] = {}
    """Tasks and evaluations by name, in the pod's namespace."""
    task_definitions: Collection[str] = ()
    definitions: Mapping[str, EvaluationDefinition] = {}
    metrics: Mapping[MetricReference, Metric] = {}
    """Metrics by the references of objectives."""
    measured: Mapping[str, datetime] = {}
    """Times of the last measurements of evaluations, by name; without one it is computed."""
    items: Mapping[WaitItem, ItemReport] = {}
    """Reports on the items for which the pod waits."""
    is_superseded: bool = False
    """Whether its StatefulSet would create the pod from another template if it were deleted."""
    cycle: str = ""
    """A cycle of waits that the pod is part of; empty for none."""
    unread: Collection[str] = ()
    """Kinds that could not be read, such as KeptnAppVersion."""


class Lookup(Mapping[K, T], Generic[K, T]):
    """A mapping whose values are found when they are read; it has no list of keys."""

    def __init__(self, find: Callable[[K], T | None]) -> None:
        self._find = find

    def __getitem__(self, key: K) -> T:
        value = self._find(key)
        if value is None:
            raise KeyError(key)
        return value

    def __iter__(self) -> Iterator[K]:
        return iter(())

    def __len__(self) -> int:
        return 0


def facts_in(namespace: str, places: Collection[str], find: Find) -> Facts:
    """Return the facts about all checks in a namespace, each found when it is read.

    Definitions and metrics are searched in the namespaces ``places``, in their order.
    """

    def child(kind: Resource) -> Lookup[str, Any]:
        return Lookup(lambda name: find(kind, f"{namespace}/{name}"))

    def definition(kind: Resource) -> Lookup[str, Any]:
        return Lookup(
            lambda name: choose_definition(find(kind, f"{place}/{name}") for place in places)
        )

    shared_metrics = definition(KEPTN_METRICS)

    def metric(reference: MetricReference) -> Metric | None:
        if not reference.namespace:
            return shared_metrics.get(reference.name)
        result: Metric | None = find(KEPTN_METRICS, f"{reference.namespace}/{reference.name}")
        return result

    return Facts(
        tasks=child(TASKS),
        evaluations=child(EVALUATIONS),
        task_definitions=definition(TASK_DEFINITIONS),
        definitions=definition(EVALUATION_DEFINITIONS),
        metrics=Lookup(metric),
    )


def with_version(
    facts: Facts, version: WorkloadVersion | None, apps: Iterable[AppVersion], find: Find
) -> Facts:
    """Return the facts with those about one version; ``apps`` are the versions of its app."""
    if version is None:
        return facts
    workload = find(WORKLOADS, f"{version.metadata.namespace}/{version.spec.workload_name}")
    return replace(facts, workload=workload, version=version, app=app_version_of(version, apps))


class ObjectiveReport(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """One objective of an evaluation: its query, its result and its target."""

    name: str
    """The objective's name in the evaluation's status, usually the metric's name."""
    state: str
    """The state of the objective; Pending if nothing was measured yet."""
    value: str = ""
    """The value of the last try; empty if none counts."""
    threshold: str = ""
    """The condition on the value, such as ``<=0.05``; empty if the definition is missing."""
    query: str = ""
    provider: str = ""
    message: str = ""
    current: str = ""
    """The current value of the metric, which the next try uses; empty if there is none."""
    updated: str = ""
    """The time of the metric's last fetch."""
    fault: str = ""
    """The reason why the metric has no value that counts now."""

    @property
    def text(self) -> str:
        """``query → value (threshold)``, or as much of it as is known."""
        shown = f"{self.query or self.name} → {self.value or 'no value'}"
        return f"{shown} ({self.threshold})" if self.threshold else shown


class CheckReport(Struct, frozen=True, gc=False, rename="camel", kw_only=True):
    """One check before a pod's release. Times are RFC 3339; empty for none."""

    kind: Kind
    phase: str
    """The phase as in ``currentPhase``: AppPreDeployTasks, WorkloadPreDeployEvaluations and so on.
    """
    name: str
    """The name of the definition."""
    state: str
    """Pending, Progressing, Succeeded, Failed or Warning."""
    object: str = ""
    """The name of the KeptnTask or KeptnEvaluation; empty if there is none yet."""
    since: str = ""
    """The time at which the check began."""
    ended: str = ""
    value: str = ""
    """The last value of the first unmet objective, or of the first one if all are met."""
    threshold: str = ""
    """The condition on the value."""
    message: str = ""
    """The check's own message about its state."""
    fault: str = ""
    """The reason why an open check cannot end: definition-missing, metric-unavailable or task-
    stuck."""
    next_try: str = ""
    """The time of the next try; empty if unknown, or if only a change or the Job decides."""
    tries: int = 0
    retries: int | None = None
    """The number of tries, or None if it is not known."""
    objectives: tuple[ObjectiveReport, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether the check may still pass by itself."""
        return self.state not in {"Succeeded", "Warning", "Failed"}


class _Look(NamedTuple):
    """Everything besides the version that decides about a check."""

    facts: Facts
    now: datetime
    stale_after: float


def check_reports(
    version: Version,
    facts: Facts,
    now: datetime,
    *,
    stale_after: float = STALE_AFTER,
    phases: Iterable[Phase] | None = None,
) -> list[CheckReport]:
    """Return the checks of an app or workload in their order, by default those before a release.

    ``stale_after`` is the setting ``staleAfterIntervals``; ``phases`` are phases with checks.
    """
    look = _Look(facts, now, stale_after)
    return [
        _check(phase, definition, version, look)
        for phase in (_phases_of_release(version) if phases is None else phases)
        for definition in definitions_of(phase, version)
    ]


def report_on_check(
    check: Task | Evaluation | EvaluationDefinition, facts: Facts, now: datetime
) -> CheckReport:
    """Return the report on one check by its own status, or on a definition as if it began now."""
    look, name = _Look(facts, now, STALE_AFTER), check.metadata.name
    if isinstance(check, EvaluationDefinition):
        return _evaluation(Phase("", ""), name, ItemStatus(), look)
    started, ended = check.status.start_time, check.status.end_time
    item = ItemStatus(name=name, start_time=started, end_time=ended)
    if isinstance(check, Task):
        level = Phase("Workload" if check.spec.context.workload_name else "App", "")
        item = replace(item, status=check.status.status)
        return _task(level, check.spec.task_definition, item, facts)
    level = Phase("Workload" if check.spec.workload else "App", "")
    item = replace(item, status=check.status.overall_status)
    return _evaluation(level, check.spec.evaluation_definition, item, look)


def phases_before(version: Version) -> tuple[Phase, ...]:
    """Return the phases before the version's deployment: its tasks and its evaluations."""
    return phases_of(version)[:_BEFORE]


def _phases_of_release(version: Version) -> tuple[Phase, ...]:
    """Return the phases before the deployment, and those of the current stage."""
    before = phases_before(version)
    if not isinstance(version, WorkloadVersion) or version.status.stage is None:
        return before
    return (*before, *(stage_phases(version.status.stage.number) if is_staging(version) else ()))


def expected_checks(definitions: Iterable[str], kind: Kind, phase: str) -> list[CheckReport]:
    """Return the checks that a pod names and that do not exist yet."""
    return [
        CheckReport(kind=kind, phase=phase, name=definition, state=PENDING)
        for definition in definitions
    ]


def definitions_of(phase: Phase, version: Version) -> Iterable[str]:
    """Return the listed definitions, and those that were listed and have run."""
    listed = getattr(version.spec, phase.checks)
    items: tuple[ItemStatus, ...] = getattr(version.status, phase.items)
    return dict.fromkeys((*listed, *(item.definition_name for item in items)))


def _check(phase: Phase, definition: str, version: Version, look: _Look) -> CheckReport:
    items: tuple[ItemStatus, ...] = getattr(version.status, phase.items)
    # The first of two counts, as for the controller.
    item = next(
        (candidate for candidate in items if candidate.definition_name == definition), ItemStatus()
    )
    if phase.kind == TASK:
        return _task(phase, definition, item, look.facts)
    if phase.kind == ANALYSIS:
        return _begin_report("analysis", phase, definition, item)
    return _evaluation(phase, definition, item, look)


def _task(phase: Phase, definition: str, item: ItemStatus, facts: Facts) -> CheckReport:
    task = facts.tasks.get(item.name)
    message, fault = "", ""
    retries = None
    if task is not None:
        retries = task.spec.retries
        message = task.status.message or task.status.reason
        if not message and task.status.job_name and item.status not in COMPLETED:
            message = f"its Job {task.status.job_name} runs"
        fault = "task-stuck" if task.status.reason and item.status not in COMPLETED else ""
    elif not (item.name or item.status in COMPLETED or definition in facts.task_definitions):
        message = _missing("KeptnTaskDefinition", definition, facts)
        fault = "definition-missing" if message else ""
    begun = _begin_report("task", phase, definition, item)
    return replace(begun, message=message, fault=fault, retries=retries)


def _begin_report(kind: Kind, phase: Phase, definition: str, item: ItemStatus) -> CheckReport:
    return CheckReport(
        kind=kind,
        phase=phase.name,
        name=definition,
        state=item.status or PENDING,
        object=item.name,
        since=item.start_time,
        ended=item.end_time,
    )


def _evaluation(phase: Phase, definition: str, item: ItemStatus, look: _Look) -> CheckReport:
    facts = look.facts
    evaluation = facts.evaluations.get(item.name)
    defined = facts.definitions.get(definition)
    progress = progress_of(evaluation.status) if evaluation is not None else Progress()
    records = evaluation.status.measurements if evaluation is not None else {}
    objectives = tuple(_objectives(progress, defined, records, look))
    shown = next((objective for objective in objectives if objective.state != SUCCEEDED), None)
    message = "" if shown is None else shown.message
    fault = ""
    if not progress.is_over and item.status not in COMPLETED:
        fault = "metric-unavailable" if message.startswith(INCONCLUSIVE) else ""
        if not defined and (missing := _missing("KeptnEvaluationDefinition", definition, facts)):
            message, fault = missing, "definition-missing"
    retries, next_try = None, ""
    if evaluation is not None:
        retries = max_tries(RETRIES if evaluation.spec.retries is None else evaluation.spec.retries)
        due = _due(evaluation, progress, look)
        if due and progress.tries < retries:
            # Without its definition nothing is tried.
            next_try = due if defined is not None or progress.tries else ""
        elif due:
            message = f"its last try is done, and it fails at {due}" + (message and f": {message}")
    first = shown or next(iter(objectives), None)
    return replace(
        _begin_report("evaluation", phase, definition, item),
        value=first.value if first is not None else "",
        threshold=first.threshold if first is not None else "",
        message=message,
        fault=fault,
        next_try=next_try,
        tries=progress.tries,
        retries=retries,
        objectives=objectives,
    )


def _due(evaluation: Evaluation, progress: Progress, look: _Look) -> str:
    if progress.is_over or evaluation.metadata.deletion_timestamp:
        return ""
    if not progress.tries:
        return format_rfc3339(look.now)
    seconds, _ = interval_of(evaluation)
    last = look.facts.measured.get(evaluation.metadata.name)
    if last is None:
        try:
            begun = parse_rfc3339(evaluation.status.start_time)
            # The first try is its beginning, and then one comes in each interval.
            last = begun + timedelta(seconds=seconds) * (progress.tries - 1)
        except (ValueError, OverflowError):
            return ""
    # An overdue try is due now.
    return format_rfc3339(max(last + timedelta(seconds=seconds), look.now))


def _objectives(
    progress: Progress,
    defined: EvaluationDefinition | None,
    records: Mapping[str, Tries],
    look: _Look,
) -> Iterator[ObjectiveReport]:
    facts = look.facts
    by_key = by_result_key(objectives_of(defined) if defined is not None else ())
    # After the end, the definition may have changed.
    for key in progress.results if progress.is_over or defined is None else by_key:
        result = progress.results.get(key, Result("", PENDING))
        objective = by_key.get(key)
        metric = None
        if objective is not None:
            reference = MetricReference(name=objective.metric, namespace=objective.namespace)
            metric = facts.metrics.get(reference)
        target = objective.target if objective is not None else ""
        recorded = records.get(key) if progress.is_over else None
        report = ObjectiveReport(
            name=key,
            state=result.status,
            value=result.value,
            threshold=recorded.target if recorded is not None else target,
            message=result.message,
        )
        if metric is not None:
            yield replace(
                report,
                query=metric.spec.query,
                provider=metric.spec.provider.name,
                current=newest_value(metric).text,
                updated=value_time(metric.status),
                fault=read_metric(metric, look.stale_after, look.now).fault,
            )
        elif objective is not None and "KeptnMetric" not in facts.unread:
            yield replace(report, fault=f"KeptnMetric {objective.metric} not found")
        else:
            yield report


def _missing(kind: str, name: str, facts: Facts) -> str:
    return "" if kind in facts.unread else f"{kind} {name} not found; waiting for it to be created"
