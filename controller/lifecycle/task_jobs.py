"""Jobs, as far as they show a task's result (keptn-spec 3.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Condition, Metadata, OwnerReference
from harbourmaster.api.resources import TASKS
from harbourmaster.lifecycle.jobs import NONCE

if TYPE_CHECKING:
    from harbourmaster.lifecycle.model import Task

_NOBODY: Final = OwnerReference()


class JobSpec(Struct, frozen=True, gc=False, rename="camel"):
    """How long a finished Job stays, in seconds."""

    ttl_seconds_after_finished: int | None = None


class JobStatus(Struct, frozen=True, gc=False):
    """What became of a Job."""

    conditions: tuple[Condition, ...] = ()


class TaskJob(Struct, frozen=True, gc=False):
    """A Job; those that belong to no task are kept empty."""

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

    def is_of(self, task: Task) -> bool:
        """Whether it was created for the task: as its status says, or before there were nonces."""
        nonce = task.status.job_nonce
        is_known = not nonce or self.metadata.labels.get(NONCE) == nonce
        return self.task.uid == task.metadata.uid and is_known


_OF_OTHERS: Final = TaskJob()
_decode: Final = msgspec.json.Decoder(TaskJob).decode


def decode_job(raw: msgspec.Raw | bytes) -> TaskJob:
    """A Job from its JSON."""
    found = _decode(raw)
    return _OF_OTHERS if found.task is _NOBODY else found
