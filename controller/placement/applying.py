"""Objects on a member cluster: applied in order, deleted in reverse, and only ours are deleted.

Every function raises UnreachableError where the cluster does not answer; what goes wrong with one
object is said of that object.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.patches import ApplyPatch, MergePatch
from harbourmaster.api.resources import Resource
from harbourmaster.controller.placement.contents import held
from harbourmaster.controller.placement.watches import Seen, seen
from harbourmaster.kube.discovery import UnknownKindError
from harbourmaster.kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from harbourmaster.placement.inventory import ADOPTED, MADE, Inventory, Key, ObjectRef
from harbourmaster.placement.manifests import (
    DEFINITIONS,
    FIELD_MANAGER,
    NAMESPACES,
    UID_LABEL,
    Owner,
    Target,
    definitions,
    for_deletion,
    kinds,
    prepare,
    rank,
    stranger,
)
from harbourmaster.placement.ownership import (
    ADOPTED_ANNOTATION,
    Present,
    is_ours,
    origin,
    released,
)
from harbourmaster.placement.rollout import ActionOutcome, Done

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from harbourmaster.controller.placement.session import Session
    from harbourmaster.placement.manifests import Item, Prepared

PARALLEL: Final = 4
"""Requests of one application to one cluster at the same time."""
_SHOWN: Final = 3
RELEASED: Final = "Released"
_CONTAINERS: Final = {NAMESPACES: "NamespaceKept", DEFINITIONS: "DefinitionKept"}
"""Why what takes its contents along is left, by rank."""
_LEFT: Final = frozenset((RELEASED, *_CONTAINERS.values()))
_REASONS: Final[tuple[tuple[type[ApiError], str], ...]] = (
    (ConflictError, "FieldConflict"),
    (ForbiddenError, "Forbidden"),
    (InvalidError, "Invalid"),
    (NotFoundError, "NotFound"),
)


class Applied(Struct, frozen=True):
    """An object that was applied, as it then was; ``before`` is what the watch had of it."""

    ref: ObjectRef
    resource: Resource
    state: Seen
    before: Seen | None


class Refused(Struct, frozen=True):
    """An object that was not, and why."""

    ref: ObjectRef
    reason: str
    text: str


class Claim(Struct, frozen=True):
    """Whose objects they are, and what is recorded of those on the cluster.

    ``force`` takes over objects that are there, and fields of others.
    """

    owner: Owner
    recorded: Mapping[Key, ObjectRef] = {}
    force: bool = True


class Report(Struct, frozen=True):
    """The result of applying all; ``is_whole``: everything is there, even if pruning failed."""

    outcome: ActionOutcome
    applied: tuple[Applied, ...] = ()
    pruned: Inventory = ()
    left: tuple[Refused, ...] = ()
    is_whole: bool = False


class Cleared(Struct, frozen=True):
    """The result of deleting; ``gone`` are no longer there, or not ours any more.

    Of these ``left`` are there still, and why.
    """

    outcome: ActionOutcome
    gone: Inventory = ()
    left: tuple[Refused, ...] = ()


class _Partial(Struct, frozen=True):
    metadata: Present


_decode: Final = msgspec.json.Decoder(_Partial).decode


async def prepared_for(
    session: Session, manifests: Sequence[Any], owner: Owner, *, allow_cluster_scoped: bool
) -> Prepared:
    """The manifests as that cluster takes them. Raises ApiError where it does not say."""
    known = [each for each in manifests if isinstance(each, dict)]
    brought = definitions(known)
    scopes: dict[tuple[str, str], bool] = {}
    for version, kind in sorted(kinds(known)):
        try:
            found = await session.discovery.resource(version, kind)
        except UnknownKindError:
            continue
        scopes[version, kind] = found.namespaced
    # What the manifests bring is what will be, whatever is there now.
    return prepare(
        manifests,
        owner,
        Target({**scopes, **brought}, session.namespace, allow_cluster_scoped),
    )


async def check(session: Session, prepared: Prepared, claim: Claim) -> ActionOutcome:
    """Whether somebody else holds what would be applied."""

    async def one(ref: ObjectRef) -> Refused | None:
        try:
            resource = await session.discovery.resource(ref.api_version, ref.kind)
        except UnknownKindError:
            return None
        return _foreign(ref, await _present(session, resource, ref), claim)

    found = await _each(one, prepared.refs)
    return _outcome([each for each in found if each is not None])


async def apply(session: Session, prepared: Prepared, claim: Claim, prune: Inventory) -> Report:
    """Apply everything, and then delete what is to be pruned.

    What follows an object that failed is left alone.
    """
    applied: list[Applied] = []
    for level, items in groupby(prepared.items, key=lambda item: rank(item.ref)):
        batch = list(items)
        results = await _each(lambda item: _apply_one(session, item, claim), batch)
        applied += [each for each in results if isinstance(each, Applied)]
        refused = [each for each in results if isinstance(each, Refused)]
        if refused:
            return Report(_outcome(refused), tuple(applied))
        if level == DEFINITIONS:
            for each in definitions(item.body for item in batch):
                session.discovery.forget(each[0])
            waiting = [each.ref for each in applied if not each.state.readiness.is_ready]
            waiting = [ref for ref in waiting if rank(ref) == DEFINITIONS]
            if waiting:
                text = f"{waiting[0].text} is not established yet"
                return Report(ActionOutcome(Done.PARTLY, "Deploying", text), tuple(applied))
    cleared = await delete(session, prune, claim.owner)
    return Report(cleared.outcome, tuple(applied), cleared.gone, cleared.left, is_whole=True)


async def delete(
    session: Session,
    refs: Iterable[ObjectRef],
    owner: Owner,
    kept: frozenset[str] = frozenset(),
) -> Cleared:
    """Delete what we made in the background, those first that were applied last; release the rest.

    ``kept`` are the uids of what belongs there by another record: two Clusters may lead to one.
    """
    results: list[ObjectRef | Refused] = []
    for _, batch in groupby(for_deletion(refs), key=rank):
        results += await _each(lambda ref: _delete_one(session, ref, owner, kept), list(batch))
    refused = [each for each in results if isinstance(each, Refused)]
    left = tuple(each for each in refused if each.reason in _LEFT)
    refused = [each for each in refused if each.reason not in _LEFT]
    gone = tuple(each for each in results if isinstance(each, ObjectRef))
    gone += tuple(each.ref for each in left)
    failed = [each for each in refused if each.reason != "Deleting"]
    if failed:
        return Cleared(_outcome(failed), gone, left)
    if refused:
        text = _text([replace(each, text="") for each in refused])
        waiting = ActionOutcome(Done.PARTLY, "Deleting", f"waiting for the end of {text}")
        return Cleared(waiting, gone, left)
    return Cleared(ActionOutcome(Done.YES), gone, left)


async def _apply_one(session: Session, item: Item, claim: Claim) -> Applied | Refused:
    ref, recorded = item.ref, claim.recorded.get(item.ref.key)
    try:
        resource = await session.discovery.resource(ref.api_version, ref.kind)
        session.watches.follow(resource)
        before = session.watches.get(resource, ref)
        made = (
            recorded.origin if recorded is not None and _is_known(before, recorded, claim) else ""
        )
        if not made:
            present = await _present(session, resource, ref)
            refused = _foreign(ref, present, claim)
            if refused is not None:
                return refused
            made = origin(present, recorded, claim.owner)
        raw = await session.client.patch(
            resource,
            ref.name,
            ApplyPatch(
                item.body if made == MADE else _adopted(item.body), FIELD_MANAGER, claim.force
            ),
            ref.namespace or None,
        )
        state = seen(raw, resource)
    except UnknownKindError as error:
        return Refused(ref, "UnknownKind", str(error))
    except UnreachableError:
        raise
    except NotFoundError as error:
        # The kind may have gone, or only the namespace.
        session.discovery.forget(ref.api_version)
        return _refused(ref, error)
    except ApiError as error:
        return _refused(ref, error)
    except ValueError as error:
        # Also what can't be decoded: a name that is none, or no object.
        return Refused(ref, "Invalid", str(error))
    return Applied(replace(ref, uid=state.uid, origin=made), resource, state, before)


def _is_known(before: Seen | None, recorded: ObjectRef, claim: Claim) -> bool:
    """Whether the watch shows the very object that is recorded, as ours."""
    return before is not None and (before.uid, before.owner_uid) == (
        recorded.uid,
        claim.owner.uid,
    )


def _adopted(body: dict[str, Any]) -> dict[str, Any]:
    """The object with a mark that it was there before."""
    metadata = body["metadata"]
    given = metadata.get("annotations")
    annotations = given if isinstance(given, dict) else {}
    marked = {**annotations, ADOPTED_ANNOTATION: "true"}
    return {**body, "metadata": {**metadata, "annotations": marked}}


async def _delete_one(
    session: Session, ref: ObjectRef, owner: Owner, kept: frozenset[str]
) -> ObjectRef | Refused:
    try:
        resource = await session.discovery.resource(ref.api_version, ref.kind)
        present = await _present(session, resource, ref)
        if present is None or not is_ours(present, owner) or present.uid in kept:
            return ref
        left = await _left(session, ref, present, owner)
        if left is not None:
            patch = MergePatch(released(present, owner))
            await session.client.patch(resource, ref.name, patch, ref.namespace or None)
            return left
        if not present.deletion_timestamp:
            # Its end is to be told.
            session.watches.follow(resource)
            await session.client.delete(
                resource,
                ref.name,
                ref.namespace or None,
                uid=present.uid,
                propagation="Background",
                missing_ok=True,
            )
            if not is_ours(await _present(session, resource, ref), owner):
                return ref
    except UnknownKindError:
        # The kind is gone, and its objects with it.
        return ref
    except UnreachableError:
        raise
    except ApiError as error:
        return _refused(ref, error)
    except ValueError as error:
        return Refused(ref, "Invalid", str(error))
    return Refused(ref, "Deleting", "is being deleted")


async def _left(session: Session, ref: ObjectRef, present: Present, owner: Owner) -> Refused | None:
    """Why an object of ours is not to be deleted; None where it is."""
    if origin(present, ref, owner) == ADOPTED:
        was = "existed before the application"
        unsure = (
            "no origin is recorded, and it is older than the application or others have written "
            "it: delete it if it is not needed"
        )
        return Refused(ref, RELEASED, was if ref.origin else unsure)
    if present.deletion_timestamp or rank(ref) not in _CONTAINERS:
        return None
    others = await held(session, ref, owner)
    if not others:
        return None
    text = (
        f"it holds {_shown(others)}, not of this application: delete it when it is no longer needed"
    )
    return Refused(ref, _CONTAINERS[rank(ref)], text)


async def _present(session: Session, resource: Resource, ref: ObjectRef) -> Present | None:
    """The object's metadata as the API server has it now; None where there is none."""
    try:
        raw = await session.client.get(
            resource, ref.name, ref.namespace or None, metadata_only=True
        )
    except NotFoundError:
        return None
    return _decode(raw).metadata


