"""Decodes Jobs and their pods, as far as they show the result of a task (keptn-spec 3.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.metadata import Condition, Metadata, OwnerReference
from harbourmaster.api.resources import TASKS
from harbourmaster.kube.store import Store
from harbourmaster.lifecycle.jobs import NONCE
from harbourmaster.lifecycle.task_pods import TaskPod

if TYPE_CHECKING:
    from harbourmaster.lifecycle.model import Task

_BY_JOB: Final = "job"
_MOST_GONE: Final = 500
"""Maximum deleted pods that are remembered."""
_NOBODY: Final = OwnerReference()


class JobSpec(Struct, frozen=True, gc=False, rename="camel"):
    """The time for which a finished Job stays, in seconds."""

    ttl_seconds_after_finished: int | None = None


class JobStatus(Struct, frozen=True, gc=False, rename="camel"):
    """The result of a Job, or how far it is."""

    conditions: tuple[Condition, ...] = ()
    start_time: str = ""
    active: int = 0


class TaskJob(Struct, frozen=True, gc=False):
    """A Job. Those that belong to no task are kept empty."""

    metadata: Metadata = Metadata()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    @property
    def task(self) -> OwnerReference:
        """The KeptnTask that controls it; an empty reference for none."""
        owner = self.metadata.controller
        if owner is None or (owner.group, owner.kind) != (TASKS.group, TASKS.kind):
            return _NOBODY
        return owner

    @property
    def has_no_pod(self) -> bool:
        """Whether the started Job has no active pod: its pods are refused, or it is over."""
        return bool(self.status.start_time) and not self.status.active

    def is_of(self, task: Task) -> bool:
        """Whether the Job was created for the task, by its uid and, if it has one, its nonce."""
        nonce = task.status.job_nonce
        is_known = not nonce or self.metadata.labels.get(NONCE) == nonce
        return self.task.uid == task.metadata.uid and is_known


_OF_OTHERS: Final = TaskJob()
_decode: Final = msgspec.json.Decoder(TaskJob).decode


def decode_job(raw: msgspec.Raw | bytes) -> TaskJob:
    """Decode a Job from its JSON."""
    job = _decode(raw)
    return _OF_OTHERS if job.task is _NOBODY else job


class TaskPods(Store[TaskPod]):
    """Stores the pods of tasks, and the last deleted one of each Job.

    The Job controller deletes a pod that failed, and a result may be read after that.
    """

    def __init__(self, jobs: Store[TaskJob]) -> None:
        super().__init__({_BY_JOB: lambda pod: [(pod.namespace, pod.job_uid)]})
        self._jobs = jobs
        self._gone: dict[tuple[str, str], TaskPod] = {}

    def put(self, key: str, obj: TaskPod) -> bool:
        """Store a pod; one that is being deleted keeps its fault."""
        before = self.get(key)
        if obj.is_ending and obj.fault is None and before is not None:
            obj = replace(obj, fault=before.fault)
        return super().put(key, obj)

    def remove(self, key: str) -> bool:
        """Remove a pod. The last one of a task's Job is kept for a while, unless it succeeded."""
        pod = self.get(key) or TaskPod()
        job = self._jobs.get(f"{pod.namespace}/{pod.job}")
        if job is not None and job.metadata.uid == pod.job_uid and pod.phase != "Succeeded":
            place = (pod.namespace, pod.job_uid)
            self._gone.pop(place, None)
            self._gone[place] = replace(pod, is_ending=True)
            if len(self._gone) > _MOST_GONE:
                del self._gone[next(iter(self._gone))]
        return super().remove(key)

    def of(self, job: Metadata) -> tuple[TaskPod, ...]:
        """Return the pods of the Job, and the last deleted one."""
        place = (job.namespace, job.uid)
        gone = self._gone.get(place)
        return (*self.by_index(_BY_JOB, place), *((gone,) if gone is not None else ()))
