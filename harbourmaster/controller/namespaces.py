"""Copies Keptn's opt-in, an annotation of a Namespace, into a label for selectors (D6).

Only the annotation counts. A label without it is removed, because it may be a remainder, and an
event names the annotation to set instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harbourmaster.api.patches import JsonPatch, escape
from harbourmaster.api.resources import NAMESPACES
from harbourmaster.controller import names
from harbourmaster.controller.caches import decode_namespace
from harbourmaster.controller.controller import Controller
from harbourmaster.controller.objects import reference
from harbourmaster.controller.runtime import Runnables
from harbourmaster.gates.metadata import OPT_IN, OPT_IN_KEY
from harbourmaster.gates.waits import REQUIRED, WAIT_FOR_KEY
from harbourmaster.kube.errors import ConflictError, InvalidError, NotFoundError
from harbourmaster.registration.desired import ENABLED, GATES_LABEL
from harbourmaster.telemetry.logging import get_logger

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from harbourmaster.controller.caches import LabelledNamespace
    from harbourmaster.controller.runtime import Runtime
    from harbourmaster.gates.mistakes import Mistake
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.events import EventRecorder
    from harbourmaster.kube.store import Store
    from harbourmaster.kube.workqueue import WorkQueue


def decide_patch(namespace: LabelledNamespace) -> list[dict[str, Any]]:
    """Return the JSON Patch that makes the label follow the annotation; empty if it does."""
    if namespace.is_ending or agrees(namespace):
        return []
    path = f"/metadata/labels/{escape(GATES_LABEL)}"
    # The annotation may have changed since this version.
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": namespace.resource_version}
    if not namespace.is_labelled:
        return [test, {"op": "remove", "path": path}]
    if not namespace.has_labels:
        return [test, {"op": "add", "path": "/metadata/labels", "value": {GATES_LABEL: ENABLED}}]
    return [test, {"op": "add", "path": path, "value": ENABLED}]


def agrees(namespace: LabelledNamespace) -> bool:
    """Whether the label follows the annotation."""
    return namespace.label == (ENABLED if namespace.is_labelled else None)


class NamespaceReconciler:
    """Keeps the label of each Namespace, except ``excluded`` ones; keys are names."""

    def __init__(
        self,
        client: Client,
        store: Store[LabelledNamespace],
        events: EventRecorder,
        excluded: Collection[str],
    ) -> None:
        self._client = client
        self._store = store
        self._events = events
        self._excluded = frozenset(excluded)
        self._reported: dict[str, tuple[Mistake, ...]] = {}
        self._log = get_logger("namespaces")

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Select the keys that need a write or an event, which are few."""
        for key in list(self._store.keys()) if keys is None else keys:
            namespace = self._store.get(key)
            if namespace is None or not namespace.mistakes:
                self._reported.pop(key, None)
            if namespace is not None and key not in self._excluded:
                is_reported = namespace.mistakes == self._reported.get(key, ())
                if not is_reported or decide_patch(namespace):
                    yield key

    async def reconcile(self, key: str) -> None:
        """Make the label follow the annotation. Raises ApiError."""
        namespace = self._store.get(key)
        if namespace is None or key in self._excluded:
            return
        self._report(namespace)
        try:
            await self._apply(namespace)
        except (InvalidError, ConflictError):
            # There is probably a newer version that the watch has not reported yet.
            await self._apply_fresh(key)
        except NotFoundError:
            return

    def _report(self, namespace: LabelledNamespace) -> None:
        if namespace.mistakes == self._reported.get(namespace.name, ()):
            return
        self._reported[namespace.name] = namespace.mistakes
        regarding = reference(NAMESPACES, {"name": namespace.name, "uid": namespace.uid})
        for mistake in namespace.mistakes:
            self._events.emit(regarding, "Warning", "GatesOptInUnknown", mistake.text)

    async def _apply_fresh(self, name: str) -> None:
        try:
            await self._apply(decode_namespace(await self._client.get(NAMESPACES, name)))
        except NotFoundError:
            return

    async def _apply(self, namespace: LabelledNamespace) -> None:
        operations = decide_patch(namespace)
        if not operations:
            return
        await self._client.patch(NAMESPACES, namespace.name, JsonPatch(operations))
        self._log.info(
            "gates label updated", namespace=namespace.name, enabled=namespace.is_labelled
        )
        if not namespace.is_labelled:
            self._events.emit(
                reference(NAMESPACES, {"name": namespace.name, "uid": namespace.uid}),
                "Normal",
                "GatesLabelRemoved",
                f"label {GATES_LABEL}={namespace.label} is removed, because it follows the "
                "annotation "
                f"{OPT_IN_KEY}={OPT_IN}, or the label {WAIT_FOR_KEY}={REQUIRED}, and both are "
                "missing: set one of them instead",
            )


def start(runtime: Runtime) -> Runnables:
    """Start the controller."""
    cache = runtime.namespaces

    def begin(_queue: WorkQueue) -> NamespaceReconciler:
        excluded = runtime.excluded_namespaces
        return NamespaceReconciler(runtime.client, cache.store, runtime.events, excluded)

    controller = Controller(names.NAMESPACES, begin, runtime.metrics, reflectors=(cache,))
    cache.subscribe(controller.enqueue)
    return Runnables(controllers=(controller,))
