"""The patch that makes a pod wait: annotations, and our gate or our scheduler's name.

(keptn-spec 2.8, 6)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.patches import escape
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GATE: Final = "keptn-prechecks-gate"
PROVISIONAL: Final[Mapping[str, str]] = {PARENT_KEY: UNRESOLVED}
"""The annotations of a pod that is gated before we know whether it must wait."""
SCHEDULER_NAME: Final = "keptn-scheduler"
"""The scheduler with which pods wait that have no gate, unless settings name another."""

_GATES: Final = "/spec/schedulingGates"
_ANNOTATIONS: Final = "/metadata/annotations"
_SCHEDULER_NAME: Final = "/spec/schedulerName"


def hold_operations(
    annotations: Mapping[str, str],
    *,
    has_annotations: bool,
    gates: list[Any] | None,
    scheduler_name: str | None = None,
    removed: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """Return the operations that make a pod wait: set ``annotations`` and append our gate.

    Annotations in ``removed`` are removed.

    ``has_annotations``: the pod has a map of them, be it empty. ``gates`` are those it has, ours
    perhaps among them, and stay as they are. With ``scheduler_name`` the pod gets that instead of
    a gate; empty for one that has it.
    """
    operations: list[dict[str, Any]] = []
    if scheduler_name is not None:
        if scheduler_name:
            operations.append(_add(_SCHEDULER_NAME, scheduler_name))
    elif gates is None:
        operations.append(_add(_GATES, [{"name": GATE}]))
    elif not is_gated(gates):
        operations.append(_add(f"{_GATES}/-", {"name": GATE}))
    set_keys = annotation_operations(annotations, has_annotations=has_annotations)
    return operations + set_keys + removals(removed)


def annotation_operations(
    annotations: Mapping[str, str], *, has_annotations: bool, at: str = _ANNOTATIONS
) -> list[dict[str, Any]]:
    """Return the operations that set annotations in the map at a JSON pointer, or make the map."""
    if annotations and not has_annotations:
        return [_add(at, dict(annotations))]
    return [_add(f"{at}/{escape(key)}", value) for key, value in annotations.items()]


def removals(keys: Iterable[str], at: str = _ANNOTATIONS) -> list[dict[str, Any]]:
    """Return the operations that remove annotations from the map at a JSON pointer."""
    return [{"op": "remove", "path": f"{at}/{escape(key)}"} for key in sorted(keys)]


def is_gated(gates: list[Any]) -> bool:
    """Whether our gate is one of them."""
    return any(isinstance(gate, dict) and gate.get("name") == GATE for gate in gates)


def _add(path: str, value: object) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}
