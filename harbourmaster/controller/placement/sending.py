"""Reads an object of a member cluster and applies it, without a loss of what others write.

What is decided holds for the object that was read. A field that another client may take over
meanwhile is first applied without force, which the API server refuses then; by force it changes
only the version that was read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.patches import ApplyPatch
from harbourmaster.api.resources import Resource
from harbourmaster.controller.placement import refusals
from harbourmaster.controller.placement.refusals import RefusedObject
from harbourmaster.controller.placement.watches import Seen, decode_observed
from harbourmaster.kube.errors import ConflictError, InvalidError, NotFoundError
from harbourmaster.placement.apply_rules import annotate, find_missing, mark_manifest
from harbourmaster.placement.inventory import MADE, Key, ObjectRef, Observation
from harbourmaster.placement.live_fields import (
    IgnoredFields,
    is_done,
    leave_fields,
    pointers_for,
    relies_on_owners,
    without_ttl,
)
from harbourmaster.placement.manifests import (
    ADOPTED_ANNOTATION,
    FIELD_MANAGER,
    UID_LABEL,
    Item,
    ManifestOwner,
    Present,
    is_ours,
    origin,
    stranger,
)
from harbourmaster.placement.readiness import FINISHED

if TYPE_CHECKING:
    from harbourmaster.controller.placement.session import Session
    from harbourmaster.kube.errors import ApiError

_TRIES: Final = 3
"""Times that an object is read and applied, as long as other clients change it in between."""
_FIELD_CONFLICT: Final = "FieldManagerConflict"
_FINISHED: Final = Seen("", "", "", FINISHED)
"""A Job that finished, and is not created again."""


class Applied(Struct, frozen=True):
    """An object after it was applied; ``before`` is what the watch had of it until then.

    ``is_kept``: a Job without its TTL, which is applied when its end is recorded.
    """

    ref: ObjectRef
    resource: Resource
    state: Seen
    before: Seen | None
    is_kept: bool = False


class Claim(Struct, frozen=True):
    """The owner of objects, and what is recorded of those on the cluster.

    ``force`` takes over existing objects, and fields of others but ``ignored`` ones.
    """

    owner: ManifestOwner
    recorded: Mapping[Key, ObjectRef] = {}
    force: bool = True
    cluster: str = ""
    observations: Mapping[Key, Observation] = {}
    ignored: tuple[IgnoredFields, ...] = ()
    intact: Mapping[Key, Applied] = {}
    """The objects that are as they were applied, and are not applied again."""
    stateless: tuple[str, ...] | None = ()
    """Custom resources without data, beside the known ones; None if data may be lost."""
    missing: tuple[Item, ...] = ()
    """The objects that were not applied: those that need them wait."""
    report: Callable[[str, str], None] = lambda _reason, _text: None
    """Announces what is replaced."""


class _Partial(Struct, frozen=True):
    metadata: Present


decode: Final = msgspec.json.Decoder(_Partial).decode


class _Decision(Struct, frozen=True):
    """The body for an object as it was read, or for a new one."""

    body: dict[str, Any]
    origin: str
    force: bool
    is_kept: bool
    held: Mapping[str, str]
    """Metadata of that object, without which the API server refuses the body."""


async def send(
    session: Session, resource: Resource, item: Item, claim: Claim
) -> Applied | RefusedObject:
    """Apply an object; decide again if another client has changed it since it was read."""
    ref, namespace = item.ref, item.ref.namespace or None
    patch = partial(session.client.patch, resource, ref.name)
    session.watches.follow(resource)
    for number in range(_TRIES):
        before = session.watches.get(resource, ref)
        decision = await _decide(session, resource, item, claim, is_first=number == 0)
        if isinstance(decision, RefusedObject):
            return decision
        if decision is None:
            return Applied(ref, resource, _FINISHED, before)
        body = decision.body
        held = {**body, "metadata": {**body["metadata"], **decision.held}}
        try:
            raw = await patch(ApplyPatch(held, FIELD_MANAGER, decision.force), namespace)
        except (ConflictError, InvalidError) as error:
            if _is_outdated(error, is_first=number == 0):
                continue
            if not isinstance(error, InvalidError):
                raise
            refused = await refusals.resolve_invalid(
                session.client, resource, Item(ref, body), decision.origin, error, claim
            )
            if refused is not None:
                return refused
            raw = await patch(ApplyPatch(body, FIELD_MANAGER, claim.force), namespace)
        state = decode_observed(raw, resource, session.watches.tests_by_owner)
        ref = replace(ref, uid=state.uid, origin=decision.origin)
        return Applied(ref, resource, state, before, decision.is_kept)
    return RefusedObject(ref, refusals.WAITING, "is changed by other clients meanwhile")


async def _decide(
    session: Session, resource: Resource, item: Item, claim: Claim, *, is_first: bool
) -> _Decision | RefusedObject | None:
    """Decide what to apply; None for nothing, because a Job has finished and is gone."""
    ref, recorded = item.ref, claim.recorded.get(item.ref.key)
    before = session.watches.get(resource, ref)
    made = recorded.origin if recorded is not None and _is_known(before, recorded, claim) else ""
    observation, pointers = claim.observations.get(ref.key), pointers_for(item, claim.ignored)
    may_be_done = is_done(item, observation, claim.cluster)
    body = item.body if may_be_done else without_ttl(item)
    force, is_kept, held = claim.force, body != item.body, {}
    if pointers or may_be_done or not made:
        there = await read_present(session, resource, ref)
        if there is None and may_be_done:
            return None
        if there is None and (needed := find_missing(item, claim.missing, is_new=True)):
            return RefusedObject(ref, refusals.WAITING, f"waits for {needed.text}")
        if not made and (refused := refuse_foreign(ref, there, claim)):
            return refused
        made = made or origin(there, recorded, claim.owner)
        owners = (there.managed_fields if there is not None else None) or ()
        body = leave_fields(body, pointers, owners, observation, force=claim.force)
        relies = relies_on_owners(body, pointers, owners)
        force = claim.force and not (relies and is_first)
        if there is not None:
            version = there.resource_version if relies and force else ""
            held = {"uid": there.uid, "resourceVersion": version}
    body = mark_manifest(item, body) if made == MADE else annotate(body, ADOPTED_ANNOTATION, "true")
    return _Decision(body, made, force, is_kept, held)


def _is_outdated(error: ApiError, *, is_first: bool) -> bool:
    """Whether another object is there, or another version of it, than was read."""
    if _FIELD_CONFLICT in error.causes:
        return is_first
    is_replaced = any(field.startswith("metadata.uid:") for field in error.fields)
    return isinstance(error, ConflictError) or is_replaced


def _is_known(before: Seen | None, recorded: ObjectRef, claim: Claim) -> bool:
    """Whether the watch shows the very object that is recorded, as ours."""
    return before is not None and (before.uid, before.owner_uid) == (recorded.uid, claim.owner.uid)


async def read_present(session: Session, resource: Resource, ref: ObjectRef) -> Present | None:
    """The object's metadata as the API server has it now; None where there is none."""
    try:
        raw = await session.client.get(
            resource, ref.name, ref.namespace or None, metadata_only=True
        )
    except NotFoundError:
        return None
    return decode(raw).metadata


def refuse_foreign(ref: ObjectRef, present: Present | None, claim: Claim) -> RefusedObject | None:
    """Return why an object of others is not taken over; None where it is."""
    owner = claim.owner
    whose = stranger(present.labels, owner.uid) if present is not None else ""
    if whose:
        text = f"belongs to application {whose}; to hand it over, remove its label {UID_LABEL}"
        return RefusedObject(ref, refusals.FOREIGN_OBJECT, text)
    if claim.force or present is None or is_ours(present, owner):
        return None
    if origin(present, claim.recorded.get(ref.key), owner) == MADE:
        # Somebody has taken our label off.
        return None
    text = (
        "exists and is not of this application: delete it, remove it from the manifests, or "
        "adopt it with spec.conflictPolicy: Force"
    )
    return RefusedObject(ref, "ObjectExists", text)
