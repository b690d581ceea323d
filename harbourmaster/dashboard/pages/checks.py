"""Builds the pages of checks: metrics, evaluations, analyses, tasks and their definitions.

Every list has rows of one form: of objects, of the objectives of one, and of what uses it.
"""

from __future__ import annotations

from functools import cache, partial
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.api.metadata import choose_definition
from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages.applications import link_of
from harbourmaster.dashboard.pages.states import (
    ShownState,
    StateCount,
    parts_by_urgency,
    seconds_between,
    show_state,
)
from harbourmaster.dashboard.plots import Plot, plot
from harbourmaster.dashboard.query import Listing, object_path, select_page
from harbourmaster.dashboard.sources import lookup, values
from harbourmaster.evaluation.analysis import decode_raw
from harbourmaster.evaluation.criteria import decode_target
from harbourmaster.evaluation.metric_status import GRACE, newest_value, read_metric, value_time
from harbourmaster.evaluation.objectives import by_result_key, judge
from harbourmaster.lifecycle import model
from harbourmaster.lifecycle.analyses import state_of_analysis
from harbourmaster.lifecycle.evaluations import objectives_of
from harbourmaster.lifecycle.phases import check_phases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.evaluation.objectives import Objective

PATH: Final = "/checks"
METRICS: Final = resources.KEPTN_METRICS
EVALUATIONS: Final = resources.EVALUATIONS
DEFINITIONS: Final = {
    EVALUATIONS: resources.EVALUATION_DEFINITIONS,
    resources.ANALYSES: resources.ANALYSIS_DEFINITIONS,
    resources.TASKS: resources.TASK_DEFINITIONS,
}
"""The kinds of definitions by the kind of what runs."""
RUNS: Final = {METRICS: EVALUATIONS} | {kind: run for run, kind in DEFINITIONS.items()}
"""The kinds of what runs by the kind of what it uses."""
VIEWS: Final = {
    "metrics": (METRICS,),
    **{kind.plural.removeprefix("keptn"): (kind,) for kind in DEFINITIONS},
    "definitions": tuple(DEFINITIONS.values()),
}
"""The kinds of each list; the first list is the default."""
RELEASES: Final = (resources.APP_VERSIONS, resources.WORKLOAD_VERSIONS)
MOST: Final = 50
"""Maximum rows of a list on the page of an object, and plots."""
_LONGEST: Final = 1000


class CheckRow(Struct, frozen=True, gc=False):
    """An object, an objective, or a version; without a path if it has no page."""

    name: str
    state: ShownState
    path: str = ""
    namespace: str = ""
    value: str = ""
    target: str = ""
    text: str = ""
    """The error or the message, else what the object is about."""
    time: str = ""
    release: CheckRow | None = None
    """The version for which it ran."""


class ChecksPage(Struct, frozen=True):
    """The page of all objects of one view."""

    view: str
    views: tuple[str, ...]
    listing: Listing[CheckRow]
    parts: tuple[StateCount, ...]


class CheckPage(Struct, frozen=True):
    """The page of one object."""

    kind: str
    view: str
    row: CheckRow
    facts: tuple[tuple[str, str], ...]
    plots: tuple[Plot, ...]
    lists: tuple[tuple[str, tuple[CheckRow, ...]], ...]
    """Titles and rows, one more than MOST if there are more."""


