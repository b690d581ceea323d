"""Decides whether a pod may be scheduled now, and on which nodes not, for the extender (D9).

This is for pods that wait in the scheduling cycle and not at a gate (document 000). Pods without a
workload are not affected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.metadata import OwnerReference
from harbourmaster.api.times import format_rfc3339, moment
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from harbourmaster.gates.owners import supported_owner
from harbourmaster.gates.release import (
    CHECKING,
    CHECKS_KEY,
    LATE,
    NONE,
    PASSED,
    WAITING,
    may_release,
    was_released,
)
from harbourmaster.gates.release import FAILED as HAVE_FAILED
from harbourmaster.gates.waits import MET, WAITED_KEY, waits_of
from harbourmaster.gates.workload import workload_of
from harbourmaster.lifecycle.failed_nodes import unexpired_nodes
from harbourmaster.lifecycle.model import FAILED, is_generated
from harbourmaster.lifecycle.phases import PASSED as HAVE_PASSED
from harbourmaster.lifecycle.workloads import BY_HAND, approval, is_version_of, names_of_pod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from harbourmaster.gates.workload import WorkloadMetadata
    from harbourmaster.lifecycle.model import ItemStatus, WorkloadVersion

CHECK_AGAIN: Final = "check again later"
MOST_TEXT: Final = 600
"""Maximum characters of a message, which is sent for each of thousands of nodes."""
_SHOWN: Final = 3
"""Checks that a message names."""
_TELLING: Final = re.compile(r"passed(-[0-9]{1,9})?")
"""The values that a message repeats, because users can write any value on their pods."""
_TOLD: Final = re.compile(r"\(told: ([a-z0-9-]+)\)")
_UNTIL: Final = re.compile(r"avoided until ([0-9TZ:.+-]*[0-9Z])")
_FOR_OBJECTS: Final = "waits for objects: "
_REFUSALS: Final = re.compile(
    rf"{_FOR_OBJECTS}|waits until it is known|"
    r"waits for its version: |waits (?:for|until) KeptnWorkloadVersion "
    r"|pre-deployment checks of "
)


class CandidatePod(Struct, frozen=True, gc=False):
    """A pod that a scheduler asks about."""

    namespace: str = ""
    annotations: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    owner_references: Sequence[OwnerReference] = ()
    scheduler: str = ""
    """The scheduler that the pod names; empty if unknown."""


class Permission(Struct, frozen=True, gc=False):
    """The answer: an empty ``refusal`` allows all nodes except those in ``avoided``."""

    refusal: str = ""
    avoided: Mapping[str, str] = {}
    """Reasons by the node's name."""
    is_foreign: bool = False
    """Whether settings must change, because the controller does not handle this scheduler's pods.
    """


FREE: Final = Permission()


def scheduling_permission(
    pod: CandidatePod,
    find: Callable[[str], WorkloadVersion | None],
    *,
    deadline: float,
    now: datetime,
    scheduler: str = "",
) -> Permission:
    """Return whether the scheduler may place the pod; ``find`` returns workload versions by key.

    ``deadline`` is the seconds that the checks before a deployment may take, from the version's
    ``startTime`` on; 0 means no limit. ``scheduler`` is the one whose pods the controller handles;
    empty for any.
    """
    given = _permission(pod, find, deadline, now)
    if given.refusal and scheduler and pod.scheduler and pod.scheduler != scheduler:
        text = (
            f"waits in {pod.scheduler}, but the controller handles pods of {scheduler}: "
            "scheduler.schedulerName must name the scheduler that asks it"
        )
        return Permission(_cut(text), is_foreign=True)
    return given


def _permission(
    pod: CandidatePod,
    find: Callable[[str], WorkloadVersion | None],
    deadline: float,
    now: datetime,
) -> Permission:
    if was_released(pod.annotations):
        return FREE
    told = pod.annotations.get(CHECKS_KEY, "")
    if pod.annotations.get(PARENT_KEY) == UNRESOLVED:
        return Permission("waits until it is known whether its owner has a workload")
    described = workload_of(pod.annotations, pod.labels)
    has_checks = told != NONE
    if described is None and has_checks:
        return FREE
    conditions = waits_of(pod.annotations)
    if conditions is not None and pod.annotations.get(WAITED_KEY) != MET:
        shown = (
            _first_names([item.text for item in conditions.items]) or "its annotation names none"
        )
        return Permission(_cut(f"{_FOR_OBJECTS}{shown}"))
    if described is None or not has_checks:
        return FREE
    if not described.version:
        text = f"waits for its version: workload {described.workload} has none yet"
        return Permission(_cut(text))
    name = names_of_pod(described).version
    version = find(f"{pod.namespace}/{name}")
    lack = _lack(version, described)
    if lack or version is None:
        text = _cut(f"waits for KeptnWorkloadVersion {name}, which is {lack}")
        return Permission(_answering(text, told))
    owner = supported_owner(pod.owner_references)
    given = approval(version)
    if owner is not None and may_release(given, owner.uid):
        # The first value needs no answer.
        asked = told if told != PASSED else ""
        return Permission(avoided=avoided_nodes(version, now, told=asked))
    if given.is_given:
        text = f"waits until KeptnWorkloadVersion {name} has recorded its owner"
    else:
        text = _cut(_refusal(version, deadline, now))
    return Permission(_answering(text, told))


