"""The steps of ``harbourmaster uninstall`` that change objects of the users'.

They stay, but for pods in a scheduler that nobody answers any more: no other can be given to them.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.patches import JsonPatch, MergePatch
from harbourmaster.api.resources import NAMESPACES, NODES, PODS
from harbourmaster.cli.batches import for_each, many, shown
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.cli.live.cluster import collect
from harbourmaster.cli.live.kinds import decode_workload, metadata_in
from harbourmaster.cli.migrate.model import KEPTN
from harbourmaster.cli.uninstall.removal import NOTHING
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.known_keys import KNOWN_KEYS
from harbourmaster.gates.metadata import PARENT_KEY, REMOVED_KEY
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.release import CHECKS_KEY, NONE, OURS, removal
from harbourmaster.gates.waits import ON_TIMEOUT_KEY, TIMEOUT_KEY, WAIT_FOR_KEY
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError, ConflictError, InvalidError, NotFoundError
from harbourmaster.rescheduling.reservation import clear, decode_held

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import TypeVar

    import msgspec

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.kinds import Workload
    from harbourmaster.cli.uninstall.removal import Removal
    from harbourmaster.rescheduling.reservation import Held

    Item = TypeVar("Item")
    Operations = list[dict[str, Any]] | None

MIRRORED: Final = f"gates.{OUR_DOMAIN}/enabled"
"""The label on namespaces that mirrors Keptn's annotation."""
_THEIRS: Final = {WAIT_FOR_KEY, TIMEOUT_KEY, ON_TIMEOUT_KEY}
_WRITTEN: Final = frozenset(key for key in KNOWN_KEYS - _THEIRS if key.startswith(OURS))


def gated_pod(raw: msgspec.Raw | bytes, *, keptn: bool = False) -> Workload | None:
    """The pod if it carries the gate; ``keptn``: if it has no checks, so that Keptn keeps it."""
    pod = decode_workload(raw)
    is_left = keptn and pod.metadata.annotations.get(CHECKS_KEY) != NONE
    return pod if GATE in pod.gates and not is_left else None


def ungate(pod: Workload) -> list[dict[str, Any]] | None:
    """The patch that removes the gate, and no other, from this very pod; None where it has none.

    It fails where gates have moved or the name belongs to another pod by now.
    """
    return removal(pod.metadata.uid, pod.gates, pod.metadata.annotations or None)


def our_annotations(pod: Metadata, *, keptn: bool) -> list[str]:
    """What we wrote on a pod: of our keys, users write there those of waits alone.

    Keptn reads REMOVED_KEY at each update of a pod: without it, Keptn adds its gate, which the API
    server refuses (keptn-spec 2.3).
    """
    written = _WRITTEN if keptn else _WRITTEN | {REMOVED_KEY}
    return [key for key in pod.annotations if key in written]


def is_recreated(pod: Workload) -> bool:
    """Whether it has its scheduler from us, and an owner that makes another without it."""
    metadata = pod.metadata
    annotations = metadata.annotations
    named = workload_of(annotations, metadata.labels)
    if named is None and annotations.keys().isdisjoint((PARENT_KEY, CHECKS_KEY)):
        # It was never gated, so its own template names the scheduler.
        return False
    owner = metadata.controller
    return owner is not None and owner.kind in SUPPORTED


def scheduled_pod(scheduler: str, raw: msgspec.Raw | bytes) -> Workload | None:
    """The pod if that scheduler has yet to place it."""
    pod = decode_workload(raw)
    if pod.spec.scheduler_name != scheduler or pod.spec.node_name:
        return None
    return None if pod.metadata.deletion_timestamp else pod


def reserved_node(raw: msgspec.Raw) -> Held | None:
    """The node if anything of ours is on it."""
    node = decode_held(raw)
    return node if clear(node) else None


def our_finalizers(metadata: Metadata) -> bool:
    """Whether one of our finalizers holds the object."""
    return any(map(_is_our_finalizer, metadata.finalizers))


def without_our_finalizers(metadata: Metadata) -> list[dict[str, Any]]:
    """The patch that leaves only others' finalizers; it fails where they changed meanwhile."""
    present = metadata.finalizers
    others = [one for one in present if not _is_our_finalizer(one)]
    return [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/finalizers", "value": list(present)},
        {"op": "replace", "path": "/metadata/finalizers", "value": others},
    ]


def _is_our_finalizer(name: str) -> bool:
    domain = name.partition("/")[0]
    return domain == OUR_DOMAIN or domain.endswith(f".{OUR_DOMAIN}")


TRIES: Final = 3
"""How often a pod is tried again after it was changed by somebody else."""
_WAITING: Final = "spec.nodeName=,status.phase=Pending"
"""Pods that may carry a gate, or wait in a scheduler: they have no node."""


