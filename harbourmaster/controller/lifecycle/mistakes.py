"""Reports keys that have no effect, on the objects that have them (decision D19)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from harbourmaster.api.metadata import HasMetadata
from harbourmaster.controller.lifecycle.pod_workloads import Obstacle
from harbourmaster.controller.lifecycle.signals import Reference
from harbourmaster.lifecycle.evaluations import target_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from harbourmaster.controller.lifecycle.context import Context
    from harbourmaster.kube.reflector import Reflector
    from harbourmaster.lifecycle.gated_pods import Pod
    from harbourmaster.lifecycle.model import EvaluationDefinition

T = TypeVar("T", bound=HasMetadata)

_STATES: Final = {
    "gate-key-unknown": "KeyUnknown",
    "gate-list-empty": "ListEmpty",
    "gate-list-invalid": "ListInvalid",
    "gate-owner-unsupported": "OwnerUnsupported",
    "gate-timeout-invalid": "TimeoutInvalid",
    "gate-wait-invalid": "WaitInvalid",
}
"""States of the phase Gate, by the code of the admission warning."""


class MistakeReconciler(Generic[T]):
    """Reports each mistake of each object in a cache once."""

    def __init__(
        self, context: Context, cache: Reflector[T], find: Callable[[T], list[Obstacle]]
    ) -> None:
        self._signals = context.signals
        self._resource = cache.resource
        self._store = cache.store
        self._find = find
        self._reported: dict[str, list[Obstacle]] = {}

    def map_changes(self, keys: Iterable[str] | None) -> Iterator[str]:
        """Return the keys of objects with a mistake that was not reported."""
        for key in list(self._store.keys()) if keys is None else keys:
            obj = self._store.get(key)
            mistakes = [] if obj is None else self._find(obj)
            if not mistakes:
                self._reported.pop(key, None)
            elif mistakes != self._reported.get(key):
                yield key

    async def reconcile(self, key: str) -> None:
        """Report the mistakes of an object that were not reported."""
        obj = self._store.get(key)
        if obj is None:
            return
        reported, mistakes = self._reported.get(key, []), self._find(obj)
        self._reported[key] = mistakes
        for mistake in mistakes:
            if mistake not in reported:
                about = Reference(self._resource, obj.metadata)
                self._signals.emit(about, mistake.phase, mistake.state, mistake.text, warning=True)


def report_definition_mistakes(context: Context) -> MistakeReconciler[EvaluationDefinition]:
    """Return the reconciler for targets of KeptnEvaluationDefinitions that cannot be parsed."""

    def find(definition: EvaluationDefinition) -> list[Obstacle]:
        return [
            Obstacle("EvaluationTarget", "Invalid", str(error))
            for error in target_errors(definition)
        ]

    return MistakeReconciler(context, context.caches.evaluation_definitions, find)


def report_pod_mistakes(context: Context) -> MistakeReconciler[Pod]:
    """Return the reconciler for keys and owners of unbound pods in namespaces with gates."""

    def find(pod: Pod) -> list[Obstacle]:
        if not pod.mistakes or not context.has_gates(pod.namespace):
            return []
        return [Obstacle("Gate", _STATES[mistake.code], mistake.text) for mistake in pod.mistakes]

    return MistakeReconciler(context, context.caches.pods, find)
