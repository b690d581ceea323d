"""Reads a namespace and changes it: patches pods, and restarts workloads one by one."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api import resources
from harbourmaster.api.patches import JsonPatch, MergePatch
from harbourmaster.cli.live.cluster import collect, complain
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.preview.compare import pod_of
from harbourmaster.cli.repair import plan
from harbourmaster.cli.repair.plan import Observed, StoredPod, Workload, lack_of
from harbourmaster.kube import errors
from harbourmaster.policies.pods import KINDS
from harbourmaster.rescheduling.wire import decode_budget, decode_present

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msgspec import Raw

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.repair.plan import Lack
    from harbourmaster.webhook.engine import Engine

    Json = dict[str, Any]

_RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
_TRIES: Final = 5
_PAUSE: Final = 0.2
"""Seconds before a watch that the server ended is started again."""
_POD: Final = KINDS["", "v1", "Pod"]
_BUDGETS: Final = resources.DISRUPTION_BUDGETS
_TEMPLATES: Final = (*plan.RESTARTED.values(), resources.CRON_JOBS)


async def observe(
    installed: Installation, space: Metadata, engine: Engine, selector: str | None = None
) -> Observed:
    """Read a namespace; budgets before pods, so that no pod is older than what counts it.

    With a label selector, only such pods, and templates. Raises an ApiError.
    """
    # One that has read nothing yet.
    live = Installation(installed.client, installed.namespace)
    configuration = await live.configuration(resources.MUTATING_WEBHOOKS)
    entries = configuration.entries if configuration else ()
    sets = await live.metadata(resources.REPLICA_SETS, space.name)
    owners = {each.uid: each.controller for each in sets}

    def lack(resource: Resource, raw: Raw) -> Lack | None:
        labels = metadata_in(raw).labels
        is_reviewed = any(
            entry.covers(resource.group, resource.plural)
            and entry.selects(space)
            and entry.selects_labels(labels)
            for entry in entries
        )
        kind = KINDS[resource.group, resource.version, resource.kind]
        return lack_of(kind, raw, space.name, engine) if is_reviewed else None

    def template(resource: Resource, raw: Raw) -> tuple[Workload, Lack] | None:
        name, found = metadata_in(raw).name, lack(resource, raw)
        workload = Workload(resource.group, resource.kind, space.name, name)
        return (workload, found) if found else None

    def stored(raw: Raw) -> StoredPod | None:
        pod, own = decode_present(raw), metadata_in(raw)
        owner = own.controller
        if owner is not None and owner.kind == resources.REPLICA_SETS.kind:
            owner = owners.get(owner.uid) or owner
        kind = (owner.group, owner.kind) if owner else ("", resources.PODS.kind)
        workload = Workload(*kind, space.name, (owner or own).name)
        found = StoredPod(pod, workload, own.resource_version, lack(resources.PODS, raw))
        return None if pod.is_finished else found

    lacking = [
        await live.items(each, partial(template, each), space.name, label_selector=selector)
        for each in (() if selector is None else _TEMPLATES)
    ]
    budgets = await live.items(_BUDGETS, decode_budget, space.name)
    pods = await collect(
        live.client, resources.PODS, stored, namespace=space.name, label_selector=selector or ""
    )
    return Observed(tuple(pods), tuple(chain.from_iterable(lacking)), tuple(budgets))


class BudgetError(Exception):
    """Why a disruption budget forbids a restart now."""


class Pace:
    """Lets changes begin at a steady rate."""

    def __init__(self, per_minute: float) -> None:
        self._gap = 60 / per_minute
        self._next = 0.0

    async def turn(self) -> None:
        """Return when the next change may begin."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self._next)
        self._next = begin + self._gap
        await asyncio.sleep(begin - now)


