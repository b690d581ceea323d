"""Reads from the API server what a page shows and no cache has, on request and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from msgspec import DecodeError

from harbourmaster.api.resources import (
    CONTROLLER_REVISIONS,
    CORE_EVENTS,
    DAEMON_SETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from harbourmaster.dashboard.caches import UNFINISHED
from harbourmaster.dashboard.pages.application import shown_versions, workloads_of
from harbourmaster.dashboard.pages.applications import version_of
from harbourmaster.dashboard.pages.cluster_map import PodCells, PodsRead, namespace_of
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.sources import PageSources, lookup
from harbourmaster.dashboard.visibility import Visibility
from harbourmaster.dashboard.workload_pods import (
    ApplicationRead,
    decode_event,
    decode_owner,
    decode_revision,
    related_events,
    revision_of,
)
from harbourmaster.kube.client import Client
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.lifecycle.model import AppVersion
from harbourmaster.lifecycle.phases import check_phases
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from msgspec import Raw

    from harbourmaster.dashboard.workload_pods import (
        Event,
        VersionPods,
    )
    from harbourmaster.lifecycle.model import Version, WorkloadVersion

K = TypeVar("K")
T = TypeVar("T")

AT_ONCE: Final = 8
PATIENCE: Final = 5.0
"""Seconds for everything that a page reads."""
MOST_PODS: Final = 5000
"""Maximum pods of a list."""
MOST_EVENT_PAGES: Final = 4
_OWNERS: Final = {kind.kind: kind for kind in (REPLICA_SETS, STATEFUL_SETS, DAEMON_SETS)}
OF_APPLICATION: Final = (*_OWNERS.values(), CONTROLLER_REVISIONS, PODS, CORE_EVENTS)
"""The kinds that ``read_application`` reads as far as the user may list them."""
Reads: TypeAlias = Callable[[Client, PageSources, Visibility, PageQuery], Awaitable[Any]]
"""Returns ``PageSources.read`` of one page. Raises ApiError and TimeoutError."""


async def read_pod(
    client: Client, sources: PageSources, visible: Visibility, query: PageQuery
) -> Raw | None:
    """Return the pod of the query in JSON; None if it does not exist."""
    key = f"{query.namespace}/{query.name}"
    is_known = sources.labels is not None and key in sources.labels.store
    if not is_known or not visible.sees(PODS, query.namespace):
        return None
    # The controller has the permission to list pods, not to get one.
    selector = f"metadata.name={query.name}"
    listed = await client.list(PODS, query.namespace, field_selector=selector)
    return next(iter(listed.items), None)


async def read_pods(
    client: Client, sources: PageSources, visible: Visibility, query: PageQuery
) -> PodsRead | None:
    """Return the cells of the pods in the namespace of the map; None if no pods are shown."""
    namespace = namespace_of(sources, visible, query)
    if not namespace or not visible.sees(PODS, namespace):
        return None
    pods: list[PodCells] = []
    fault = ""
    try:
        async with asyncio.timeout(PATIENCE):
            if await _read_cells(client, namespace, pods, field_selector=UNFINISHED):
                fault = f"Only the first {len(pods)} pods are shown."
    except (ApiError, TimeoutError) as error:
        fault = f"Not all pods could be read: {reason(error)}"
    return PodsRead(namespace, tuple(pods), fault)


async def _read_cells(
    client: Client, namespace: str, pods: list[PodCells], **selectors: str
) -> bool:
    """Add the cells of the selected pods to the list; return whether MOST_PODS left some out."""
    token: str | None = None
    while token != "" and len(pods) < MOST_PODS:
        page = await client.table(PODS, namespace, continue_token=token or "", **selectors)
        pods += (_cells(dict(zip(page.columns, row, strict=False))) for row in page.rows)
        token = page.continue_token
    return bool(token)


def _cells(row: dict[str, Any]) -> PodCells:
    name, ready, status, restarts, node = (
        str(row.get(column) or "") for column in ("Name", "Ready", "Status", "Restarts", "Node")
    )
    return PodCells(name, ready, status, restarts, node.removeprefix("<none>"))


async def read_application(
    client: Client, sources: PageSources, visible: Visibility, query: PageQuery
) -> ApplicationRead:
    """Return the pods of the shown versions and the warnings about them; it raises no ApiError."""
    shown = shown_versions(sources, visible, query)
    if shown is None:
        return ApplicationRead()
    app, namespace = shown[0], query.namespace
    jobs: dict[str, Callable[[], Awaitable[VersionPods | None]]] = {}
    newest: list[WorkloadVersion] = []
    for entry, workload in workloads_of(sources, visible, app):
        if workload is None:
            continue
        newest.append(workload)
        previous = version_of(sources, app, entry.name, workload.spec.previous_version)
        for version in filter(None, (workload, previous)):
            kind = _OWNERS.get(version.spec.resource_reference.kind)
            needed = () if kind is REPLICA_SETS else (CONTROLLER_REVISIONS, PODS)
            if kind is not None and all(visible.sees(of, namespace) for of in (kind, *needed)):
                is_newest = version is workload and app is shown[1][0]
                read = partial(_read_version, client, version, is_newest=is_newest)
                jobs[version.metadata.name] = read
    listing: dict[str, Callable[[], Awaitable[list[Event]]]] = {}
    if visible.sees(CORE_EVENTS, namespace):
        listing["events"] = partial(_read_warnings, client, namespace)
    (pods, unread), (events, unlisted) = await asyncio.gather(
        read_within(jobs), read_within(listing)
    )
    objects, owners = _objects_of(sources, (app, *newest))
    return ApplicationRead(
        pods={name: of for name, of in pods.items() if of is not None},
        events=related_events(events.get("events", ()), objects, owners),
        faults=(*_faults("the pods", unread, jobs), *_faults("the events", unlisted, listing)),
    )


async def read_within(
    jobs: Mapping[K, Callable[[], Awaitable[T]]],
) -> tuple[dict[K, T], dict[K, str]]:
    """Run the jobs, AT_ONCE at a time; return the results, and why others have none in PATIENCE."""
    turns = asyncio.Semaphore(AT_ONCE)

    async def run(job: Callable[[], Awaitable[T]]) -> T:
        async with turns:
            return await job()

    tasks = {key: asyncio.create_task(run(job)) for key, job in jobs.items()}
    results: dict[K, T] = {}
    faults: dict[K, str] = {}
    try:
        if tasks:
            await asyncio.wait(tasks.values(), timeout=PATIENCE)
        for key, task in tasks.items():
            if not task.done():
                faults[key] = f"no answer within {PATIENCE:g} s"
                continue
            try:
                results[key] = task.result()
            except (ApiError, TimeoutError, DecodeError) as error:
                faults[key] = reason(error)
    finally:
        for task in tasks.values():
            task.cancel()
    return results, faults


async def _read_version(
    client: Client, version: WorkloadVersion, *, is_newest: bool
) -> VersionPods | None:
    """Return the pods of a version; None if its owner is gone."""
    reference, namespace = version.spec.resource_reference, version.metadata.namespace
    kind = _OWNERS[reference.kind]
    try:
        owner = decode_owner(await client.get(kind, reference.name, namespace))
    except NotFoundError:
        return None
    if owner.metadata.uid != reference.uid:
        return None
    if kind is REPLICA_SETS:
        return owner.pods(is_newest=is_newest)
    listed = await client.list(CONTROLLER_REVISIONS, namespace, label_selector=owner.selector)
    revision = revision_of(version.spec.version, owner, map(decode_revision, listed.items))
    if revision is None:
        return None
    selector = ",".join(filter(None, (owner.selector, revision.selector)))
    pods: list[PodCells] = []
    await _read_cells(client, namespace, pods, label_selector=selector)
    return revision.pods(owner, pods, is_newest=is_newest)


async def _read_warnings(client: Client, namespace: str) -> list[Event]:
    events: list[Event] = []
    token = ""
    for _ in range(MOST_EVENT_PAGES):
        page = await client.list(
            CORE_EVENTS, namespace, field_selector="type=Warning", continue_token=token
        )
        events += map(decode_event, page.items)
        token = page.continue_token
        if not token:
            break
    return events


def _faults(what: str, faults: Mapping[str, str], jobs: Mapping[str, object]) -> tuple[str, ...]:
    """Return a line that says what was not read, and the first reason."""
    share = f" of {len(faults)} of {len(jobs)} versions" if jobs.keys() != {"events"} else ""
    return tuple(f"Not read: {what}{share}: {text}" for text in list(faults.values())[:1])


def _objects_of(
    sources: PageSources, versions: Iterable[Version]
) -> tuple[set[tuple[str, str]], set[str]]:
    """Return the objects of versions by kind and name, and the names of owners of pods."""
    objects: set[tuple[str, str]] = set()
    owners: set[str] = set()
    for version in versions:
        namespace = version.metadata.namespace
        is_app = isinstance(version, AppVersion)
        objects.add(
            ("KeptnAppVersion" if is_app else "KeptnWorkloadVersion", version.metadata.name)
        )
        if not isinstance(version, AppVersion):
            reference = version.spec.resource_reference
            objects.add((reference.kind, reference.name))
            owners.add(reference.name)
        for phase in check_phases(version):
            for item in getattr(version.status, phase.items):
                objects.add((phase.kind, item.name))
                task = lookup(sources.tasks, f"{namespace}/{item.name}")
                if task is not None and task.status.job_name:
                    objects.add(("Job", task.status.job_name))
                    owners.add(task.status.job_name)
    return objects, owners
