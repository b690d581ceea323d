"""The objects that a member cluster refuses, why, and which of them are replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.kube.errors import (
    AlreadyExistsError,
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from harbourmaster.placement.apply_rules import find_obstacle, is_malformed, may_replace
from harbourmaster.placement.data_holders import is_custom
from harbourmaster.placement.deployed import MALFORMED
from harbourmaster.placement.inventory import ObjectRef
from harbourmaster.placement.rollout import ActionOutcome, Done

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.placement.sending import Claim
    from harbourmaster.kube.client import Client
    from harbourmaster.placement.manifests import Item

WAITING: Final = "Deploying"
FOREIGN_OBJECT: Final = "ForeignObject"
_SHOWN: Final = 3
_PRIORITIES: Final = {MALFORMED: 0, FOREIGN_OBJECT: 0, WAITING: 2}
"""The most important refusal gives the reason of all; others have 1."""
_REASONS: Final[tuple[tuple[type[ApiError], str], ...]] = (
    (ConflictError, "FieldConflict"),
    (ForbiddenError, "Forbidden"),
    (InvalidError, "Invalid"),
    (NotFoundError, "NotFound"),
)
_ALLOCATED: Final = ("clusterIP", "nodePort", "NodePort")
"""Parts of fields that are invalid only on a cluster that uses their values otherwise."""


class RefusedObject(Struct, frozen=True):
    """An object that was not applied or deleted, and why."""

    ref: ObjectRef
    reason: str
    text: str


def refusal_of(ref: ObjectRef, error: ApiError) -> RefusedObject:
    """Return the refusal for an error of the API server."""
    reason = next((name for kind, name in _REASONS if isinstance(error, kind)), "ApplyFailed")
    if (is_known := is_malformed(ref, error.message)) is not None:
        reason = MALFORMED if is_known else "Invalid"
    return RefusedObject(ref, reason, join_first(error.fields) or error.message)


async def resolve_invalid(
    api: Client, resource: Resource, item: Item, origin: str, error: InvalidError, claim: Claim
) -> RefusedObject | None:
    """Return why an object stays as it is; None after its deletion, so that it can be created.

    The API server says whether the manifest would be valid for a new object: then it is the change
    of an immutable field that it refuses.
    """
    ref, refused = item.ref, refusal_of(item.ref, error)
    if not error.fields or (is_custom(ref.group) and not may_replace(item)):
        return refused
    try:
        await api.create(resource, item.body, ref.namespace or None, dry_run=True)
    except AlreadyExistsError:
        if may_replace(item):
            return await _replace(api, resource, item, origin, refused, claim)
    except InvalidError as fault:
        is_local = all(any(part in field for part in _ALLOCATED) for field in fault.fields)
        if not is_local and not is_custom(ref.group):
            return RefusedObject(ref, MALFORMED, refusal_of(ref, fault).text)
    except UnreachableError:
        raise
    except ApiError:
        return refused
    return refused


async def _replace(
    api: Client, resource: Resource, item: Item, origin: str, refused: RefusedObject, claim: Claim
) -> RefusedObject | None:
    ref, namespace = item.ref, item.ref.namespace or None
    live = msgspec.json.decode(await api.get(resource, ref.name, namespace))
    metadata = live["metadata"]
    if not metadata.get("deletionTimestamp"):
        if obstacle := find_obstacle(item, live, origin, claim.stateless):
            return RefusedObject(ref, refused.reason, f"{refused.text}; not replaced: {obstacle}")
        text = f"on cluster {claim.cluster}: deletes and creates {ref.text}: {refused.text}"
        claim.report("Replacing", text)
        uid = metadata["uid"]
        await api.delete(resource, ref.name, namespace, uid=uid, propagation="Background")
    try:
        await api.get(resource, ref.name, namespace, metadata_only=True)
    except NotFoundError:
        return None
    return RefusedObject(ref, WAITING, "is being deleted")


def outcome_of(refused: Sequence[RefusedObject]) -> ActionOutcome:
    """Return the outcome of an action that refused these objects."""
    if not refused:
        return ActionOutcome(Done.YES)
    ordered = sorted(refused, key=lambda refusal: _PRIORITIES.get(refusal.reason, 1))
    reason = ordered[0].reason
    done = Done.PARTLY if reason == WAITING else Done.FAILED
    return ActionOutcome(done, reason, describe(ordered))


def describe(refused: Sequence[RefusedObject]) -> str:
    """Return the first few in one line."""
    return join_first(
        [
            f"{refusal.ref.text}: {refusal.text}" if refusal.text else refusal.ref.text
            for refusal in refused
        ]
    )


def join_first(texts: Sequence[str]) -> str:
    """Return the first few texts, and how many more there are."""
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more
