"""Jobs, as far as they show a task's result (keptn-spec 3.8)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Condition, Metadata, OwnerReference

_TASK: Final = "KeptnTask"
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
        """The KeptnTask that owns it; an empty reference for none."""
        owners = self.metadata.owner_references
        return next((each for each in owners if each.kind == _TASK), _NOBODY)


_OF_OTHERS: Final = TaskJob()
_decode: Final = msgspec.json.Decoder(TaskJob).decode


def decode_job(raw: msgspec.Raw | bytes) -> TaskJob:
    """A Job from its JSON."""
    found = _decode(raw)
    return _OF_OTHERS if found.task is _NOBODY else found
