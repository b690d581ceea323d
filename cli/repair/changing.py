"""Changes what lacks something: patches pods, and restarts workloads one by one."""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.patches import JsonPatch, MergePatch
from harbourmaster.api.resources import DISRUPTION_BUDGETS, PODS
from harbourmaster.cli.live.cluster import complain
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.repair import rollouts
from harbourmaster.cli.repair.lack import lack_of
from harbourmaster.cli.repair.observed import POD, observe
from harbourmaster.kube.errors import (
    ApiError,
    ConflictError,
    GoneError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from harbourmaster.rescheduling.model import NEVER_EVICT

if TYPE_CHECKING:
    import msgspec

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.repair.lack import Lack
    from harbourmaster.cli.repair.model import Workload
    from harbourmaster.cli.repair.observed import Observed, StoredPod
    from harbourmaster.kube.client import Client
    from harbourmaster.webhook.engine import Engine

    Json = dict[str, Any]

_RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
_TRIES: Final = 5
_PAUSE: Final = 0.2
"""Seconds before a watch that the server ended is started again."""


class RefusedError(Exception):
    """Why a workload is not restarted."""


class BudgetError(RefusedError):
    """Why a disruption budget forbids it now."""


class StuckError(Exception):
    """That a rollout does not end."""


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
    """Changes a cluster; ``patience`` is for each rollout and for budgets, in seconds."""

    def __init__(self, client: Client, installed_in: str, pace: Pace, patience: float) -> None:
        self._client = client
        self._installed_in = installed_in
        self._pace = pace
        self._patience = patience

    async def patch(self, found: StoredPod, engine: Engine) -> Lack | None:
        """Add to a pod what can be added; returns what it lacks then. Raises ApiError."""
        lack, version, place = found.lack, found.version, (found.pod.name, found.pod.namespace)
        for left in reversed(range(_TRIES)):
            if not lack or not lack.operations:
                return lack
            await self._pace.turn()
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            patch = JsonPatch([test, *lack.operations])
            try:
                raw = await self._client.patch(PODS, place[0], patch, place[1])
            except NotFoundError:
                return None
            except (ConflictError, InvalidError):
                try:
                    raw = await self._client.get(PODS, *place)
                except NotFoundError:
                    return None
                # The very same pod that is refused again will always be.
                if not left or metadata_in(raw).resource_version == version:
                    raise
            own = metadata_in(raw)
            if own.uid != found.pod.uid:
                return None
            version, lack = own.resource_version, lack_of(POD, raw, place[1], engine)
        return lack

    async def restart_all(
        self, space: Metadata, asked: list[Workload], engine: Engine
    ) -> dict[Workload, str]:
        """Restart workloads of a namespace, one at a time; why not, empty for those that were.

        A workload that budgets keep waiting does not keep the others waiting.
        """
        outcomes: dict[Workload, str] = {}
        pending, loop = list(asked), asyncio.get_running_loop()
        end = loop.time() + self._patience
        while pending:
            page = await self._client.list(DISRUPTION_BUDGETS, space.name, limit=1)
            waiting = []
            for index, workload in enumerate(pending):
                try:
                    await self._restart(space, workload, engine)
                    outcomes[workload] = ""
                except BudgetError as error:
                    outcomes[workload] = f"{error}: run the command again later"
                    waiting.append(workload)
                except StuckError as error:
                    others = dict.fromkeys(pending[index + 1 :], f"{workload} {error}")
                    return {**outcomes, **others, workload: f"it {error}"}
                except (RefusedError, ApiError) as error:
                    outcomes[workload] = str(error)
            if len(waiting) < len(pending):
                end = loop.time() + self._patience
            elif waiting:
                complain(f"{waiting[0]}: waiting: {outcomes[waiting[0]]}")
                version = page.resource_version
                if not await self._changed(DISRUPTION_BUDGETS, space.name, version, end):
                    break
            pending = waiting
        return outcomes

    async def _restart(self, space: Metadata, workload: Workload, engine: Engine) -> None:
        """Restart one and wait for its rollout. Raises RefusedError, StuckError, ApiError."""
        resource = rollouts.RESTARTED[workload.group, workload.kind]
        for left in reversed(range(_TRIES)):
            await self._pace.turn()
            stored = _with_kind(workload, await self._client.get(resource, *workload[:1:-1]))
            if why := rollouts.why_not(stored):
                raise RefusedError(why)
            await self._try(space, stored, engine)
            # Last, because others can disrupt pods at any time.
            if not await self._is_needed(space, workload, stored):
                return
            template = {"metadata": {"annotations": {_RESTARTED_AT: _now()}}}
            version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
            patch = MergePatch({"metadata": version, "spec": {"template": template}})
            try:
                await self._client.patch(resource, workload.name, patch, space.name)
                break
            except ConflictError:
                if not left:
                    raise
        complain(f"{workload}: restarted, waiting for its rollout")
        await self._complete(resource, workload)
        rest = (await self._observe(space)).lacking(workload)
        if rest:
            raise RefusedError(
                f"restarted, but {len(rest)} pods lack it again: harbourmaster doctor"
            )
        complain(f"{workload}: rollout complete")

    async def _observe(self, space: Metadata) -> Observed:
        return await observe(Installation(self._client, self._installed_in), space)

    async def _try(self, space: Metadata, stored: Json, engine: Engine) -> None:
        """Try a new pod of the workload. Raises RefusedError where it would not be right."""
        try:
            probe = rollouts.sample_pod(stored)
            raw = await self._client.create(PODS, probe, space.name, dry_run=True)
        except UnreachableError:
            raise
        except ApiError as error:
            raise RefusedError(f"not restarted: a new pod would be refused: {error}") from error
        lack = lack_of(POD, raw, space.name, engine)
        if lack is not None:
            what = ", ".join(lack.fields) or lack.refusal
            why = "no webhook answers, or another one undoes it: harbourmaster doctor"
            raise RefusedError(f"not restarted: a new pod would lack {what} too: {why}")

    async def _is_needed(self, space: Metadata, workload: Workload, stored: Json) -> bool:
        """Whether pods still lack something. Raises RefusedError where it must not be done."""
        seen = await self._observe(space)
        if not seen.lacking(workload):
            return False
        pods = [each.pod for each in seen.pods]
        members = [each.pod for each in seen.pods if each.workload == workload]
        kept = next((each.name for each in members if each.is_never_evicted), "")
        if kept:
            raise RefusedError(f"not restarted: pod {kept} must never be evicted ({NEVER_EVICT})")
        why = rollouts.exceeded(seen.budgets, pods, members, rollouts.disrupted(stored))
        if why:
            raise BudgetError(why)
        return True

    async def _complete(self, resource: Resource, workload: Workload) -> None:
        """Wait for the rollout. Raises StuckError."""
        end = asyncio.get_running_loop().time() + self._patience
        selector = f"metadata.name={workload.name}"
        while True:
            page = await self._client.list(resource, workload.namespace, field_selector=selector)
            if not page.items or rollouts.is_complete(_with_kind(workload, page.items[0])):
                return
            version = page.resource_version
            if not await self._changed(resource, workload.namespace, version, end, selector):
                text = f"has not completed its rollout after {self._patience:g} s"
                look = f"kubectl rollout status -n {workload.namespace}"
                name = f"{workload.kind.lower()}/{workload.name}"
                raise StuckError(f"{text}, so no more is restarted there: {look} {name}")

    async def _changed(
        self, resource: Resource, namespace: str, version: str, end: float, selector: str = ""
    ) -> bool:
        """Wait for a change after a version; False where there is none until ``end``."""
        seconds = end - asyncio.get_running_loop().time()
        if seconds <= 0:
            return False
        events = self._client.watch(
            resource,
            namespace,
            resource_version=version,
            timeout_seconds=math.ceil(seconds) + 1,
            idle_timeout=seconds + 1,
            field_selector=selector,
            bookmarks=False,
        )
        try:
            async with asyncio.timeout(seconds), aclosing(events):
                async for _ in events:
                    return True
        except TimeoutError:
            return False
        except (GoneError, UnreachableError):
            pass
        await asyncio.sleep(_PAUSE)
        return True


def _with_kind(workload: Workload, raw: bytes | msgspec.Raw) -> Json:
    """The object with its kind, which those of a list lack."""
    return {**decode_anything(raw), "kind": workload.kind}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
