"""The steps of ``harbourmaster uninstall`` that remove our marks from objects of users.

These objects stay, except pods that wait in a scheduler that no longer gets answers: a pod's
scheduler cannot be changed.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.patches import JsonPatch, MergePatch
from harbourmaster.api.resources import NAMESPACES, NODES, PODS
from harbourmaster.cli.batches import for_each, plural, shorten
from harbourmaster.cli.installed import OUR_DOMAIN
from harbourmaster.cli.live.cluster import collect
from harbourmaster.cli.live.kinds import decode_workload, metadata_in
from harbourmaster.cli.migrate.model import KEPTN
from harbourmaster.cli.uninstall.removal import NOTHING
from harbourmaster.gates.known_keys import KNOWN_KEYS
from harbourmaster.gates.metadata import PARENT_KEY, REMOVED_KEY
from harbourmaster.gates.owners import SUPPORTED
from harbourmaster.gates.release import CHECKS_KEY, NONE, OURS, removal
from harbourmaster.gates.waits import ON_TIMEOUT_KEY, TIMEOUT_KEY, WAIT_FOR_KEY
from harbourmaster.gates.workload import workload_of
from harbourmaster.kube.errors import ApiError, ConflictError, InvalidError, NotFoundError
from harbourmaster.rescheduling.reservation import clear, decode_held

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import TypeAlias

    import msgspec

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.live.kinds import Workload
    from harbourmaster.cli.uninstall.removal import Removal

    Object: TypeAlias = msgspec.Raw | bytes

MIRRORED: Final = f"gates.{OUR_DOMAIN}/enabled"
"""The label on namespaces that mirrors Keptn's annotation."""
TRIES: Final = 3
"""The number of attempts to patch an object that other clients change."""
_WRITTEN_BY_USERS: Final = {WAIT_FOR_KEY, TIMEOUT_KEY, ON_TIMEOUT_KEY}
_WRITTEN_BY_US: Final = frozenset(
    key for key in KNOWN_KEYS - _WRITTEN_BY_USERS if key.startswith(OURS)
)
_LEFT_TO_KEPTN: Final = "left to Keptn, whose webhook is registered"
_WAITING: Final = "spec.nodeName=,status.phase=Pending"
"""Pods that may carry a gate, or wait in a scheduler: they have no node."""


class Marked(Struct, frozen=True):
    """An object with marks of ours, and the patch that removes them."""

    name: str
    namespace: str | None
    patch: JsonPatch | MergePatch


def _find_gate(raw: Object, *, keptn: bool) -> Marked | None:
    """Return the pod if it carries the gate; with ``keptn``, if Keptn would not release it.

    The patch fails if gates have moved or the name belongs to another pod.
    """
    pod = decode_workload(raw)
    metadata = pod.metadata
    operations = removal(metadata.uid, pod.gates, metadata.annotations or None)
    if not operations or (keptn and metadata.annotations.get(CHECKS_KEY) != NONE):
        return None
    return Marked(metadata.name, metadata.namespace, JsonPatch(operations))


def _find_annotations(raw: Object, *, keptn: bool, skipped: Collection[str]) -> Marked | None:
    """Return the pod if we annotated it and its UID is not in ``skipped``.

    Keptn reads REMOVED_KEY at each update of a pod: without it, Keptn adds its gate, which the API
    server refuses (keptn-spec 2.3).
    """
    pod = metadata_in(raw)
    written = _WRITTEN_BY_US if keptn else _WRITTEN_BY_US | {REMOVED_KEY}
    ours = pod.annotations.keys() & written
    if not ours or pod.uid in skipped:
        return None
    patch = MergePatch({"metadata": {"annotations": dict.fromkeys(ours)}})
    return Marked(pod.name, pod.namespace, patch)


def _find_label(raw: Object) -> Marked:
    patch = MergePatch({"metadata": {"labels": {MIRRORED: None}}})
    return Marked(metadata_in(raw).name, None, patch)


def _find_reservation(raw: Object) -> Marked | None:
    node = decode_held(raw)
    operations = clear(node)
    return Marked(node.name, None, JsonPatch(operations)) if operations else None


def _find_finalizers(raw: Object) -> Marked | None:
    """Return the object if one of our finalizers holds it.

    The patch keeps the finalizers of others, and fails if any changed meanwhile.
    """
    metadata = metadata_in(raw)
    present = list(metadata.finalizers)
    kept = [name for name in present if not _is_our_finalizer(name)]
    if kept == present:
        return None
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": metadata.uid},
        {"op": "test", "path": "/metadata/finalizers", "value": present},
        {"op": "replace", "path": "/metadata/finalizers", "value": kept},
    ]
    return Marked(metadata.name, metadata.namespace or None, JsonPatch(operations))


def _is_our_finalizer(name: str) -> bool:
    domain = name.partition("/")[0]
    return domain == OUR_DOMAIN or domain.endswith(f".{OUR_DOMAIN}")


def _is_recreated(pod: Workload) -> bool:
    """Whether we set the pod's scheduler, and its owner recreates it without that scheduler."""
    metadata = pod.metadata
    annotations = metadata.annotations
    workload = workload_of(annotations, metadata.labels)
    if workload is None and annotations.keys().isdisjoint((PARENT_KEY, CHECKS_KEY)):
        # It was never gated, so its own template names the scheduler.
        return False
    owner = metadata.controller
    return owner is not None and owner.kind in SUPPORTED


