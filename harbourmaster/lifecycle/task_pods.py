"""Finds out why the pod of a task waits, and how it failed, for the status of the task. Pure.

The task's ``status.reason`` is the class of the fault. While it stays the same nothing is written,
so a pod that changes between two reasons of one class causes a single write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.lifecycle.gated_pods import decode_object
from harbourmaster.lifecycle.model import FAILED, PROGRESSING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.lifecycle.gated_pods import ContainerTerminated, PodStatus
    from harbourmaster.lifecycle.jobs import JobResult
    from harbourmaster.lifecycle.model import TaskStatus

FAILED_CREATE: Final = "FailedCreate"
"""Reason of the events by which a Job reports that its pods are refused."""
POD_FAILED: Final = "PodFailed"
_MAX_TEXT: Final = 600
"""Maximum characters of a foreign message, so that an event has room for the rest."""
_STARTING: Final = frozenset(("", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"))
_PULL: Final = "ImagePullBackOff"
_CLASSES: Final = dict.fromkeys(
    ("ErrImagePull", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"), _PULL
)
"""Classes by reason; the kubelet changes these to ImagePullBackOff and back."""
_ADVICE: Final = {
    _PULL: "check the image and the imagePullSecrets of its definition",
    "InvalidImageName": "correct the image in its definition",
    "CreateContainerConfigError": "check the Secrets and the securityContext of its definition",
    "Unschedulable": "check its requests and the nodes",
    FAILED_CREATE: "change its definition, or what refuses the pod: policy, quota or webhook",
}
_KILLED: Final = (137, 143)
_OUT_OF_MEMORY: Final = "OOMKilled"


class TaskFault(Struct, frozen=True, gc=False):
    """The fault of a task's pod; ``reason`` is its class."""

    reason: str
    message: str

    @property
    def state(self) -> str:
        """The state in the reason of the event."""
        return "Failed" if self.reason == POD_FAILED else "Waiting"


class TaskPod(Struct, frozen=True, gc=False):
    """The pod of a Job, as far as it shows a fault; a refused one has only time and fault."""

    namespace: str = ""
    job: str = ""
    job_uid: str = ""
    created: str = ""
    fault: TaskFault | None = None
    is_ending: bool = False
    phase: str = ""

    @property
    def is_live(self) -> bool:
        """Whether the Job has no other pod because of this one."""
        return not self.is_ending and self.phase != "Failed"


class _JobEvent(Struct, frozen=True, gc=False, rename="camel"):
    message: str = ""
    last_timestamp: str | None = None


_decode_event: Final = msgspec.json.Decoder(_JobEvent).decode


def decode_task_pod(raw: msgspec.Raw | bytes) -> TaskPod:
    """Decode a pod from its JSON; one that no Job controls is kept empty."""
    pod = decode_object(raw)
    metadata = pod.metadata
    owner, is_ending = metadata.controller, bool(metadata.deletion_timestamp)
    if owner is None or owner.kind != "Job":
        return TaskPod()
    return TaskPod(
        namespace=metadata.namespace,
        job=owner.name,
        job_uid=owner.uid,
        created=metadata.creation_timestamp,
        fault=_fault_of(pod.status, is_ending=is_ending),
        is_ending=is_ending,
        phase=pod.status.phase,
    )


def decode_refused(raw: msgspec.Raw | bytes) -> TaskPod:
    """Return the pod that a Job could not create, from the JSON of its event FailedCreate."""
    event = _decode_event(raw)
    text = event.message.removeprefix("(combined from similar events): ")
    fault = _waiting_fault(
        FAILED_CREATE, text.removeprefix("Error creating: "), "its Job has no pod"
    )
    return TaskPod(created=event.last_timestamp or "", fault=fault)


