"""The object that is asked about, its owners, and what is seen of it at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    PODS,
    REPLICA_SETS,
    ROLLOUTS,
    STATEFUL_SETS,
    Resource,
)
from harbourmaster.api.times import parse
from harbourmaster.cli.gate.show import short_age
from harbourmaster.cli.why.model import Subject, is_kind_missing
from harbourmaster.cli.why.wording import unreadable
from harbourmaster.kube.errors import ApiError, NotFoundError, UnauthorizedError, UnreachableError

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.kube.client import Client

CRON_JOBS: Final = Resource("batch", "v1", "cronjobs", "CronJob")
REPLICATION_CONTROLLERS: Final = Resource(
    "", "v1", "replicationcontrollers", "ReplicationController"
)
_ALIASES: Final = {
    PODS: ("po",),
    DEPLOYMENTS: ("deploy",),
    STATEFUL_SETS: ("sts",),
    DAEMON_SETS: ("ds",),
    REPLICA_SETS: ("rs",),
    JOBS: (),
    CRON_JOBS: ("cj",),
    REPLICATION_CONTROLLERS: ("rc",),
    ROLLOUTS: ("ro",),
}
KINDS: Final = {
    name: resource
    for resource, aliases in _ALIASES.items()
    for name in (resource.kind.lower(), resource.plural, *aliases)
}
"""Resources by every name that people have for them, in small letters."""
BY_KIND: Final = {resource.kind: resource for resource in _ALIASES}
_OWNERS: Final = {(each.api_version, each.kind): each for each in _ALIASES}
_MOST_OWNERS: Final = 4


class _Owner(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    uid: str = ""
    namespace: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    owner_references: tuple[_Owner, ...] | None = None


class _Condition(Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(Struct, frozen=True, rename="camel"):
    phase: str = ""
    reason: str = ""
    conditions: tuple[_Condition, ...] | None = None
    replicas: int | None = None
    ready_replicas: int | None = None


class _Spec(Struct, frozen=True, rename="camel"):
    node_name: str = ""
    scheduling_gates: tuple[msgspec.Raw, ...] | None = None


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: _Status = _Status()


_decode: Final = msgspec.json.Decoder(_Object).decode


async def fetched(client: Client, resource: Resource, namespace: str, name: str) -> Subject:
    """The object. Raises an ApiError."""
    raw = await client.get(resource, name, namespace)
    return Subject(resource.api_version, resource.kind, namespace, name, raw)


async def owners_of(client: Client, subject: Subject) -> tuple[tuple[Subject, ...], str]:
    """The controllers above it, the nearest first, as far as kinds are known; and who is missing.

    Raises UnreachableError and UnauthorizedError.
    """
    found: list[Subject] = []
    current = subject
    while len(found) < _MOST_OWNERS:
        references = _decode(current.raw).metadata.owner_references or ()
        owner = next((each for each in references if each.controller), None)
        resource = _OWNERS.get((owner.api_version, owner.kind)) if owner else None
        if owner is None or resource is None:
            break
        shown = f"its owner, {owner.kind} {owner.name}"
        try:
            current = await fetched(client, resource, subject.namespace, owner.name)
        except (UnreachableError, UnauthorizedError):
            raise
        except NotFoundError as error:
            gone = "is of a kind that the cluster does not know any more"
            return tuple(found), f"{shown}, {gone if is_kind_missing(error) else 'is gone'}"
        except ApiError as error:
            return tuple(found), unreadable(error, shown)
        uid = _decode(current.raw).metadata.uid
        if uid and owner.uid and uid != owner.uid:
            return tuple(found), f"{shown}, is gone: another one has its name"
        found.append(current)
    return tuple(found), ""


def seen(subject: Subject, owners: tuple[Subject, ...], now: datetime) -> str:
    """What it looks like: its phase, its age, where it runs and whose it is."""
    found = _decode(subject.raw)
    parts: list[str] = []
    if found.status.phase:
        parts.append(found.status.phase)
        if found.spec.scheduling_gates:
            parts[-1] += " behind a scheduling gate"
    if found.metadata.creation_timestamp:
        age = max(int((now - parse(found.metadata.creation_timestamp)).total_seconds()), 0)
        parts.append(f"{short_age(age)} old")
    if found.spec.node_name:
        parts.append(f"on node {found.spec.node_name}")
    if owners:
        parts.append(f"of {owners[-1].kind} {owners[-1].name}")
    if found.status.replicas is not None:
        parts.append(f"{found.status.ready_replicas or 0} of {found.status.replicas} pods ready")
    if found.metadata.deletion_timestamp:
        parts.append("being deleted")
    return ", ".join(parts)