def _lack(version: WorkloadVersion | None, described: WorkloadMetadata) -> str:
    """Return why a version does not decide on the described pod, or "" if it does."""
    if version is None:
        return "not there yet"
    if version.metadata.deletion_timestamp:
        return "being deleted"
    if not is_generated(version):
        return BY_HAND
    names = names_of_pod(described)
    if not is_version_of(version, names.app, names.workload, described.version):
        # Owners that stay while their templates change may be recorded nevertheless.
        spec = version.spec
        return f"of workload {spec.workload_name} of app {spec.app} in version {spec.version}"
    return ""


def state_of_checks(version: WorkloadVersion, *, deadline: float, now: datetime) -> str:
    """Return the state of the checks before the deployment.

    It is WAITING (to begin, or for nothing of its own), CHECKING, LATE, FAILED or PASSED.
    """
    if approval(version).is_given:
        return PASSED
    if has_failed(version):
        return HAVE_FAILED
    end = deadline_of(version, deadline)
    if end is not None and now >= end:
        return LATE
    return CHECKING if is_checking(version) else WAITING


def is_checking(version: WorkloadVersion) -> bool:
    """Whether the version's own checks before the deployment have begun."""
    spec = version.spec
    asked = spec.pre_deployment_tasks or spec.pre_deployment_evaluations
    return bool(version.status.current_phase and asked)


def names_checks(message: str, version: WorkloadVersion, deadline: float) -> bool:
    """Whether a scheduler's message names the running checks and their deadline."""
    return _waiting(version, deadline) in message


def has_failed(version: WorkloadVersion) -> bool:
    """Whether a check before the deployment has failed."""
    status = version.status
    phases = (status.pre_deployment_status, status.pre_deployment_evaluation_status)
    return FAILED in phases or any(check.status == FAILED for check in _checks(version))


def is_refusal(message: str) -> bool:
    """Whether a scheduler's message says that we refused the pod, or a node for it."""
    return bool(_REFUSALS.search(message) or _UNTIL.search(message))


def is_outdated(message: str, told: str, version: WorkloadVersion, now: datetime) -> bool:
    """Whether a scheduler's message on a pod that was told ``told`` (PASSED or later) is wrong.

    A replica may refuse a pod because its watch is behind: the version's checks passed, or a node
    is no longer avoided. Answers to earlier values are ignored.
    """
    answered = set(_TOLD.findall(message))
    if _REFUSALS.search(message):
        return told in answered
    if told not in (answered or {PASSED}):
        return False
    ends = {node.expires for node in unexpired_nodes(version, now)}
    return not ends.issuperset(_UNTIL.findall(message))


def deadline_of(version: WorkloadVersion, seconds: float) -> datetime | None:
    """Return when the checks should have passed; None for never, or while they have not begun."""
    begin = moment(version.status.start_time)
    return begin + timedelta(seconds=seconds) if seconds and begin is not None else None


def avoided_nodes(version: WorkloadVersion, now: datetime, *, told: str = "") -> dict[str, str]:
    """Return the reasons by node on which this version has failed, as long as that counts."""
    return {
        node.name: _answering(
            f"{_cut(node.reason)} on this node before, avoided until {node.expires}", told
        )
        for node in unexpired_nodes(version, now)
    }


def _answering(text: str, told: str) -> str:
    """Return the text with the value that it answers, because an equal message causes no event."""
    return f"{text} (told: {told})" if _TELLING.fullmatch(told) else text


def _cut(text: str) -> str:
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]}…"


def _refusal(version: WorkloadVersion, deadline: float, now: datetime) -> str:
    name = version.metadata.name
    if has_failed(version):
        shown = _first_names(
            [_name_of(check) for check in _checks(version) if check.status == FAILED]
        )
        return f"pre-deployment checks of {name} failed{f': {shown}' if shown else ''}"
    begun = {_name_of(check) for check in _checks(version)}
    waiting = [_name_of(check) for check in _checks(version) if check.status not in HAVE_PASSED]
    asked = (*version.spec.pre_deployment_tasks, *version.spec.pre_deployment_evaluations)
    waiting += [name for name in asked if name not in begun]
    shown = _first_names(waiting) or "they have not begun"
    end = deadline_of(version, deadline)
    if end is not None and now >= end:
        late = f"were not done by {format_rfc3339(end)}: {shown}"
        return f"pre-deployment checks of {name} {late}; {CHECK_AGAIN}"
    return f"{_waiting(version, deadline)}{shown}"


def _waiting(version: WorkloadVersion, deadline: float) -> str:
    """Return the beginning of a refusal while the checks run."""
    end = deadline_of(version, deadline)
    until = f" until {format_rfc3339(end)}" if end is not None else ""
    return f"waits for pre-deployment checks of {version.metadata.name}{until}: "


def _checks(version: WorkloadVersion) -> Iterator[ItemStatus]:
    yield from version.status.pre_deployment_task_status
    yield from version.status.pre_deployment_evaluation_task_status


def _name_of(item: ItemStatus) -> str:
    return item.definition_name or item.name


def _first_names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    more = len(names) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