def may_be_refused(pods: Iterable[TaskPod], outcome: JobResult | None) -> bool:
    """Whether the pods of a Job without an active one may be refused.

    Such a Job ends only at its deadline: every other failure is that of a pod.
    """
    is_possible = outcome is None or outcome.reason == "DeadlineExceeded"
    return is_possible and not any(pod.is_live for pod in pods)


def newest_fault(pods: Iterable[TaskPod]) -> TaskFault | None:
    """Return the fault of the newest pod of a Job, whether it was created or refused."""
    newest = max(pods, key=lambda pod: (pod.created, pod.fault is not None), default=None)
    return newest.fault if newest is not None else None


def running_status(status: TaskStatus, fault: TaskFault | None, *, has_no_pod: bool) -> TaskStatus:
    """Return the status of a task whose Job runs, and has no pod if ``has_no_pod``.

    A failure stays until the end: the next attempt may hang, or its pod may never start.
    """
    reason = status.reason if status.status == PROGRESSING else ""
    is_kept = reason == POD_FAILED or (reason == FAILED_CREATE and has_no_pod)
    if fault is None and not is_kept:
        return replace(status, status=PROGRESSING, reason="", message="")
    if fault is None or fault.reason == reason:
        return status
    return replace(status, status=PROGRESSING, reason=fault.reason, message=fault.message)


def explain_result(result: JobResult, status: TaskStatus, fault: TaskFault | None) -> JobResult:
    """Return the result of a Job with its cause: from its pod, or from the status of its task."""
    known = status.message if status.status == PROGRESSING else ""
    cause = fault.message if fault is not None else known
    if result.status != FAILED or not cause:
        return result
    return replace(result, message=f"{result.reason}: {cause}")


def _fault_of(status: PodStatus, *, is_ending: bool) -> TaskFault | None:
    if status.phase == "Failed" and status.reason:
        # The node's reason, such as Evicted: the container was only killed.
        return TaskFault(POD_FAILED, f"{status.reason}: {_head(status.message)}")
    containers = (*status.init_container_statuses, *status.container_statuses)
    ends = [
        state.terminated
        for container in containers
        for state in (container.state, container.last_state)
    ]
    end = next((end for end in ends if end is not None and _is_failure(end, is_ending)), None)
    for container in containers:
        waiting = container.state.waiting
        if is_ending or waiting is None or waiting.reason in _STARTING:
            continue
        if end is None or waiting.reason != "RunContainerError":
            return _waiting_fault(waiting.reason, waiting.message)
    if end is not None:
        return _failure_fault(end)
    for condition in status.conditions:
        if (condition.type, condition.status) == ("PodScheduled", "False") and not is_ending:
            return _waiting_fault(condition.reason, condition.message)
    return None


def _is_failure(end: ContainerTerminated, is_ending: bool) -> bool:
    """Whether a container failed by itself: a pod that is deleted kills its processes."""
    is_killed = end.exit_code in _KILLED and end.reason != _OUT_OF_MEMORY
    return end.exit_code != 0 and not (is_ending and is_killed)


def _failure_fault(end: ContainerTerminated) -> TaskFault:
    reason = "" if end.reason in {"", "Error"} else f" ({end.reason})"
    last = " ".join(end.message.split())
    # The error is usually in the last lines.
    last = last if len(last) <= _MAX_TEXT else f"…{last[-_MAX_TEXT:]}"
    advice = "raise its memory limit" if end.reason == _OUT_OF_MEMORY else ""
    parts = (f"exit code {end.exit_code}{reason}", last, advice)
    return TaskFault(POD_FAILED, ": ".join(part for part in parts if part))


def _waiting_fault(reason: str, message: str, what: str = "its pod waits") -> TaskFault:
    kind = _CLASSES.get(reason, reason)
    parts = (what, reason, _head(message), _ADVICE.get(kind, ""))
    return TaskFault(kind, ": ".join(part for part in parts if part))


def _head(text: str) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= _MAX_TEXT else f"{line[:_MAX_TEXT]}…"
