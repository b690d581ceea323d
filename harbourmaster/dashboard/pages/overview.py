"""Builds the overview: the numbers of all pages, and what needs attention most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS, KEPTN_METRICS, WORKLOAD_VERSIONS
from harbourmaster.dashboard.pages import (
    applications,
    checks,
    clusters,
    gates,
    policies,
    reservations,
)
from harbourmaster.dashboard.pages.gates import GateFactsReader
from harbourmaster.dashboard.pages.states import MOST_NOTICES, Notice, Tally, Topic
from harbourmaster.dashboard.sources import values
from harbourmaster.evaluation.metric_status import read_metric
from harbourmaster.lifecycle.check_facts import check_reports, definitions_of
from harbourmaster.lifecycle.model import AppVersion
from harbourmaster.lifecycle.phases import TASK, phases_of

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.dashboard.query import PageQuery
    from harbourmaster.dashboard.slicing import Sliced
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.lifecycle.check_facts import Facts
    from harbourmaster.lifecycle.model import Version
    from harbourmaster.lifecycle.phases import Phase

_TALLIES: Final = (
    applications.tally,
    policies.tally,
    clusters.tally,
    clusters.tally_placed,
    reservations.tally,
)
_CHECKS: Final = Topic("Checks", gates.PATH, ("", ""), ((APP_VERSIONS,),))
_SLICE: Final = 100
"""Versions that are checked before other tasks may run."""
_RANK: Final = {"bad": 0, "warn": 1}


class OverviewPage(Struct, frozen=True):
    """The overview."""

    tallies: tuple[Tally, ...]
    notices: tuple[Notice, ...]
    further: tuple[Tally, ...]
    """The tallies with more notices than are on the page."""


def overview(
    sources: PageSources, visible: Visibility, _query: PageQuery, now: datetime
) -> Sliced[OverviewPage]:
    """Build the overview."""
    tallies = []
    for tally in _TALLIES:
        tallies.append(tally(sources, visible, now))
        yield
    # The tally of gates is the second on the page, and takes long.
    tallies.insert(1, (yield from gates.tally(sources, visible, now)))
    every = [*tallies, (yield from _checks(sources, visible, now))]
    notices = [notice for tally in every for notice in tally.notices]
    notices.sort(key=lambda notice: _RANK.get(notice.tone, len(_RANK)))
    further = tuple(tally for tally in every if tally.urgent > MOST_NOTICES)
    return OverviewPage(tuple(tallies), tuple(notices), further)


def _checks(sources: PageSources, visible: Visibility, now: datetime) -> Sliced[Tally]:
    """Report definitions that unfinished versions lack, and providers without answers."""
    reader = GateFactsReader(sources, visible)
    missing: dict[str, Notice] = {}
    versions: list[Version] = [*values(sources.app_versions), *values(sources.workload_versions)]
    for number, version in enumerate(versions, 1):
        if not number % _SLICE:
            yield
        space = version.metadata.namespace
        kind = APP_VERSIONS if isinstance(version, AppVersion) else WORKLOAD_VERSIONS
        if version.status.is_finished or not visible.sees(kind, space):
            continue
        app = version.spec.app_name if isinstance(version, AppVersion) else version.spec.app
        facts = reader.facts_in(space)
        # A report takes long, and there are few for which a definition may be missing.
        phases = [
            phase
            for phase in phases_of(version)
            if phase.checks and _lacks_definition(phase, version, facts)
        ]
        for report in check_reports(version, facts, now, phases=phases):
            if report.fault == "definition-missing":
                link, name = applications.link_of(space, app), f"{space}/{report.name}"
                notice = Notice("bad", "Definition", name, report.message, link)
                missing.setdefault(f"{name} {report.message}", notice)
    urgent = [*missing.values(), *_dead_providers(sources, visible, now)]
    return _CHECKS.tally(sources, visible, (), (), urgent, lambda notice: notice)


def _lacks_definition(phase: Phase, version: Version, facts: Facts) -> bool:
    known = facts.task_definitions if phase.kind == TASK else facts.definitions
    return any(name not in known for name in definitions_of(phase, version))


def _dead_providers(sources: PageSources, visible: Visibility, now: datetime) -> list[Notice]:
    """Report providers none of whose metrics has a current value, and all have an error."""
    metrics: dict[tuple[str, str], list[Metric]] = {}
    for metric in values(sources.metrics):
        if visible.sees(KEPTN_METRICS, metric.metadata.namespace):
            place = (metric.metadata.namespace, metric.spec.provider.name)
            metrics.setdefault(place, []).append(metric)
    notices = []
    stale_after = sources.rules.stale_after_intervals
    for (namespace, name), group in sorted(metrics.items()):
        faults = [read_metric(metric, stale_after, now).fault for metric in group]
        if all(faults) and all(metric.status.err_msg for metric in group):
            text = f"none of its KeptnMetrics ({len(group)}) has a current value: {faults[0]}"
            link = f"{checks.PATH}?namespace={namespace}&state=Unavailable"
            notices.append(Notice("bad", "Provider", f"{namespace}/{name}", text, link))
    return notices
