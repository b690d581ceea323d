"""Reads the PersistentVolumeClaims of a waiting pod, which nothing caches, and their volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.resources import VOLUME_CLAIMS, VOLUMES
from harbourmaster.kube.errors import ForbiddenError, NotFoundError
from harbourmaster.rescheduling.volumes import decode_claim, decode_volume
from harbourmaster.rescheduling.wire import claim_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from harbourmaster.api.resources import Resource
    from harbourmaster.rescheduling.model import BoundVolume, PendingPod, Pod

    Get = Callable[[Resource, str, str | None], Awaitable[bytes]]


async def with_volumes(pending: PendingPod, get: Get) -> PendingPod:
    """The pod with its volumes; claims that cannot be judged stay unsupported, with the reason.

    Raises ApiError.
    """
    if not pending.claims:
        return pending
    volumes: list[BoundVolume] = []
    unread = set(map(claim_text, pending.claims))
    faults = [each for each in pending.unsupported if each not in unread]
    for name, is_own in pending.claims.items():
        found = await _volume(pending.pod, name, get, is_own=is_own)
        if isinstance(found, str):
            faults.append(f"{claim_text(name)} ({found})")
        else:
            volumes.append(found)
    return replace(pending, volumes=tuple(volumes), unsupported=tuple(faults))


async def _volume(pod: Pod, name: str, get: Get, *, is_own: bool) -> BoundVolume | str:
    """The volume of a claim, or why it cannot be judged."""
    try:
        claim = decode_claim(await get(VOLUME_CLAIMS, name, pod.namespace))
        fault = claim.fault(pod, is_own=is_own)
        return fault or decode_volume(await get(VOLUMES, claim.spec.volume_name or "", None))
    except NotFoundError:
        return "it, or its volume, is not found"
    except ForbiddenError:
        return "missing permission to get it and its volume"
    except MalformedError as error:
        return str(error)