class MarkRemover:
    """Removes what we added to objects of users."""

    def __init__(self, removal: Removal) -> None:
        self._removal = removal
        self._client = removal.client

    async def release_pods(self) -> str:
        """Remove our gate from every pod, so that none waits for a controller that is gone."""
        keptn = await self._is_keptn_registered()
        find = partial(_find_gate, keptn=keptn)
        pods = await collect(self._client, PODS, find, field_selector=_WAITING)
        if keptn and not pods:
            return _LEFT_TO_KEPTN
        released = await self._remove(PODS, find, pods, "gates")
        return f"{self._removal.would('release', 'released')} {plural(released, 'pod')}"

    async def delete_scheduled_pods(self) -> str:
        """Delete the pods that wait in the scheduler and that an owner recreates."""
        pods = await self._scheduled_pods()
        if not pods:
            return NOTHING
        if await self._is_keptn_registered():
            return _LEFT_TO_KEPTN
        recreated = [pod.metadata for pod in pods if _is_recreated(pod)]
        left = sorted(pod.metadata.key for pod in pods if not _is_recreated(pod))
        parts = []
        if recreated:
            deleted = len(await self._removal.delete(PODS, recreated))
            verb = self._removal.would("delete", "deleted")
            parts.append(f"{verb} {plural(deleted, 'pod')}, for their owners to recreate")
        if left:
            parts.append(f"{plural(len(left), 'pod')} that no owner recreates: {shorten(left)}")
        return "; ".join(parts)

    async def find_scheduled_pods(self) -> list[str]:
        """Return a line about the pods that wait in the scheduler forever, if there are any."""
        try:
            pods = await self._scheduled_pods()
            if not pods or await self._is_keptn_registered():
                return []
        except ApiError:
            # The step has reported why.
            return []
        scheduler = self._removal.options.scheduler
        names = shorten(sorted(pod.metadata.key for pod in pods))
        waiting = f"{plural(len(pods), 'pod')} in {scheduler}, which gets no answers now: {names}"
        remedy = f"delete them, and remove schedulerName {scheduler} from what creates them"
        return [f"{waiting}: {remedy}"]

    async def _scheduled_pods(self) -> list[Workload]:
        """Return the pods that the scheduler has yet to place."""
        scheduler = self._removal.options.scheduler
        if not scheduler:
            return []
        return [
            pod
            for pod in await collect(self._client, PODS, decode_workload, field_selector=_WAITING)
            if pod.spec.scheduler_name == scheduler
            and not (pod.spec.node_name or pod.metadata.deletion_timestamp)
        ]

    async def _is_keptn_registered(self) -> bool:
        return KEPTN in await self._removal.systems()

    async def remove_annotations(self) -> str:
        """Remove our annotations from the pods; those that users wrote stay."""
        keptn = await self._is_keptn_registered()
        # By its annotations, the next run knows a pod that this one should have deleted.
        waiting = [] if keptn else await self._scheduled_pods()
        skipped = {pod.metadata.uid for pod in waiting if _is_recreated(pod)}
        find = partial(_find_annotations, keptn=keptn, skipped=skipped)
        pods = await collect(self._client, PODS, find, metadata_only=True)
        done = await self._remove(PODS, find, pods, "annotations")
        return f"{self._removal.would('remove', 'removed')} annotations from {plural(done, 'pod')}"

    async def remove_labels(self) -> str:
        """Remove our label from the namespaces; Keptn's annotation is the user's and stays."""
        namespaces = await collect(
            self._client, NAMESPACES, _find_label, label_selector=MIRRORED, metadata_only=True
        )
        done = await self._remove(NAMESPACES, _find_label, namespaces, "labels")
        return f"{self._removal.would('remove', 'removed')} labels from {plural(done, 'namespace')}"

    async def remove_reservations(self) -> str:
        """Remove the reservations for critical add-ons from nodes; taints of others stay."""
        nodes = await collect(self._client, NODES, _find_reservation)
        return await self._free(NODES, _find_reservation, nodes, "reservations", "node")

    async def remove_finalizers(self, resource: Resource) -> str:
        """Remove our finalizers, so that no deletion waits for us."""
        objects = await collect(self._client, resource, _find_finalizers, metadata_only=True)
        return await self._free(resource, _find_finalizers, objects, "finalizers", "object")

    async def _free(
        self,
        resource: Resource,
        find: Callable[[Object], Marked | None],
        objects: list[Marked],
        marks: str,
        noun: str,
    ) -> str:
        if not objects:
            return NOTHING
        done = await self._remove(resource, find, objects, marks)
        return f"{self._removal.would('free', 'freed')} {plural(done, noun)}"

    async def _remove(
        self,
        resource: Resource,
        find: Callable[[Object], Marked | None],
        objects: list[Marked],
        marks: str,
    ) -> int:
        """Patch the objects unless this is a dry run; return how many are without marks now."""
        if self._removal.options.dry_run:
            return len(objects)
        errors = await for_each(objects, partial(self._patch, resource, find))
        self._removal.report(errors, marks)
        return len(objects) - len(errors)

    async def _patch(
        self, resource: Resource, find: Callable[[Object], Marked | None], marked: Marked | None
    ) -> None:
        """Patch an object; if it changed meanwhile, read it and try again."""
        with suppress(NotFoundError):
            for left in reversed(range(TRIES)):
                if marked is None:
                    return
                try:
                    await self._client.patch(resource, marked.name, marked.patch, marked.namespace)
                except (ConflictError, InvalidError):
                    if not left:
                        raise
                    marked = find(await self._client.get(resource, marked.name, marked.namespace))
                else:
                    return
