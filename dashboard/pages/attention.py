"""What keeps checks from ending: definitions that do not exist, and providers without answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.api.resources import APP_VERSIONS, KEPTN_METRICS, WORKLOAD_VERSIONS
from harbourmaster.dashboard.pages import applications, gates
from harbourmaster.dashboard.pages.gate_facts import Gatherer
from harbourmaster.dashboard.pages.states import Notice, Topic
from harbourmaster.dashboard.sources import values
from harbourmaster.evaluation.freshness import read
from harbourmaster.lifecycle.check_facts import check_reports
from harbourmaster.lifecycle.model import AppVersion
from harbourmaster.lifecycle.phases import phases_of

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.dashboard.pages.states import Tally
    from harbourmaster.dashboard.sources import PageSources
    from harbourmaster.dashboard.turns import Sliced
    from harbourmaster.dashboard.visibility import Visibility
    from harbourmaster.evaluation.model import Metric
    from harbourmaster.lifecycle.model import Version

_DEFINITIONS: Final = Topic("Missing definitions", applications.PATH, ("", ""), ((APP_VERSIONS,),))
_PROVIDERS: Final = Topic("Metric providers", gates.PATH, ("", ""), ((KEPTN_METRICS,),))
_SLICE: Final = 100
"""Versions that are looked at in one go."""


def tallies(sources: PageSources, visible: Visibility, now: datetime) -> Sliced[list[Tally]]:
    """Notices for the overview, which has no page and no numbers of these."""
    missing = yield from _missing(sources, visible, now)
    return [
        topic.tally(sources, visible, (), (), found, lambda each: each)
        for topic, found in (
            (_DEFINITIONS, missing),
            (_PROVIDERS, _dead_providers(sources, visible, now)),
        )
    ]


def _missing(sources: PageSources, visible: Visibility, now: datetime) -> Sliced[list[Notice]]:
    """Definitions that versions under way name and that do not exist, each once."""
    gatherer = Gatherer(sources, visible)
    found: dict[tuple[str, str], Notice] = {}
    versions: tuple[Version, ...] = (
        *values(sources.app_versions),
        *values(sources.workload_versions),
    )
    for number, version in enumerate(versions, 1):
        if not number % _SLICE:
            yield
        namespace = version.metadata.namespace
        if isinstance(version, AppVersion):
            kind, app = APP_VERSIONS, version.spec.app_name
        else:
            kind, app = WORKLOAD_VERSIONS, version.spec.app
        if version.status.is_finished or not visible.sees(kind, namespace):
            continue
        phases = [each for each in phases_of(version) if each.checks]
        for each in check_reports(version, gatherer.facts_in(namespace), now, phases=phases):
            if each.fault == "definition-missing":
                link = applications.link_of(namespace, app)
                notice = Notice("bad", "Definition", f"{namespace}/{each.name}", each.message, link)
                found.setdefault((namespace, each.message), notice)
    return list(found.values())


def _dead_providers(sources: PageSources, visible: Visibility, now: datetime) -> list[Notice]:
    """Providers of which no metric has a value that counts, but the last query's error."""
    metrics: dict[tuple[str, str], list[Metric]] = {}
    for metric in values(sources.metrics):
        if visible.sees(KEPTN_METRICS, metric.metadata.namespace):
            place = (metric.metadata.namespace, metric.spec.provider.name)
            metrics.setdefault(place, []).append(metric)
    found = []
    for (namespace, name), each in sorted(metrics.items()):
        faults = [read(one, sources.rules.stale_after_intervals, now).fault for one in each]
        if all(faults) and all(one.status.err_msg for one in each):
            text = f"no KeptnMetric of {len(each)} has a value that counts: {faults[0]}"
            link = f"{gates.PATH}?namespace={namespace}"
            found.append(Notice("bad", "Provider", f"{namespace}/{name}", text, link))
    return found
