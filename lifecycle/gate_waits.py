"""What a gated pod waits for, in a code for programs and in words for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from harbourmaster.gates.owners import supported_owner
from harbourmaster.gates.release import may_go
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.model import FAILED, PENDING, SUCCEEDED, WARNING
from harbourmaster.lifecycle.workloads import approval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from harbourmaster.api.metadata import OwnerReference
    from harbourmaster.lifecycle.model import AppVersion, ItemStatus, WorkloadVersion

Code: TypeAlias = Literal[
    "waits-for-version",
    "released",
    "waits-for-owner",
    "waits-for-app",
    "checks-failed",
    "checks-pending",
    "deployment-due",
]
_PASSED: Final = frozenset((SUCCEEDED, WARNING))


class Wait(NamedTuple):
    """What for; ``text`` is to be read after "waits for"."""

    code: Code
    text: str


class Owned(Protocol):
    """A pod as far as it says whose it is."""

    @property
    def annotations(self) -> Mapping[str, str]: ...  # noqa: D102 - as the API has it

    @property
    def labels(self) -> Mapping[str, str]: ...  # noqa: D102 - as the API has it

    @property
    def owner_references(self) -> Sequence[OwnerReference]: ...  # noqa: D102 - as the API has it


def waits_for(version: WorkloadVersion | None, owner: str) -> str:
    """Of a pod of the owner with this uid, by its version; None where that is not there."""
    return wait_of(version, owner).text


def wait_of(version: WorkloadVersion | None, owner: str) -> Wait:
    """The same with its code."""
    if version is None:
        return Wait("waits-for-version", "its workload version, which is not there yet")
    if may_go(approval(version), owner):
        return Wait("released", "its release, which is due")
    if approval(version).is_given:
        return Wait("waits-for-owner", "its owner to be recorded, which is due")
    status = version.status
    if not status.current_phase and status.status != FAILED:
        return Wait("waits-for-app", f"the checks of the app {version.spec.app}")
    return pre_checks(version) or Wait("deployment-due", "its deployment to begin, which is due")


def pre_checks(version: WorkloadVersion | AppVersion) -> Wait | None:
    """What is not done of the checks before a deployment; None where they passed."""
    status, spec = version.status, version.spec
    return _phase(
        "pre-deployment tasks",
        status.pre_deployment_status,
        status.pre_deployment_task_status,
        spec.pre_deployment_tasks,
    ) or _phase(
        "pre-deployment evaluations",
        status.pre_deployment_evaluation_status,
        status.pre_deployment_evaluation_task_status,
        spec.pre_deployment_evaluations,
    )


def why_orphaned(pod: Owned) -> str:
    """Why no check will ever release a waiting pod; empty where one may."""
    if pod.annotations.get(PARENT_KEY) == UNRESOLVED:
        return ""
    if workload_of(pod.annotations, pod.labels) is None:
        return "it no longer names a workload"
    owner = supported_owner(pod.owner_references)
    if owner is None or not owner.uid:
        return "no ReplicaSet, StatefulSet or DaemonSet owns it"
    return ""


def _phase(
    name: str, state: str, items: Iterable[ItemStatus], expected: Iterable[str]
) -> Wait | None:
    """What is not done of a phase; None where it passed."""
    if state in _PASSED:
        return None
    states = dict.fromkeys(expected, PENDING) | {
        each.definition_name: each.status for each in items
    }
    failed = sorted(name for name, found in states.items() if found == FAILED)
    if state == FAILED or failed:
        text = f"nothing: {name} failed ({', '.join(failed) or 'no details'})"
        return Wait("checks-failed", text)
    left = [f"{name} {found}" for name, found in states.items() if found not in _PASSED]
    return Wait("checks-pending", f"{name}: {', '.join(left)}" if left else name)
