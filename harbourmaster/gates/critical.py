"""Critical add-ons, which never wait at a gate (decision D12, rescheduler-spec 1.2, 6.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SYSTEM_NAMESPACES: Final = frozenset(("kube-system",))
"""Pods of other namespaces are never critical."""

_ANNOTATION: Final = "scheduler.alpha.kubernetes.io/critical-pod"
_TAINT: Final = "CriticalAddonsOnly"
_CLASSES: Final = frozenset(("system-cluster-critical", "system-node-critical"))
_LEAST_PRIORITY: Final = 2_000_000_000


class Toleration(Struct, frozen=True, gc=False):
    """The fields of a toleration that are read here."""

    key: str | None = None
    operator: str | None = None
    effect: str | None = None

    @property
    def is_for_critical(self) -> bool:
        """Whether it tolerates the taint of critical add-ons, whatever the taint's value."""
        fits = self.key == _TAINT or not self.key
        return fits and self.operator == "Exists" and self.effect in {None, "", "NoSchedule"}


class Importance(Struct, frozen=True, gc=False, rename="camel"):
    """The fields of a pod spec that say how critical the pod is."""

    priority: int | None = None
    priority_class_name: str | None = None
    tolerations: tuple[Toleration, ...] | None = None


def is_critical(namespace: str, annotations: Mapping[str, str], spec: Importance) -> bool:
    """Whether the pod is a critical add-on: of a system namespace, marked, and tolerating."""
    if namespace not in SYSTEM_NAMESPACES:
        return False
    is_marked = (
        annotations.get(_ANNOTATION) == ""
        or (spec.priority or 0) >= _LEAST_PRIORITY
        or spec.priority_class_name in _CLASSES
    )
    return is_marked and _tolerates(spec.tolerations or ())


def _tolerates(tolerations: Iterable[Toleration]) -> bool:
    return any(toleration.is_for_critical for toleration in tolerations)
