"""What goes when a namespace or a definition is deleted, and is not ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.kube.errors import (
    ApiError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
)
from harbourmaster.placement.manifests import NAMESPACES, rank
from harbourmaster.placement.ownership import Present, is_of_others

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.placement.session import Session
    from harbourmaster.placement.inventory import ObjectRef
    from harbourmaster.placement.manifests import Owner

ENOUGH: Final = 10
"""Objects of others, after which nobody looks for more."""
_EVENTS: Final = "events"


class _Partial(Struct, frozen=True):
    metadata: Present


_decode: Final = msgspec.json.Decoder(_Partial).decode


def present(raw: msgspec.Raw | bytes) -> Present:
    """The metadata of an object of a cluster."""
    return _decode(raw).metadata


async def held(session: Session, ref: ObjectRef, owner: Owner) -> list[str]:
    """The objects of others in a namespace, or of a definition's kind: some, in words.

    Raises an ApiError where the cluster is in no state to say.
    """
    everything = await session.discovery.listable()
    namespaced = {(each.group, each.kind) for each in everything if each.namespaced}
    is_namespace = rank(ref) == NAMESPACES
    found: list[str] = []
    for resource in everything:
        is_inside = resource.namespaced and resource.plural != _EVENTS
        if not (is_inside if is_namespace else f"{resource.plural}.{resource.group}" == ref.name):
            continue
        try:
            async for each in _listed(session, resource, ref.name if is_namespace else None):
                if is_of_others(resource.kind, each, owner, namespaced):
                    found.append(f"{resource.kind} {each.name}")
                if len(found) >= ENOUGH:
                    return found
        except NotFoundError:
            continue
        except (ServerError, TooManyRequestsError, UnreachableError):
            raise
        except ApiError as error:
            # What nobody may see may be there.
            found.append(f"perhaps {resource.plural} ({error.message})")
    return found


async def _listed(
    session: Session, resource: Resource, namespace: str | None
) -> AsyncIterator[Present]:
    token = ""
    while True:
        page = await session.client.list(
            resource, namespace, continue_token=token, metadata_only=True
        )
        for each in page.items:
            yield present(each)
        token = page.continue_token
        if not token:
            return
