"""What a gated pod waits for, in words for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gates.release import may_go
from lifecycle.model import FAILED, PENDING, SUCCEEDED, WARNING
from lifecycle.workloads import approval

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lifecycle.model import ItemStatus, WorkloadVersion

_PASSED: Final = frozenset((SUCCEEDED, WARNING))


def waits_for(version: WorkloadVersion | None, owner: str) -> str:
    """Of a pod of the owner with this uid, by its version; None where that is not there."""
    if version is None:
        return "its workload version, which is not there yet"
    if may_go(approval(version), owner):
        return "its release, which is due"
    if approval(version).is_given:
        return "its owner to be recorded, which is due"
    status, spec = version.status, version.spec
    tasks = _phase(
        "pre-deployment tasks",
        status.pre_deployment_status,
        status.pre_deployment_task_status,
        spec.pre_deployment_tasks,
    )
    evaluations = _phase(
        "pre-deployment evaluations",
        status.pre_deployment_evaluation_status,
        status.pre_deployment_evaluation_task_status,
        spec.pre_deployment_evaluations,
    )
    if not status.current_phase and status.status != FAILED:
        return f"the checks of the app {spec.app}"
    return tasks or evaluations or "its deployment to begin, which is due"


def _phase(name: str, state: str, items: Iterable[ItemStatus], expected: Iterable[str]) -> str:
    """What is not done of a phase; empty where it passed."""
    if state in _PASSED:
        return ""
    states = dict.fromkeys(expected, PENDING) | {
        each.definition_name: each.status for each in items
    }
    failed = sorted(name for name, found in states.items() if found == FAILED)
    if state == FAILED or failed:
        return f"nothing any more: {name} failed ({', '.join(failed) or 'no details'})"
    left = [f"{name} {found}" for name, found in states.items() if found not in _PASSED]
    return f"{name}: {', '.join(left)}" if left else name
