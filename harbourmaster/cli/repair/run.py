"""``harbourmaster repair``: finds what policies should have changed, and repairs it.

It uses the caller's permissions. Pods that still wait are patched; workloads whose pods can't be
changed any more are restarted, one at a time in each namespace.
"""

from __future__ import annotations

import asyncio
import math
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from harbourmaster.api import resources
from harbourmaster.api.patches import JsonPatch, MergePatch
from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.cli.batches import for_each, plural
from harbourmaster.cli.live.cluster import (
    DONE,
    LEFT,
    collect,
    complain,
    namespace_of,
    run_with_client,
)
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.live.reader import cause
from harbourmaster.cli.preview.compare import pod_of
from harbourmaster.cli.repair import plan
from harbourmaster.cli.repair.plan import RESTART, Observed, StoredPod, Workload, items_of, lack_of
from harbourmaster.cli.terminal import print_out
from harbourmaster.cli.why.admission import inputs_of
from harbourmaster.kube import errors
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.pods import KINDS
from harbourmaster.rescheduling.decoding import decode_budget, decode_node, decode_present
from harbourmaster.serving.settings import StartError
from harbourmaster.webhook.engine import Engine

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable, Sequence

    from msgspec import Raw

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.repair.plan import Lack, RepairItem
    from harbourmaster.kube.client import Client
    from harbourmaster.rescheduling.model import Pod

    Json = dict[str, Any]

_RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
_TRIES: Final = 5
_PAUSE: Final = 0.2
"""Seconds before a watch that the server ended is started again."""
_POD: Final = KINDS["", "v1", "Pod"]
_DAEMON_SET: Final = KINDS["apps", "v1", "DaemonSet"]
_BUDGETS: Final = resources.DISRUPTION_BUDGETS
_TEMPLATES: Final = (*plan.RESTARTED.values(), resources.CRON_JOBS)


async def observe(
    installed: Installation, space: Metadata, engine: Engine, selector: str | None = None
) -> Observed:
    """Read the budgets of a namespace, then its pods, so that no pod is older than its budget.

    With a label selector, read only such pods, and also templates. Raises an ApiError.
    """
    # A new reader, because the given one caches.
    live = Installation(installed.client, installed.namespace)
    configuration = await live.configuration(resources.MUTATING_WEBHOOKS)
    entries = configuration.entries if configuration else ()
    sets = await live.metadata(resources.REPLICA_SETS, space.name)
    owners = {replica_set.uid: replica_set.controller for replica_set in sets}

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
        name, template_lack = metadata_in(raw).name, lack(resource, raw)
        workload = Workload(resource.group, resource.kind, space.name, name)
        return (workload, template_lack) if template_lack else None

    def decode_pod(raw: Raw) -> StoredPod | None:
        pod, own = decode_present(raw), metadata_in(raw)
        owner = own.controller
        if owner is not None and owner.kind == resources.REPLICA_SETS.kind:
            owner = owners.get(owner.uid) or owner
        kind = (owner.group, owner.kind) if owner else ("", resources.PODS.kind)
        workload = Workload(*kind, space.name, (owner or own).name)
        stored_pod = StoredPod(pod, workload, own.resource_version, lack(resources.PODS, raw))
        return None if pod.is_finished else stored_pod

    lacking = [
        await live.items(resource, partial(template, resource), space.name, label_selector=selector)
        for resource in (() if selector is None else _TEMPLATES)
    ]
    budgets = await live.items(_BUDGETS, decode_budget, space.name)
    pods = await collect(
        live.client, resources.PODS, decode_pod, namespace=space.name, label_selector=selector or ""
    )
    return Observed(tuple(pods), tuple(chain.from_iterable(lacking)), tuple(budgets))


class BudgetError(Exception):
    """A disruption budget forbids a restart now."""


class Pace:
    """Limits the rate of changes."""

    def __init__(self, per_minute: float) -> None:
        self._gap = 60 / per_minute
        self._next = 0.0

    async def wait(self) -> None:
        """Return when the next change may begin."""
        now = asyncio.get_running_loop().time()
        begin = max(now, self._next)
        self._next = begin + self._gap
        await asyncio.sleep(begin - now)


