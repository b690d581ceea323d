"""The release of waiting pods, and the patch for it (decision D8, D9, keptn-spec 3.6).

A pod that waits in its scheduler instead of at a gate is only changed, so the scheduler asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.api.patches import escape
from harbourmaster.gates.gate import GATE
from harbourmaster.gates.metadata import REMOVED_KEY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

OURS: Final = "gates.harbourmaster.dev/"
"""The prefix of our annotations."""
RELEASED_KEY: Final = f"{OURS}released"
"""On a pod released without its checks; the value is the reason: EXPIRED or BY_HAND."""
EXPIRED: Final = "expired"
BY_HAND: Final = "by-hand"
RELEASED_BY_KEY: Final = f"{OURS}released-by"
HELD_BY_KEY: Final = f"{OURS}held-by"
"""On a pod whose wait was reported: the name of its KeptnWorkloadVersion."""
RELEASED_REASON_KEY: Final = f"{OURS}released-reason"
RERUN_KEY: Final = f"{OURS}rerun"
"""Label of a version whose failed checks are to be repeated; a new value is a new request."""
RERUN_BY_KEY: Final = f"{OURS}rerun-by"
RERUN_CHECKS_KEY: Final = f"{OURS}rerun-checks"
"""Annotation with the names of the tasks and evaluations to replace."""
RERUN_REASON_KEY: Final = f"{OURS}rerun-reason"
RERUN_NOTES: Final = (RERUN_BY_KEY, RERUN_CHECKS_KEY, RERUN_REASON_KEY)
CHECKS_KEY: Final = f"{OURS}checks"
"""On a pod that waits in its scheduler: the last state of its checks, one of those below.

A number follows PASSED where the scheduler was asked again: passed-2, passed-3.
"""
WAITING: Final = "waiting"
CHECKING: Final = "checking"
"""The checks have started; the scheduler's message names them."""
LATE: Final = "late"
FAILED: Final = "failed"
PASSED: Final = "passed"
NONE: Final = "none"
"""It has no checks and waits for objects alone; at a gate as well."""

_PASSED: Final = frozenset(("Succeeded", "Warning"))
_BEGUN: Final = frozenset(("Progressing", "Succeeded", "Failed", "Warning"))
"""Without Deprecated, the state of a deployment whose checks failed."""
_DIGITS: Final = 9
"""Longest number after PASSED; users can write longer ones on their pods."""
_ANNOTATIONS: Final = "/metadata/annotations"


def was_released(annotations: Mapping[str, str]) -> bool:
    """Whether a pod's gate was removed, or it was released where it waits."""
    return bool(annotations.get(RELEASED_KEY) or annotations.get(REMOVED_KEY))


class Approval(Struct, frozen=True):
    """The states of a workload version's first phases, and the owners of its pods.

    ``owners`` are uids of ReplicaSets, StatefulSets or DaemonSets.
    """

    pre_tasks: str
    pre_evaluations: str
    deployment: str
    owners: frozenset[str]

    @property
    def is_given(self) -> bool:
        """Whether the checks before the deployment passed, so that it has begun."""
        return (
            self.pre_tasks in _PASSED
            and self.pre_evaluations in _PASSED
            and self.deployment in _BEGUN
        )


def may_release(approval: Approval | None, owner: str) -> bool:
    """Whether the approval of its version releases a pod of the owner with this uid."""
    return approval is not None and approval.is_given and bool(owner) and owner in approval.owners


def removal(
    uid: str,
    gates: Sequence[str],
    annotations: Mapping[str, str] | None,
    *,
    add: Mapping[str, str] | None = None,
    drop: Iterable[str] = (),
    revision: str = "",
) -> list[dict[str, Any]] | None:
    """The JSON Patch that removes only our gate from this pod; None where it has none.

    ``annotations`` are those that it has, None for no map of them. Those in ``add`` are set, those
    in ``drop`` are taken away where it has them. The patch fails where gates have moved, or where
    the name belongs to another pod by now; and with ``revision``, the resource version at which
    there was no map, where there may be one by now: it would be written over.
    """
    if GATE not in gates:
        return None
    at = f"/spec/schedulingGates/{list(gates).index(GATE)}"
    added = {REMOVED_KEY: "true", **(add or {})}
    operations: list[dict[str, Any]] = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "test", "path": f"{at}/name", "value": GATE},
        {"op": "remove", "path": at},
    ]
    return operations + _annotation_operations(annotations, added, drop, revision)


def wakeup_patch(
    uid: str,
    annotations: Mapping[str, str] | None,
    add: Mapping[str, str],
    *,
    drop: Iterable[str] = (),
    revision: str = "",
) -> list[dict[str, Any]] | None:
    """The JSON Patch that makes the scheduler look at this pod again.

    Arguments as of ``removal``. None where the pod already has all of it: nothing would change.
    """
    has = annotations or {}
    drop = [key for key in drop if key in has]
    added = {key: value for key, value in add.items() if has.get(key) != value}
    if not added and not drop:
        return None
    return [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        *_annotation_operations(annotations, added, drop, revision),
    ]


def next_checks_value(told: str, state: str, *, again: bool = False) -> str:
    """The value to write for the current state after ``told``; empty for no change.

    Each state is written once. ``again``: the replica that the scheduler asked does not know yet
    that the checks passed.
    """
    if not told:
        return "" if state == WAITING else state
    known, _, number = told.partition("-")
    if known != state:
        return state
    if not again or state != PASSED:
        return ""
    is_ours = number.isdecimal() and len(number) <= _DIGITS
    return f"{PASSED}-{int(number) + 1 if is_ours else 2}"


def says_passed(told: str) -> bool:
    """Whether a value of CHECKS_KEY says that the checks passed."""
    return told.partition("-")[0] == PASSED


def _annotation_operations(
    annotations: Mapping[str, str] | None,
    added: Mapping[str, str],
    drop: Iterable[str],
    revision: str,
) -> list[dict[str, Any]]:
    if annotations is None:
        # The unchanged resource version makes a concurrent write a conflict.
        held = {"op": "replace", "path": "/metadata/resourceVersion", "value": revision}
        whole = {"op": "add", "path": _ANNOTATIONS, "value": dict(added)}
        return [held, whole] if revision else [whole]
    return [
        *({"op": "add", "path": annotation(key), "value": value} for key, value in added.items()),
        *(
            {"op": "remove", "path": annotation(key)}
            for key in dict.fromkeys(drop)
            if key in annotations and key not in added
        ),
    ]


def annotation(key: str) -> str:
    """The JSON pointer of an annotation."""
    return f"{_ANNOTATIONS}/{escape(key)}"
