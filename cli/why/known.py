"""What admission knows of a live cluster, as far as it matters to one object.

Two lists of policies, the namespace, and the settings; what can't be read is told and left out.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import CLUSTER_POLICIES, NAMESPACES, POLICIES
from harbourmaster.cli.cluster import collect
from harbourmaster.cli.installed import WEBHOOK
from harbourmaster.cli.metadata import metadata_in
from harbourmaster.cli.why.asking import candidate_of
from harbourmaster.cli.why.shipped import shipped
from harbourmaster.cli.why.wording import unreadable
from harbourmaster.kube.errors import ApiError, NotFoundError
from harbourmaster.kube.server_version import server_version
from harbourmaster.policies.explain import Candidate
from harbourmaster.webhook.gating_version import gating_of
from harbourmaster.webhook.parents import ParentObject, parents_of
from harbourmaster.webhook.settings import AdmissionSettings, WebhookSettings
from harbourmaster.webhook.snapshot import NAME_LABEL, Namespace, NamespaceObject, Snapshot

if TYPE_CHECKING:
    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.why.model import WhyContext
    from harbourmaster.kube.client import Client

_decode_namespace: Final = msgspec.json.Decoder(NamespaceObject).decode
_decode_parent: Final = msgspec.json.Decoder(ParentObject).decode


class _Dated(Struct, frozen=True, rename="camel"):
    creation_timestamp: str = ""
    generation: int = 0


class _Object(Struct, frozen=True):
    metadata: _Dated = _Dated()


_decode_dated: Final = msgspec.json.Decoder(_Object).decode


class Live(Struct, frozen=True):
    """A policy of a cluster, and when it came."""

    candidate: Candidate
    created: str
    generation: int


class Known(Struct, frozen=True):
    """What the server would go by, and what of it could not be read."""

    snapshot: Snapshot
    settings: AdmissionSettings
    policies: tuple[Live, ...]
    problems: tuple[str, ...]
    doubt: str
    """Why the settings may be others."""


async def known(context: WhyContext, client: Client, namespace: str) -> Known:
    """Read what there is, all at once."""
    policies, local, space, (settings, doubt) = await asyncio.gather(
        _policies(client, CLUSTER_POLICIES, None),
        _policies(client, POLICIES, namespace),
        _namespace(context, namespace),
        _settings(context, client),
    )
    parents = [_decode_parent(each.raw) for each in context.owners]
    snapshot = Snapshot(
        namespaces={namespace: space[0]} if space[0] is not None else {},
        excluded=frozenset((context.installed_in,)),
        parents=parents_of(parents),
    )
    problems = (policies[1], local[1], space[1])
    return Known(
        snapshot, settings, (*policies[0], *local[0]), tuple(filter(None, problems)), doubt
    )


async def _policies(
    client: Client, resource: Resource, namespace: str | None
) -> tuple[list[Live], str]:
    def pick(raw: msgspec.Raw) -> Live:
        metadata = metadata_in(raw)
        dated = _decode_dated(raw).metadata
        candidate = candidate_of(raw, resource.kind, metadata.name, metadata.namespace or None)
        return Live(candidate, dated.creation_timestamp, dated.generation)

    try:
        return await collect(client, resource, pick, namespace=namespace), ""
    except ApiError as error:
        what = "cluster policies" if namespace is None else f"policies of {namespace}"
        return [], unreadable(error, what)


async def _namespace(context: WhyContext, name: str) -> tuple[Namespace | None, str]:
    try:
        return _decode_namespace(await context.get(NAMESPACES, name)).known(), ""
    except NotFoundError:
        return None, f"there is no namespace {name}"
    except ApiError as error:
        taken = "its only label is taken to be its name, and it is taken to have no gates"
        return Namespace({NAME_LABEL: name}), f"{unreadable(error, f'namespace {name}')}; {taken}"


async def _settings(context: WhyContext, client: Client) -> tuple[AdmissionSettings, str]:
    settings: AdmissionSettings
    settings, doubt = await shipped(context, WebhookSettings, WEBHOOK)
    if settings.gating == "auto":
        try:
            gating = gating_of(await server_version(client))
        except ApiError:
            return settings, doubt
        settings = msgspec.structs.replace(settings, gating=gating)
    return settings, doubt
