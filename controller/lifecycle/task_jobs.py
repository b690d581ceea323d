"""Jobs, as far as a task's result stands in them (keptn-spec 3.8)."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Condition, Metadata

_TASK: Final = "KeptnTask"


class _Spec(Struct, frozen=True, gc=False, rename="camel"):
    ttl_seconds_after_finished: int | None = None


class _Status(Struct, frozen=True, gc=False):
    conditions: tuple[Condition, ...] = ()


class _Job(Struct, frozen=True, gc=False):
    metadata: Metadata
    spec: _Spec = _Spec()
    status: _Status = _Status()


class TaskJob(Struct, frozen=True, gc=False):
    """A Job; those of others are kept nearly empty."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    task_name: str = ""
    task_uid: str = ""
    is_ending: bool = False
    ttl_seconds_after_finished: int | None = None
    conditions: tuple[Condition, ...] = ()


_OF_OTHERS: Final = TaskJob()
_decode: Final = msgspec.json.Decoder(_Job).decode


def decode_job(raw: msgspec.Raw | bytes) -> TaskJob:
    """A Job from its JSON."""
    found = _decode(raw)
    metadata = found.metadata
    task = next((each for each in metadata.owner_references if each.kind == _TASK), None)
    if task is None:
        return _OF_OTHERS
    return TaskJob(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        task_name=task.name,
        task_uid=task.uid,
        is_ending=bool(metadata.deletion_timestamp),
        ttl_seconds_after_finished=found.spec.ttl_seconds_after_finished,
        conditions=found.status.conditions,
    )