def checks(
    sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> ChecksPage:
    """Build the page of one view, the most urgent objects first, then the newest."""
    view = query.view if query.view in VIEWS else next(iter(VIEWS))
    look = _Look(sources, visible, now)
    seen = [(look.state(kind, obj), kind, obj) for kind in VIEWS[view] for obj in look.seen(kind)]
    listing = select_page(
        seen,
        query,
        namespace=lambda item: str(item[2].metadata.namespace),
        texts=lambda item: (item[2].metadata.key,),
        # Sorting is stable, so the newest stay the first ones.
        key=lambda item: show_state(item[0]).urgency,
        row=lambda item: look.row(item[1], item[2]),
        holds=lambda item: query.state in {"", item[0]},
    )
    return ChecksPage(
        view, tuple(VIEWS), listing, tuple(parts_by_urgency(item[0] for item in seen))
    )


def check(
    kind: Resource, sources: PageSources, visible: Visibility, query: PageQuery, now: datetime
) -> CheckPage | None:
    """Build the page of one object; None without it."""
    look = _Look(sources, visible, now)
    obj = look.find(kind, query.namespace, query.name)
    if obj is None:
        return None
    facts = (*_facts(obj.spec), ("Job", _field(obj, "status.job_name")))
    lists = [(title, tuple(islice(rows, MOST + 1))) for title, rows in look.lists(kind, obj)]
    return CheckPage(
        kind=kind.kind,
        view=next(view for view, kinds in VIEWS.items() if kind in kinds),
        row=look.row(kind, obj),
        facts=tuple(fact for fact in facts if fact[1]),
        plots=tuple(islice(filter(None, look.plots(kind, obj)), MOST)),
        lists=tuple(titled for titled in lists if titled[1]),
    )


class _Look:
    """Shows the objects that a user may see, and finds what leads from one to the other."""

    def __init__(self, sources: PageSources, visible: Visibility, now: datetime) -> None:
        self._sources = sources
        self._visible = visible
        self._read = partial(read_metric, intervals=sources.rules.stale_after_intervals, now=now)
        self._now = now
        self._uses = cache(self._find_uses)

    def seen(self, kind: Resource) -> list[Any]:
        """Return all objects of a kind, the newest first."""
        scope, objects = self._visible.of(kind), values(self._sources.of(kind))
        seen = [obj for obj in objects if scope.sees(obj.metadata.namespace)]
        return sorted(seen, key=attrgetter("metadata.creation_timestamp"), reverse=True)

    def find(self, kind: Resource, namespace: str, name: str) -> Any:  # noqa: ANN401 - of that kind
        """Return an object, or None."""
        source = self._sources.of(kind) if self._visible.sees(kind, namespace) else None
        return lookup(source, f"{namespace}/{name}")

    def _resolve(self, kind: Resource, namespace: str, name: str) -> Any:  # noqa: ANN401 - as above
        """Return the definition or metric that a name means in a namespace; None if not seen."""
        places = dict.fromkeys((namespace, *self._sources.definition_namespaces))
        source = self._sources.of(kind)
        # One that the user cannot see still hides those of its name.
        meant = choose_definition(lookup(source, f"{place}/{name}") for place in places)
        is_seen = meant is not None and self._visible.sees(kind, meant.metadata.namespace)
        return meant if is_seen else None

    def _metric(self, namespace: str, objective: Objective) -> Any:  # noqa: ANN401 - as above
        find = self.find if objective.namespace else self._resolve
        return find(METRICS, objective.namespace or namespace, objective.metric)

    def _objectives_of(self, run: Any) -> dict[str, Objective]:  # noqa: ANN401 - as above
        """Return the objectives of an evaluation by the keys of results."""
        definition = self._definition(EVALUATIONS, run)
        return by_result_key(objectives_of(definition)) if definition is not None else {}

    def _definition(self, kind: Resource, run: Any) -> Any:  # noqa: ANN401 - as above
        return self._resolve(DEFINITIONS[kind], *_definition_of(run))

    def _find_uses(self, kind: str, namespace: str, name: str) -> set[tuple[Resource, str]]:
        """Return kind and key of the definition of a check, and of the metrics that it reads."""
        definitions = next(of for run, of in DEFINITIONS.items() if run.kind == kind)
        definition = self._resolve(definitions, namespace, name)
        if definition is None:
            return set()
        is_read = definitions is DEFINITIONS[EVALUATIONS]
        objectives = objectives_of(definition) if is_read else ()
        metrics = (self._metric(namespace, objective) for objective in objectives)
        used = {(METRICS, metric.metadata.key) for metric in metrics if metric is not None}
        return {(definitions, definition.metadata.key), *used}

    def state(self, kind: Resource, obj: Any) -> str:  # noqa: ANN401 - as above
        """Return the state by which a list can be filtered; of a definition its kind."""
        if kind is METRICS:
            return self._state_of_metric(obj)[0]
        if kind is resources.ANALYSES:
            return state_of_analysis(obj)
        if kind in RUNS:
            return f"For {RUNS[kind].plural.removeprefix('keptn')}"
        return str(_field(obj, "status.overall_status") or obj.status.status)

    def _state_of_metric(self, metric: Metric) -> tuple[str, str]:
        """Return the state of a metric, and what is wrong with it."""
        error = metric.status.err_msg
        if fault := self._read(metric).fault:
            return "Unavailable", fault
        age = seconds_between(moment(value_time(metric.status)), self._now)
        if error and age > metric.spec.interval + GRACE:
            return "Failing", f"the last query failed: {error}"
        # Keptn keeps an error beside the value that came after it.
        return "Current", f"an earlier query failed: {error}" if error else ""

    def row(self, kind: Resource, obj: Any) -> CheckRow:  # noqa: ANN401 - as above
        """Return the row of an object; its value is that of the first objective."""
        metadata, status, value, target = obj.metadata, _field(obj, "status"), "", ""
        time = _field(status, "end_time") or metadata.creation_timestamp
        objectives = self._objectives(kind, obj)
        text = ", ".join(f"{objective.name} {objective.target}" for objective in objectives)
        if kind is METRICS:
            value, time = newest_value(obj).text, value_time(status)
            text = self._state_of_metric(obj)[1] or obj.spec.query
        elif kind in DEFINITIONS and objectives:
            value, target = objectives[0].value, objectives[0].target
            text = ": ".join(filter(None, (objectives[0].name, objectives[0].text)))
        elif kind is resources.TASKS:
            text = ": ".join(filter(None, (status.reason, status.message)))
        elif kind is resources.ANALYSES:
            text = "; ".join(stored.err_msg for stored in status.stored_values.values())
        owner = metadata.controller
        kinds = [of for of in RELEASES if owner is not None and of.kind == owner.kind]
        version = next((self.find(of, metadata.namespace, owner.name) for of in kinds), None)
        return CheckRow(
            name=metadata.name,
            state=show_state(self.state(kind, obj)),
            path=_path(kind, metadata),
            namespace=metadata.namespace,
            value=value,
            target=target,
            text=text,
            time=time,
            release=_version_row(version) if version is not None else None,
        )

    def lists(self, kind: Resource, obj: Any) -> Iterator[tuple[str, Iterable[CheckRow]]]:  # noqa: ANN401 - as above
        """Yield the titles and rows of what belongs to an object."""
        yield "Objectives", self._objectives(kind, obj)
        if kind in DEFINITIONS:
            definition = self._definition(kind, obj)
            if definition is not None:
                yield "Definition", [self.row(DEFINITIONS[kind], definition)]
            return
        if kind is METRICS:
            yield "Definitions", self._definitions(obj)
        used = (kind, obj.metadata.key)
        releases = self._releases(used)
        yield "Releases that use it", sorted(releases, key=lambda row: row.state.urgency)
        yield "Last runs", (self.row(RUNS[kind], run) for run in self._runs(used))

    def _runs(self, used: tuple[Resource, str]) -> Iterator[Any]:
        kind = RUNS[used[0]]
        for run in self.seen(kind):
            if used in self._uses(kind.kind, *_definition_of(run)):
                yield run

    def _releases(self, used: tuple[Resource, str]) -> Iterator[CheckRow]:
        """Yield the newest version of each application and workload that uses an object."""
        known = set()
        for version in (version for kind in RELEASES for version in self.seen(kind)):
            row = _version_row(version)
            place = (type(version), row.namespace, row.name)
            if place not in known and any(
                used in self._uses(phase.kind, row.namespace, name)
                for phase in check_phases(version)
                for name in getattr(version.spec, phase.checks)
            ):
                known.add(place)
                yield row

    def _objectives(self, kind: Resource, obj: Any) -> list[CheckRow]:  # noqa: ANN401 - as above
        """Return the objectives of an object, those that are not met first."""
        rows: Iterable[CheckRow] = ()
        if kind is EVALUATIONS:
            rows = self._results(obj)
        elif kind is DEFINITIONS[EVALUATIONS]:
            rows = (self._objective(obj.metadata.namespace, made) for made in objectives_of(obj))
        elif kind is resources.ANALYSES and (stored := decode_raw(obj.status.raw)) is not None:
            rows = map(_analysed, stored.objective_results)
        elif kind is resources.ANALYSIS_DEFINITIONS:
            rows = map(_weighed, obj.spec.objectives)
        return sorted(rows, key=lambda row: row.state.urgency)

    def _objective(self, namespace: str, objective: Objective) -> CheckRow:
        """Return an objective with the current value of its metric."""
        metric = self._metric(namespace, objective)
        if metric is None:
            places = (objective.namespace or namespace, *self._sources.definition_namespaces)
            sees = all(self._visible.sees(METRICS, place) for place in places)
            state = ShownState("Not found", "warn") if sees else ShownState("Unknown", "idle")
            return CheckRow(objective.metric, state, target=objective.target)
        result = _result(judge(objective, self._read(metric)))
        path = _path(METRICS, metric.metadata)
        return CheckRow(objective.metric, path=path, target=objective.target, **result)

    def _definitions(self, metric: Metric) -> Iterator[CheckRow]:
        """Yield the definitions that read a metric."""
        kind, place = DEFINITIONS[EVALUATIONS], metric.metadata.namespace
        for definition in self.seen(kind):
            name, key = definition.metadata.name, definition.metadata.key
            # A shared definition reads the metric of the namespace in which it is used.
            places = (definition.metadata.namespace, place)
            uses = [self._uses(EVALUATIONS.kind, used_in, name) for used_in in places]
            if any({(METRICS, metric.metadata.key), (kind, key)} <= used for used in uses):
                yield self.row(kind, definition)

    def _results(self, evaluation: model.Evaluation) -> Iterator[CheckRow]:
        status, objectives = evaluation.status, self._objectives_of(evaluation)
        for key, result in status.evaluation_status.items():
            row = CheckRow(key, show_state(model.PENDING))
            if key in objectives:
                row = self._objective(evaluation.metadata.namespace, objectives[key])
            # The definition may have changed since.
            target = status.measurements.get(key, model.Tries(target=row.target)).target
            yield replace(row, name=key, target=target, **_result(result))

    def plots(self, kind: Resource, obj: Any) -> Iterator[Plot | None]:  # noqa: ANN401 - as above
        """Yield the measurements of an evaluation, or of a metric as far as a status keeps them."""
        if kind is EVALUATIONS:
            for key, recorded in obj.status.measurements.items():
                yield plot(key, recorded.tries, recorded.target)
        if kind is METRICS:
            results = obj.status.interval_results
            stored = [
                model.Try(value=made.value, time=made.last_updated, message=made.err_msg[:_LONGEST])
                for made in results
            ]
            records = list(islice(self._records(obj), MOST))
            tries = [made for record in records for made in record.tries]
            target = records[0].target if records and not stored else ""
            yield plot(obj.metadata.name, stored or sorted(tries, key=attrgetter("time")), target)

    def _records(self, metric: Metric) -> Iterator[model.Tries]:
        """Yield what evaluations have measured of a metric, the newest first."""
        for run in self._runs((METRICS, metric.metadata.key)):
            for key, objective in self._objectives_of(run).items():
                if self._metric(run.metadata.namespace, objective) is metric:
                    yield run.status.measurements.get(key, model.Tries())


def _path(kind: Resource, metadata: Metadata) -> str:
    return object_path(f"{PATH}/{kind.plural}", metadata.namespace, metadata.name)


def _field(obj: Any, path: str) -> Any:  # noqa: ANN401 - of any kind
    """Return a field of an object, or None if its kind does not have it."""
    for name in path.split("."):
        obj = getattr(obj, name, None)
    return obj


def _facts(part: Struct, titles: str = "") -> Iterator[tuple[str, str]]:
    """Yield titles and texts of the fields with a value, such as ``Retry interval`` and 5s."""
    for name in part.__struct_fields__:
        value, title = getattr(part, name), f"{titles} {name.strip('_').replace('_', ' ')}"
        if isinstance(value, Struct):
            yield from _facts(value, title)
        elif isinstance(value, str | int) and str(value) not in {"", "False"}:
            yield title.strip().capitalize(), str(value)[:_LONGEST]


def _definition_of(run: Any) -> tuple[str, str]:  # noqa: ANN401 - of what runs
    """Return the namespace in which the definition is searched first, and its name."""
    reference, place = _field(run, "spec.analysis_definition"), run.metadata.namespace
    if reference is not None:
        return reference.namespace or place, reference.name
    return place, _field(run, "spec.task_definition") or _field(run, "spec.evaluation_definition")


def _result(result: Any) -> dict[str, Any]:  # noqa: ANN401 - of an objective
    text = "" if result.status == model.SUCCEEDED else result.message
    return {"state": show_state(result.status), "value": result.value, "text": text}


def _analysed(result: Any) -> CheckRow:  # noqa: ANN401 - as stored in raw
    """Return an objective of an analysis with its result."""
    return replace(
        _weighed(result.objective),
        state=show_state(result.result.state),
        value="" if result.error else f"{result.value:g}",
        text=result.error or result.query,
    )


def _weighed(objective: Any) -> CheckRow:  # noqa: ANN401 - of an analysis
    """Return an objective with its criteria as a sentence, or what is wrong with them."""
    state = ShownState(f"weight {objective.weight}", "idle")
    name = objective.analysis_value_template_ref.name
    try:
        criteria = decode_target(objective.target).encode()
    except ValueError as error:
        return CheckRow(name, state, target=str(error))
    target = "; ".join(
        f"{outcome} if {ShownState(operator, 'idle').label} {' to '.join(bounds.values())}"
        for outcome, criterion in criteria.items()
        for operator, bounds in criterion.items()
    )
    return CheckRow(name, state, target=target)


def _version_row(version: model.Version) -> CheckRow:
    namespace, spec, query = version.metadata.namespace, version.spec, ""
    if isinstance(spec, model.AppVersionSpec):
        app = name = spec.app_name
        query = f"?version={quote(version.metadata.name, safe='')}"
    else:
        app, name = spec.app, spec.workload_name
    state, began = show_state(version.status.status), version.status.start_time
    path = link_of(namespace, app) + query
    return CheckRow(name, state, path, namespace, text=f"version {spec.version}", time=began)