class Changes:
    """Repairs one namespace, as ``engine`` decides.

    ``patience`` is the time limit in seconds for each rollout and for disruption budgets.
    """

    def __init__(
        self, live: Installation, space: Metadata, engine: Engine, pace: Pace, patience: float
    ) -> None:
        self._client, self._live, self._pace = live.client, live, pace
        self._space, self._engine, self._patience = space, engine, patience

    async def patch(self, stored: StoredPod) -> Lack | None:
        """Add to a pod what can be added; return what it still lacks. Raises ApiError."""
        lack, version, place = stored.lack, stored.version, (stored.pod.name, stored.pod.namespace)
        for left in reversed(range(_TRIES)):
            if not lack or not lack.operations:
                break
            await self._pace.wait()
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            patch = JsonPatch([test, *lack.operations])
            try:
                raw = await self._client.patch(resources.PODS, place[0], patch, place[1])
            except (errors.ConflictError, errors.InvalidError):
                raw = await self._client.get(resources.PODS, *place)
                # If the pod has not changed, a second try would fail too.
                if not left or metadata_in(raw).resource_version == version:
                    raise
            version, lack = metadata_in(raw).resource_version, self._lack(raw)
        return lack

    def _lack(self, raw: bytes) -> Lack | None:
        return lack_of(_POD, raw, self._space.name, self._engine)

    async def restart_all(self, asked: Iterable[Workload]) -> dict[Workload, str]:
        """Restart workloads one at a time; return why each is not repaired, "" if it is.

        A workload that must wait for disruption budgets does not delay the others.
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
                    outcomes[workload] = str(error)
                    waiting.append(workload)
                except TimeoutError as error:
                    return {**dict.fromkeys(pending, str(error)), **outcomes}
                except errors.ApiError as error:
                    outcomes[workload] = str(error)
            if len(waiting) < len(pending):
                end = loop.time() + self._patience
            else:
                complain(f"{waiting[0]}: waiting: {outcomes[waiting[0]]}")
                if not await self._wait_for_change(
                    resources.DISRUPTION_BUDGETS, page.resource_version, end
                ):
                    break
            pending = waiting
        return outcomes

    async def _restart(self, workload: Workload) -> str:
        """Restart a workload and wait for its rollout; return why it is not repaired, "" if it is.

        Raises BudgetError, TimeoutError, ApiError.
        """
        resource = plan.RESTARTED[workload[:2]]
        for left in reversed(range(_TRIES)):
            await self._pace.wait()
            stored = await self._get(resource, workload)
            new_pod, why = await self._try_pod(stored, resource)
            if why:
                return why
            # Last, because others can disrupt pods at any time.
            seen = await observe(self._live, self._space, self._engine)
            if not seen.lacking(workload):
                return ""
            members = [pod.pod for pod in seen.pods if pod.workload == workload]
            if why := plan.why_budgets_forbid(seen, members, plan.disruptions(stored)):
                raise BudgetError(why)
            template = {"metadata": {"annotations": {_RESTARTED_AT: datetime.now(UTC).isoformat()}}}
            version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
            patch = MergePatch({"metadata": version, "spec": {"template": template}})
            if why := await self._why_not_placed(workload, patch, new_pod, members):
                return why
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
            if not await self._wait_for_change(
                resource, version, end, f"metadata.name={workload.name}"
            ):
                text = f"the rollout of {workload} is not complete after {self._patience:g} s"
                raise TimeoutError(f"{text}: see kubectl rollout status")
        complain(f"{workload}: rollout complete")
        rest = (await observe(self._live, self._space, self._engine)).lacking(workload)
        return "its new pods lack it too: harbourmaster doctor" if rest else ""

    async def _get(self, resource: Resource, workload: Workload) -> Json:
        return decode_anything(await self._client.get(resource, workload.name, self._space.name))

    async def _try_pod(self, stored: Json, resource: Resource) -> tuple[bytes, str]:
        """Create a pod of the workload by dry run; return it, and why a restart would not help."""
        if why := plan.why_not(stored):
            return b"", why
        kind = KINDS[resource.group, resource.version, resource.kind]
        pod = pod_of(stored, kind, self._space.name)
        pod["metadata"]["generateName"] = f"{pod['metadata'].pop('name')[:50]}-"
        try:
            raw = await self._client.create(resources.PODS, pod, self._space.name, dry_run=True)
        except errors.ApiError as error:
            return b"", f"a new pod of it would be refused: {error}"
        if not (lack := self._lack(raw)):
            return raw, ""
        why = "no webhook answers, or another one undoes it: harbourmaster doctor"
        return raw, f"a new pod would lack {', '.join(lack.fields)} too: {why}"

    async def _why_not_placed(
        self, workload: Workload, patch: MergePatch, new_pod: bytes, members: Sequence[Pod]
    ) -> str:
        """Return why a restart would leave fewer pods, by the nodes and by a dry run, or ""."""
        resource = plan.RESTARTED[workload[:2]]
        is_daemon = resource == resources.DAEMON_SETS
        try:
            nodes = await self._live.items(resources.NODES, decode_node)
        except errors.ForbiddenError as error:
            return str(error) if is_daemon else ""
        if is_daemon:
            # Its controller goes by the template, which a restart changes by the webhook.
            place = workload.name, patch, workload.namespace
            after = decode_anything(await self._client.patch(resource, *place, dry_run=True))
            new_pod = msgspec.json.encode(pod_of(after, _DAEMON_SET, workload.namespace))
        return plan.why_not_placed(new_pod, nodes, members, is_daemon=is_daemon)

    async def _wait_for_change(
        self, resource: Resource, version: str, end: float, selector: str = ""
    ) -> bool:
        """Wait for a change after ``version``; return False if there is none until ``end``."""
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


def run(arguments: Arguments) -> int:
    """Repair; return 0 if no pod lacks anything then, 1 if some do, 2 without a cluster."""
    return run_with_client(arguments, partial(_run, arguments))


async def _run(arguments: Arguments, client: Client) -> int:
    live, pace = Installation(client, arguments.installed_in), Pace(arguments.rate)
    wanted = namespace_of(arguments, client)
    configuration = await live.configuration(MUTATING_WEBHOOKS)
    entries = configuration.entries if configuration else ()
    spaces = [
        namespace
        for namespace in await live.namespaces()
        if wanted in {"", namespace.name} and any(entry.selects(namespace) for entry in entries)
    ]
    if not spaces:
        text = "no webhook is registered for its pods: run harbourmaster doctor"
        raise StartError(f'namespace "{wanted or "*"}": {text}')
    items: list[RepairItem] = []

    async def repair_one(space: Metadata) -> None:
        items.extend(await _repair(arguments, live, space, pace))

    failed = await for_each(spaces, repair_one)
    for error in failed:
        complain(cause(error))
    items.sort(key=lambda item: (item.namespace, item.kind, item.name, item.pods))
    left = sum(len(item.pods) for item in items if not item.done)
    total = f"{plural(left, 'pod')} without what policies set" if left else "no pod lacks anything"
    report = {"dry_run": arguments.dry_run, "left": left, "items": items}
    print_out(arguments, report, [*map(str, items), total])
    return LEFT if left or failed else DONE


async def _repair(
    arguments: Arguments, live: Installation, space: Metadata, pace: Pace
) -> list[RepairItem]:
    """Repair a namespace. Raises ApiError."""
    inputs = await inputs_of(live, space.name)
    if inputs.problems:
        raise ApiError(f"namespace {space.name} is skipped: {inputs.problems[0]}")
    enforced = (policy.compiled for policy in inputs.policies if not policy.compiled.is_audited)
    engine = Engine(replace(inputs.snapshot, policies=policy_set(enforced)), inputs.settings)
    seen = await observe(live, space, engine, arguments.selector or "")
    lacking = [pod for pod in seen.pods if pod.lack]
    if lacking and inputs.doubt:
        complain(inputs.doubt)
    if arguments.dry_run or not lacking:
        return items_of(seen, {}, {})
    changes = Changes(live, space, engine, pace, arguments.timeout)
    patched: dict[str, tuple[Lack | None, str]] = {}

    async def patch(pod: StoredPod) -> None:
        try:
            lack = await changes.patch(pod)
            why = f"still without {', '.join(lack.fields)}" if lack else ""
            patched[pod.pod.name] = lack, why
        except NotFoundError:
            patched[pod.pod.name] = None, ""
        except ApiError as error:
            patched[pod.pod.name] = pod.lack, cause(error)
        complain(f"Pod {pod.pod.key}: {patched[pod.pod.name][1] or 'changed'}")

    changed = [pod for pod in lacking if pod.lack and pod.lack.operations and pod.action != RESTART]
    await for_each(changed, patch)
    asked = dict.fromkeys(pod.workload for pod in lacking if pod.action == RESTART)
    return items_of(seen, patched, await changes.restart_all(asked))
