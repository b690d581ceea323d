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

_TOPIC: Final = Topic("Checks", gates.PATH, ("", ""), ((APP_VERSIONS,),))
_SLICE: Final = 100
"""Versions that are looked at in one go."""


def tally(sources: PageSources, visible: Visibility, now: datetime) -> Sliced[Tally]:
    """Notices for the overview: definitions that versions under way lack, each once; providers."""
    gatherer = Gatherer(sources, visible)
    found: dict[str, Notice] = {}
    versions: tuple[Version, ...] = (
        *values(sources.app_versions),
        *values(sources.workload_versions),
    )
    for number, version in enumerate(versions, 1):
        if not number % _SLICE:
            yield
        space, is_app = version.metadata.namespace, isinstance(version, AppVersion)
        is_seen = visible.sees(APP_VERSIONS if is_app else WORKLOAD_VERSIONS, space)
        if version.status.is_finished or not is_seen:
            continue
        app = version.spec.app_name if isinstance(version, AppVersion) else version.spec.app
        phases = [each for each in phases_of(version) if each.checks]
        for each in check_reports(version, gatherer.facts_in(space), now, phases=phases):
            if each.fault == "definition-missing":
                link, name = applications.link_of(space, app), f"{space}/{each.name}"
                notice = Notice("bad", "Definition", name, each.message, link)
                found.setdefault(f"{name} {each.message}", notice)
    urgent = [*found.values(), *_dead_providers(sources, visible, now)]
    return _TOPIC.tally(sources, visible, (), (), urgent, lambda each: each)


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