class Undoing:
    """Removes what we added to objects of others."""

    def __init__(self, removal: Removal) -> None:
        self._removal = removal
        self._client = removal.client

    async def gates(self) -> str:
        """Remove our gate from every pod, so that none waits for a controller that is gone."""
        keptn = KEPTN in await self._removal.systems()
        pick = partial(gated_pod, keptn=keptn)
        pods = await collect(self._client, PODS, pick, field_selector=_WAITING)
        if keptn and not pods:
            return "left to Keptn, whose webhook is registered"
        released = await self._each(pods, self._ungate, "gates")
        return f"{self._removal.would('release', 'released')} {many(released, 'pod')}"

    async def schedulers(self) -> str:
        """Delete the pods that wait in the scheduler and that an owner recreates."""
        scheduler = self._removal.options.scheduler
        if not scheduler:
            return NOTHING
        pods = await self._scheduled()
        if not pods:
            return NOTHING
        if KEPTN in await self._removal.systems():
            return "left to Keptn, whose webhook is registered"
        recreated = [pod.metadata for pod in pods if is_recreated(pod)]
        others = sorted(pod.metadata.key for pod in pods if not is_recreated(pod))
        told = []
        if recreated:
            done = len(await self._removal.delete(PODS, recreated))
            verb = self._removal.would("delete", "deleted")
            told.append(f"{verb} {many(done, 'pod')}, for their owners to recreate")
        if others:
            told.append(f"{many(len(others), 'pod')} that no owner recreates: {shown(others)}")
        return "; ".join(told)

    async def still_scheduled(self) -> list[str]:
        """What waits in the scheduler without end, in one line."""
        try:
            found = await self._scheduled()
            if not found or KEPTN in await self._removal.systems():
                return []
        except ApiError:
            # The step has told why.
            return []
        scheduler = self._removal.options.scheduler
        names = shown(sorted(pod.metadata.key for pod in found))
        waiting = f"{many(len(found), 'pod')} in {scheduler}, which gets no answers now: {names}"
        remedy = f"delete them, and remove schedulerName {scheduler} from what creates them"
        return [f"{waiting}: {remedy}"]

    async def _scheduled(self) -> list[Workload]:
        scheduler = self._removal.options.scheduler
        if not scheduler:
            return []
        pick = partial(scheduled_pod, scheduler)
        return await collect(self._client, PODS, pick, field_selector=_WAITING)

    async def _each(
        self, items: list[Item], act: Callable[[Item], Awaitable[None]], what: str
    ) -> int:
        """Call ``act`` with each unless this is a dry run; returns how many succeeded."""
        if self._removal.options.dry_run:
            return len(items)
        errors = await for_each(items, act)
        self._removal.report(errors, what)
        return len(items) - len(errors)

    async def _ungate(self, pod: Workload) -> None:
        def again(raw: bytes) -> Operations:
            current = gated_pod(raw)
            return ungate(current) if current else None

        place = (PODS, pod.metadata.name, pod.metadata.namespace)
        await self._patch(place, ungate(pod), again)

    async def _patch(
        self,
        place: tuple[Resource, str, str | None],
        operations: Operations,
        again: Callable[[bytes], Operations],
    ) -> None:
        """Apply operations, if any; where the object changed meanwhile, ``again`` makes new."""
        resource, name, namespace = place
        for left in reversed(range(TRIES)):
            if not operations:
                return
            try:
                await self._client.patch(resource, name, JsonPatch(operations), namespace)
            except NotFoundError:
                return
            except (ConflictError, InvalidError):
                if not left:
                    raise
                try:
                    operations = again(await self._client.get(resource, name, namespace))
                except NotFoundError:
                    return
            else:
                return

    async def annotations(self) -> str:
        """Remove our annotations from the pods; those that users wrote stay."""
        keptn = KEPTN in await self._removal.systems()
        ours = partial(our_annotations, keptn=keptn)
        # By its annotations, the next run knows a pod that this one should have deleted.
        waiting = [] if keptn else await self._scheduled()
        kept = {pod.metadata.uid for pod in waiting if is_recreated(pod)}

        def pick(raw: msgspec.Raw) -> Metadata | None:
            pod = metadata_in(raw)
            return pod if pod.uid not in kept and ours(pod) else None

        async def one(pod: Metadata) -> None:
            patch = MergePatch({"metadata": {"annotations": dict.fromkeys(ours(pod))}})
            with suppress(NotFoundError):
                await self._client.patch(PODS, pod.name, patch, pod.namespace)

        found = await collect(self._client, PODS, pick, metadata_only=True)
        done = await self._each(found, one, "annotations")
        return f"{self._removal.would('remove', 'removed')} annotations from {many(done, 'pod')}"

    async def labels(self) -> str:
        """Remove our label from the namespaces; Keptn's annotation is the user's and stays."""
        patch = MergePatch({"metadata": {"labels": {MIRRORED: None}}})

        async def one(metadata: Metadata) -> None:
            with suppress(NotFoundError):
                await self._client.patch(NAMESPACES, metadata.name, patch)

        found = await self._removal.metadata(NAMESPACES, label_selector=MIRRORED)
        done = await self._each(found, one, "labels")
        return f"{self._removal.would('remove', 'removed')} labels from {many(done, 'namespace')}"

    async def reservations(self) -> str:
        """Remove the reservations for critical add-ons from nodes; taints of others stay."""
        nodes = await collect(self._client, NODES, reserved_node)
        if not nodes:
            return NOTHING
        done = await self._each(nodes, self._unreserve, "reservations")
        return f"{self._removal.would('free', 'freed')} {many(done, 'node')}"

    async def _unreserve(self, node: Held) -> None:
        place = (NODES, node.name, None)
        await self._patch(place, clear(node), lambda raw: clear(decode_held(raw)))

    async def finalizers(self, resource: Resource) -> str:
        """Remove our finalizers, so that no deletion waits for us."""

        async def one(metadata: Metadata) -> None:
            patch = JsonPatch(without_our_finalizers(metadata))
            with suppress(NotFoundError):
                await self._client.patch(resource, metadata.name, patch, metadata.namespace or None)

        found = [one for one in await self._removal.metadata(resource) if our_finalizers(one)]
        if not found:
            return NOTHING
        done = await self._each(found, one, "finalizers")
        return f"{self._removal.would('free', 'freed')} {many(done, 'object')}"
