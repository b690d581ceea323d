"""Patches of waiting pods: their release, and the annotations that say how far they are."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

from harbourmaster.api.patches import JsonPatch, escape
from harbourmaster.api.resources import PODS
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from harbourmaster.gates.release import CHECKS_KEY, annotation, removal, wakeup_patch
from harbourmaster.kube.errors import ConflictError, InvalidError, NotFoundError
from harbourmaster.lifecycle.gated_pods import decode_pod
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.kube.client import Client
    from harbourmaster.lifecycle.gated_pods import Pod

    Operations = list[dict[str, Any]]


class PodReleaser:
    """Releases and annotates pods. Methods ignore a deleted pod and raise other ApiErrors."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self.decode = partial(decode_pod, scheduler=context.scheduler.of_pods)
        # Released pods by key, as the watch shows them until it brings the release.
        self._released: dict[str, Pod] = {}
        self._log = get_logger("gates")

    def has_released(self, pod: Pod) -> bool:
        """Whether the pod was released in this state, and the watch is behind."""
        return self._released.get(pod.key) is pod

    async def release(
        self, pod: Pod, added: Mapping[str, str] | None = None, *, cached: Pod | None = None
    ) -> bool:
        """Remove our gate, or wake the scheduler, and add annotations; return False if it is gone.

        ``cached`` is the pod as the watch shows it, if ``pod`` was read from the API server.
        """
        operations = _release_operations(pod, added)
        try:
            is_there = await _patch(self._client, pod, operations)
        except (ConflictError, InvalidError):
            # Changed meanwhile, perhaps by the owner of the other gates.
            is_there = False
            with contextlib.suppress(NotFoundError):
                live = self.decode(await self._client.get(PODS, pod.name, pod.namespace))
                is_there = live.uid == pod.uid
                if is_there and live.is_ours:
                    is_there = await _patch(self._client, live, _release_operations(live, added))
        self._released[pod.key] = cached or pod
        self._log.debug("pod released", pod=pod.key)
        return is_there

    async def label(self, pod: Pod, key: str, value: str) -> None:
        """Add a label, beside those that its owner selects it by."""
        path = f"/metadata/labels/{escape(key)}"
        test = {"op": "test", "path": "/metadata/uid", "value": pod.uid}
        await _patch(self._client, pod, [test, {"op": "add", "path": path, "value": value}])

    async def end_provisional_state(self, pod: Pod, added: Mapping[str, str]) -> None:
        """Add the annotations that admission could not decide on, and remove its own."""
        operations: Operations = [{"op": "test", "path": "/metadata/uid", "value": pod.uid}]
        if PARENT_KEY in pod.annotations:
            path = annotation(PARENT_KEY)
            operations += [
                {"op": "test", "path": path, "value": UNRESOLVED},
                {"op": "remove", "path": path},
            ]
        fields: dict[str, Any] = {annotation(key): value for key, value in added.items()}
        if not pod.has_annotations:
            fields = {"/metadata/annotations": dict(added)}
        operations += [
            {"op": "add", "path": path, "value": value} for path, value in fields.items()
        ]
        await _patch(self._client, pod, operations)

    def forget(self, key: str) -> None:
        """Forget a pod that no longer waits."""
        self._released.pop(key, None)


async def annotate(client: Client, pod: Pod, added: Mapping[str, str]) -> None:
    """Add annotations to a pod that keeps waiting. Raises ApiError."""
    annotations = pod.annotations if pod.has_annotations else None
    operations = wakeup_patch(pod.uid, annotations, added, revision=pod.resource_version)
    await _patch(client, pod, operations)


async def _patch(client: Client, pod: Pod, operations: Operations | None) -> bool:
    """Patch the pod, if there is something to do; return False if it is gone."""
    if operations:
        try:
            await client.patch(PODS, pod.name, JsonPatch(operations), pod.namespace)
        except NotFoundError:
            return False
    return True


def _release_operations(pod: Pod, added: Mapping[str, str] | None) -> Operations | None:
    annotations = pod.annotations if pod.has_annotations else None
    options: Any = {"drop": (PARENT_KEY,), "revision": pod.resource_version}
    if pod.is_in_scheduler:
        return wakeup_patch(pod.uid, annotations, added or {}, **options)
    if not pod.has_checks:
        options["drop"] += (CHECKS_KEY,)
    return removal(pod.uid, pod.gates, annotations, add=added, **options)
