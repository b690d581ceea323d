"""Applications: the newest version of each, and its phases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from msgspec import Struct

from harbourmaster.api.resources import APP_VERSIONS
from harbourmaster.dashboard.pages.phases import Step, name_of_current, steps
from harbourmaster.dashboard.pages.states import (
    Notice,
    Part,
    Shown,
    Tally,
    plural,
    shown,
)
from harbourmaster.dashboard.query import Listing, listed, turned
from harbourmaster.dashboard.times import moment, seconds_between, span
from harbourmaster.dashboard.world import values
from harbourmaster.lifecycle.model import COMPLETED, FAILED, PROGRESSING, SUCCEEDED, WARNING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from harbourmaster.dashboard.pages.states import Tone
    from harbourmaster.dashboard.query import Query
    from harbourmaster.dashboard.sight import Sight
    from harbourmaster.dashboard.world import World
    from harbourmaster.lifecycle.model import AppVersion

PATH: Final = "/applications"
_PARTS: Final[tuple[tuple[str, str, Tone], ...]] = (
    (FAILED, "failed", "bad"),
    (WARNING, "with warnings", "warn"),
    (PROGRESSING, "in progress", "busy"),
    (SUCCEEDED, "succeeded", "good"),
)
_MOST_NOTICES: Final = 5


class ApplicationRow(Struct, frozen=True, gc=False):
    """One application in its newest version."""

    namespace: str
    name: str
    link: str
    version: str
    state: Shown
    phase: str
    steps: tuple[Step, ...]
    start: str
    took: str
    workloads: int
    finished: int
    """Of the workloads."""


class Applications(Struct, frozen=True):
    """The page."""

    listing: Listing[ApplicationRow]
    parts: tuple[Part, ...]


def applications(world: World, sight: Sight, query: Query, now: datetime) -> Applications:
    """The page, the most urgent first."""
    newest = _visible(world, sight)
    found = listed(
        newest,
        query,
        namespace=lambda each: each.metadata.namespace,
        texts=lambda each: (each.spec.app_name, each.metadata.namespace, each.spec.version),
        key=_rank,
        holds=lambda each: not query.state or each.status.status == query.state,
    )
    return Applications(
        turned(found, [_row(each, now) for each in found.rows]), tuple(_parts(newest))
    )


def tally(world: World, sight: Sight, _now: datetime) -> Tally:
    """What the overview says of them."""
    newest = _visible(world, sight)
    failed = sorted((each for each in newest if each.status.status == FAILED), key=_rank)
    return Tally(
        title="Applications",
        link=PATH,
        total=len(newest),
        unit=plural(len(newest), "application", "applications"),
        parts=tuple(_parts(newest)),
        notices=tuple(
            Notice(
                tone="bad",
                what="Application",
                name=f"{each.metadata.namespace}/{each.spec.app_name}",
                text=f"version {each.spec.version} failed in its {_where(each)}",
                link=link_of(each),
            )
            for each in failed[:_MOST_NOTICES]
        ),
        urgent=len(failed),
        is_off=world.app_versions is None,
        is_refused=sight.of(APP_VERSIONS).is_empty,
    )


def newest_first(versions: Iterable[AppVersion]) -> list[AppVersion]:
    """The versions of an app by their age, the one that counts first."""
    return sorted(versions, key=_age, reverse=True)


def link_of(version: AppVersion) -> str:
    """Where the application's own page is."""
    metadata = version.metadata
    return f"{PATH}/{quote(metadata.namespace, safe='')}/{quote(version.spec.app_name, safe='')}"


def _visible(world: World, sight: Sight) -> list[AppVersion]:
    """The newest version of each application that may be seen."""
    scope = sight.of(APP_VERSIONS)
    found: dict[tuple[str, str], AppVersion] = {}
    for each in values(world.app_versions):
        if not scope.sees(each.metadata.namespace):
            continue
        place = (each.metadata.namespace, each.spec.app_name)
        known = found.get(place)
        if known is None or _age(each) > _age(known):
            found[place] = each
    return list(found.values())


def _where(version: AppVersion) -> str:
    return name_of_current(version).lower() or "checks"


def _age(version: AppVersion) -> tuple[str, int, str]:
    metadata = version.metadata
    return metadata.creation_timestamp, version.spec.revision, metadata.name


def _rank(version: AppVersion) -> tuple[int, str, str]:
    metadata = version.metadata
    return shown(version.status.status).urgency, metadata.namespace, version.spec.app_name


def _parts(newest: Iterable[AppVersion]) -> Iterable[Part]:
    counts: dict[str, int] = {}
    for each in newest:
        counts[each.status.status] = counts.get(each.status.status, 0) + 1
    for state, label, tone in _PARTS:
        count = counts.pop(state, 0)
        if count:
            yield Part(label, count, tone, state)
    for state, count in sorted(counts.items()):
        yield Part(shown(state).label, count, "idle", state)


def _row(version: AppVersion, now: datetime) -> ApplicationRow:
    status = version.status
    start, end = moment(status.start_time), moment(status.end_time)
    return ApplicationRow(
        namespace=version.metadata.namespace,
        name=version.spec.app_name,
        link=link_of(version),
        version=version.spec.version,
        state=shown(status.status),
        phase="" if status.is_finished and status.status != FAILED else name_of_current(version),
        steps=steps(version),
        start=status.start_time,
        took=span(seconds_between(start, end or now)) if start else "",
        workloads=len(version.spec.workloads),
        finished=sum(each.status in COMPLETED for each in status.workload_status),
    )
