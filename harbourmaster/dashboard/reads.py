"""Reads from the API server what a page shows and no cache has, on request and within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec.json import decode

from harbourmaster.api.resources import (
    CONTROLLER_REVISIONS,
    CORE_EVENTS,
    DAEMON_SETS,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)
from harbourmaster.dashboard.caches import UNFINISHED
from harbourmaster.dashboard.pages.application import (
    place_of,
    shown_versions,
    tasks_by_version,
    workloads_of,
)
from harbourmaster.dashboard.pages.applications import version_of
from harbourmaster.dashboard.pages.cluster_map import PodCells, PodsRead, namespace_of
from harbourmaster.dashboard.query import PageQuery
from harbourmaster.dashboard.sources import PageSources
from harbourmaster.dashboard.visibility import Visibility
from harbourmaster.dashboard.workload_pods import (
    ApplicationRead,
    pods_of_replica_set,
    pods_of_revision,
    related_events,
    revision_of,
    selector_of,
    selector_of_revision,
)
from harbourmaster.kube.client import Client
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msgspec import Raw

    from harbourmaster.dashboard.workload_pods import VersionPods
    from harbourmaster.lifecycle.model import WorkloadVersion

AT_ONCE: Final = 8
PATIENCE: Final = 5.0
"""Seconds for everything that a page reads."""
MOST_PODS: Final = 5000
"""Maximum pods of a list."""
MOST_EVENTS_READ: Final = 2000
"""Maximum warnings of a namespace that are searched."""
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
            if await _read_cells(client, namespace, pods, fieldSelector=UNFINISHED):
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
        rows, token = await client.table(PODS, namespace, token or "", **selectors)
        pods += map(_cells, rows)
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
    (app, versions), namespace = shown, query.namespace
    jobs: dict[str, Callable[[], Awaitable[Any]]] = {}
    names = {app.metadata.name}
    tasks = tasks_by_version(sources, visible, namespace)
    of_release = [*tasks.get(place_of(app), ())]
    for entry, workload in workloads_of(sources, visible, app):
        if workload is None:
            continue
        names |= {workload.metadata.name, workload.spec.resource_reference.name}
        of_release += tasks.get(place_of(workload), ())
        previous = version_of(sources, app, entry.name, workload.spec.previous_version)
        for version in filter(None, (workload, previous)):
            kind = _OWNERS.get(version.spec.resource_reference.kind)
            needed = () if kind is REPLICA_SETS else (CONTROLLER_REVISIONS, PODS)
            if kind is not None and all(visible.sees(of, namespace) for of in (kind, *needed)):
                is_newest = version is workload and app is versions[0]
                read = partial(_read_version, client, version, is_newest=is_newest)
                jobs[version.metadata.name] = read
    names |= {name for task in of_release for name in (task.metadata.name, task.status.job_name)}
    if visible.sees(CORE_EVENTS, namespace):
        jobs[""] = partial(_read_warnings, client, namespace)
    results, fault = await read_within(jobs)
    events = related_events(results.pop("", ()), names - {""})
    return ApplicationRead({name: of for name, of in results.items() if of}, events, fault)


async def read_within(
    jobs: Mapping[str, Callable[[], Awaitable[Any]]],
) -> tuple[dict[str, Any], str]:
    """Return the results of the jobs, AT_ONCE at a time, and why others have none in PATIENCE."""
    turns = asyncio.Semaphore(AT_ONCE)
    results: dict[str, Any] = {}
    faults = {}

    async def run(name: str, job: Callable[[], Awaitable[Any]]) -> None:
        async with turns:
            try:
                results[name] = await job()
            except (ApiError, TimeoutError) as error:
                faults[name] = reason(error)

    try:
        async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
            for name, job in jobs.items():
                group.create_task(run(name, job))
    except TimeoutError:
        late = jobs.keys() - results.keys() - faults.keys()
        faults |= dict.fromkeys(late, f"no answer within {PATIENCE:g} s")
    if not faults:
        return results, ""
    return results, f"{len(faults)} of {len(jobs)} reads failed: {next(iter(faults.values()))}"


async def _read_version(
    client: Client, version: WorkloadVersion, *, is_newest: bool
) -> VersionPods | None:
    """Return the pods of a version; None if its owner is gone."""
    reference, namespace = version.spec.resource_reference, version.metadata.namespace
    kind = _OWNERS[reference.kind]
    try:
        owner = decode(await client.get(kind, reference.name, namespace))
    except NotFoundError:
        return None
    if owner["metadata"]["uid"] != reference.uid:
        return None
    if kind is REPLICA_SETS:
        return pods_of_replica_set(owner, is_newest=is_newest)
    selector = selector_of(owner)
    listed = await client.list(CONTROLLER_REVISIONS, namespace, label_selector=selector)
    revision = revision_of(version.spec.version, owner, map(decode, listed.items))
    if revision is None:
        return None
    pods: list[PodCells] = []
    selector = f"{selector},{selector_of_revision(revision)}".removeprefix(",")
    await _read_cells(client, namespace, pods, labelSelector=selector)
    return pods_of_revision(revision, owner, pods, is_newest=is_newest)


async def _read_warnings(client: Client, namespace: str) -> list[Any]:
    events: list[Any] = []
    token: str | None = None
    while token != "" and len(events) < MOST_EVENTS_READ:
        listed = await client.list(
            CORE_EVENTS, namespace, field_selector="type=Warning", continue_token=token or ""
        )
        events += map(decode, listed.items)
        token = listed.continue_token
    return events