class Changes:
    """Changes one namespace, about which ``engine`` decides.

    ``patience`` is for each rollout and for disruption budgets, in seconds.
    """

    def __init__(
        self, live: Installation, space: Metadata, engine: Engine, pace: Pace, patience: float
    ) -> None:
        self._client, self._live, self._pace = live.client, live, pace
        self._space, self._engine, self._patience = space, engine, patience

    async def patch(self, found: StoredPod) -> Lack | None:
        """Add to a pod what can be added; returns what it lacks then. Raises ApiError."""
        lack, version, place = found.lack, found.version, (found.pod.name, found.pod.namespace)
        for left in reversed(range(_TRIES)):
            if not lack or not lack.operations:
                break
            await self._pace.turn()
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            patch = JsonPatch([test, *lack.operations])
            try:
                raw = await self._client.patch(resources.PODS, place[0], patch, place[1])
            except (errors.ConflictError, errors.InvalidError):
                raw = await self._client.get(resources.PODS, *place)
                # What is refused though nothing changed will always be.
                if not left or metadata_in(raw).resource_version == version:
                    raise
            version, lack = metadata_in(raw).resource_version, self._lack(raw)
        return lack

    def _lack(self, raw: bytes) -> Lack | None:
        return lack_of(_POD, raw, self._space.name, self._engine)

    async def restart_all(self, asked: Iterable[Workload]) -> dict[Workload, str]:
        """Restart workloads, one at a time; why one is not right then, empty where it is.

        A workload that must wait for disruption budgets does not keep the others waiting.
        """
        outcomes: dict[Workload, str] = {}
        pending, loop = list(asked), asyncio.get_running_loop()
        end = loop.time() + self._patience
        while pending:
            page = await self._client.list(_BUDGETS, self._space.name, limit=1)
            waiting = []
            for workload in pending:
                try:
                    outcomes[workload] = await self._restart(workload)
                except BudgetError as error:
                    outcomes[workload] = f"{error}: run the command again later"
                    waiting.append(workload)
                except TimeoutError as error:
                    return {**dict.fromkeys(pending, str(error)), **outcomes}
                except errors.ApiError as error:
                    outcomes[workload] = str(error)
            if len(waiting) < len(pending):
                end = loop.time() + self._patience
            else:
                complain(f"{waiting[0]}: waiting: {outcomes[waiting[0]]}")
                if not await self._changed(
                    resources.DISRUPTION_BUDGETS, page.resource_version, end
                ):
                    break
            pending = waiting
        return outcomes

    async def _restart(self, workload: Workload) -> str:
        """Restart one and wait for its rollout; why it is not right then, or an empty text.

        Raises BudgetError, TimeoutError, ApiError.
        """
        resource = plan.RESTARTED[workload[:2]]
        for left in reversed(range(_TRIES)):
            await self._pace.turn()
            stored = await self._get(resource, workload)
            if why := plan.why_not(stored) or await self._why_in_vain(stored, resource):
                return why
            # Last, because others can disrupt pods at any time.
            seen = await observe(self._live, self._space, self._engine)
            if not seen.lacking(workload):
                return ""
            members = [pod.pod for pod in seen.pods if pod.workload == workload]
            if why := plan.exceeded(seen, members, plan.disruptions(stored)):
                raise BudgetError(f"{why}: run the command again later")
            template = {"metadata": {"annotations": {_RESTARTED_AT: datetime.now(UTC).isoformat()}}}
            version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
            patch = MergePatch({"metadata": version, "spec": {"template": template}})
            try:
                await self._client.patch(resource, workload.name, patch, workload.namespace)
                break
            except errors.ConflictError:
                if not left:
                    raise
        complain(f"{workload}: restarted, waiting for its rollout")
        end = asyncio.get_running_loop().time() + self._patience
        while not plan.is_complete(stored := await self._get(resource, workload)):
            version = stored["metadata"]["resourceVersion"]
            if not await self._changed(resource, version, end, f"metadata.name={workload.name}"):
                text = f"the rollout of {workload} is not complete after {self._patience:g} s"
                raise TimeoutError(f"{text}: see kubectl rollout status")
        complain(f"{workload}: rollout complete")
        rest = (await observe(self._live, self._space, self._engine)).lacking(workload)
        return "its new pods lack it too: harbourmaster doctor" if rest else ""

    async def _get(self, resource: Resource, workload: Workload) -> Json:
        return decode_anything(await self._client.get(resource, workload.name, self._space.name))

    async def _why_in_vain(self, stored: Json, resource: Resource) -> str:
        """Try a new pod of the workload: why a restart would not help, or an empty text."""
        kind = KINDS[resource.group, resource.version, resource.kind]
        pod = pod_of(stored, kind, self._space.name)
        pod["metadata"]["generateName"] = f"{pod['metadata'].pop('name')[:50]}-"
        try:
            raw = await self._client.create(resources.PODS, pod, self._space.name, dry_run=True)
        except errors.ApiError as error:
            return f"a new pod of it would be refused: {error}"
        if not (lack := self._lack(raw)):
            return ""
        why = "no webhook answers, or another one undoes it: harbourmaster doctor"
        return f"a new pod would lack {', '.join(lack.fields)} too: {why}"

    async def _changed(
        self, resource: Resource, version: str, end: float, selector: str = ""
    ) -> bool:
        """Wait for a change after a version; False where there is none until ``end``."""
        seconds = end - asyncio.get_running_loop().time()
        events = self._client.watch(
            resource,
            self._space.name,
            resource_version=version,
            timeout_seconds=math.ceil(self._patience) + 1,
            idle_timeout=self._patience + 1,
            field_selector=selector,
            bookmarks=False,
        )
        try:
            async with asyncio.timeout(seconds), aclosing(events):
                async for _ in events:
                    return True
        except TimeoutError:
            return False
        except (errors.GoneError, errors.UnreachableError):
            await asyncio.sleep(_PAUSE)
        return True