def _foreign(ref: ObjectRef, found: Present | None, claim: Claim) -> Refused | None:
    owner = claim.owner
    whose = stranger(found.labels, owner.uid) if found is not None else ""
    if whose:
        text = f"belongs to application {whose}; to hand it over, remove its label {UID_LABEL}"
        return Refused(ref, "ForeignObject", text)
    if claim.force or found is None or is_ours(found, owner):
        return None
    if origin(found, claim.recorded.get(ref.key), owner) == MADE:
        # Somebody has taken our label off.
        return None
    text = (
        "exists and is not of this application: delete it, remove it from the manifests, or "
        "adopt it with spec.conflictPolicy: Force"
    )
    return Refused(ref, "ObjectExists", text)


def _refused(ref: ObjectRef, error: ApiError) -> Refused:
    reason = next((name for kind, name in _REASONS if isinstance(error, kind)), "ApplyFailed")
    return Refused(ref, reason, error.message)


def _outcome(refused: Sequence[Refused]) -> ActionOutcome:
    if not refused:
        return ActionOutcome(Done.YES)
    return ActionOutcome(Done.FAILED, refused[0].reason, _text(refused))


def _text(refused: Sequence[Refused]) -> str:
    """The first few in one line."""
    return _shown(
        [f"{each.ref.text}: {each.text}" if each.text else each.ref.text for each in refused]
    )


def _shown(texts: Sequence[str]) -> str:
    more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return "; ".join(texts[:_SHOWN]) + more


async def _each(do: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> list[Any]:
    """The results of all, a few at a time; the first that raises ends the others."""
    places = asyncio.Semaphore(PARALLEL)

    async def one(item: object) -> Any:  # noqa: ANN401 - what ``do`` gives
        async with places:
            return await do(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]
