"""Writes of the controllers of placement, each against the very version that was read."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec import Struct, structs
from msgspec.structs import replace

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.times import moment
from harbourmaster.controller.objects import decode_metadata
from harbourmaster.placement.model import ApplicationStatus, ClusterStatus

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client

Status = TypeVar("Status", ApplicationStatus, ClusterStatus)

QUIET: Final = timedelta(seconds=10)
"""For which another failed try is not written."""


async def write(
    client: Client,
    resource: Resource,
    metadata: Metadata,
    value: dict[str, Any],
    *,
    subresource: str | None = "status",
) -> Metadata:
    """Write fields of an object as it was read; its new metadata. Raises ApiError."""
    precondition = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    value = {**value, "metadata": {**value.get("metadata", {}), **precondition}}
    raw = await client.patch(
        resource, metadata.name, MergePatch(value), metadata.namespace, subresource=subresource
    )
    return decode_metadata(raw)


def changes(before: Struct, after: Struct) -> dict[str, Any]:
    """The fields in which two statuses of a kind differ; None takes a field away."""
    fields = {}
    for field in structs.fields(after):
        value = getattr(after, field.name)
        if value != getattr(before, field.name):
            fields[field.encode_name] = None if value == field.default else _whole(value)
    return fields


def _whole(value: object) -> Any:  # noqa: ANN401 - JSON
    """A value that leaves nothing of an older one: a patch merges objects, but not lists."""
    if not isinstance(value, Struct):
        return value
    return {
        field.encode_name: None
        if (part := getattr(value, field.name)) == field.default
        else _whole(part)
        for field in structs.fields(value)
    }


def is_news(before: Status, after: Status) -> bool:
    """Whether a status is to be written: that of repeated failed tries only now and then."""
    if after is before or after.retries_left != -1 or before.retries_left != -1:
        return after is not before
    same = replace(
        after, next_retry_time=before.next_retry_time, last_decision=before.last_decision
    )
    stored, wanted = moment(before.next_retry_time), moment(after.next_retry_time)
    if same != before or stored is None or wanted is None:
        return True
    return abs(wanted - stored) >= QUIET
