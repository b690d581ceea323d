"""Objects on a member cluster: applied in order, deleted in reverse, and nobody else's touched.

Every function raises UnreachableError where the cluster does not answer; what goes wrong with one
object is said of that object.
"""

from __future__ import annotations

import asyncio
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from controller.placement.watches import FIELD_MANAGER, Seen, seen
from kube.discovery import UnknownKindError
from kube.errors import (
    ApiError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    UnreachableError,
)
from kube.patches import ApplyPatch
from kube.resources import Resource
from placement.inventory import Inventory, ObjectRef
from placement.manifests import (
    DEFINITIONS,
    UID_LABEL,
    Target,
    definitions,
    for_deletion,
    kinds,
    prepare,
    rank,
    stranger,
)
from placement.rollout import Done, Outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    from controller.placement.session import Session
    from placement.manifests import Item, Owner, Prepared

PARALLEL: Final = 4
"""Requests of one application to one cluster at the same time."""
_SHOWN: Final = 3
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


class Report(Struct, frozen=True):
    """What came of applying all; ``is_whole``: everything is there, whatever came of pruning."""

    outcome: Outcome
    applied: tuple[Applied, ...] = ()
    pruned: Inventory = ()
    is_whole: bool = False


class Cleared(Struct, frozen=True):
    """What came of deleting; ``gone`` are no longer there, or were never ours."""

    outcome: Outcome
    gone: Inventory = ()


class _Metadata(Struct, frozen=True, rename="camel"):
    uid: str = ""
    labels: dict[str, str] | None = None
    deletion_timestamp: str | None = None


class _Partial(Struct, frozen=True):
    metadata: _Metadata


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


async def check(session: Session, prepared: Prepared, owner: Owner) -> Outcome:
    """Whether another application holds what would be applied."""

    async def one(ref: ObjectRef) -> Refused | None:
        try:
            resource = await session.discovery.resource(ref.api_version, ref.kind)
        except UnknownKindError:
            return None
        return _foreign(ref, await _present(session, resource, ref), owner)

    found = await _each(one, prepared.refs)
    return _outcome([each for each in found if each is not None])


async def apply(
    session: Session, prepared: Prepared, owner: Owner, prune: Inventory, *, force: bool
) -> Report:
    """Apply everything, and then delete what is to be pruned.

    What follows an object that failed is left alone; ``force`` takes over fields of others.
    """
    applied: list[Applied] = []
    for level, items in groupby(prepared.items, key=lambda item: rank(item.ref)):
        batch = list(items)
        results = await _each(lambda item: _apply_one(session, item, owner, force), batch)
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
                return Report(Outcome(Done.PARTLY, "Deploying", text), tuple(applied))
    cleared = await delete(session, prune, owner)
    return Report(cleared.outcome, tuple(applied), cleared.gone, is_whole=True)


async def delete(
    session: Session,
    refs: Iterable[ObjectRef],
    owner: Owner,
    kept: frozenset[str] = frozenset(),
) -> Cleared:
    """Delete our objects in the background, those first that were applied last.

    ``kept`` are the uids of what belongs there by another record: two Clusters may lead to one.
    """
    results: list[ObjectRef | Refused | None] = []
    for _, batch in groupby(for_deletion(refs), key=rank):
        results += await _each(lambda ref: _delete_one(session, ref, owner, kept), list(batch))
    gone = tuple(each for each in results if not isinstance(each, Refused) and each is not None)
    refused = [each for each in results if isinstance(each, Refused)]
    failed = [each for each in refused if each.reason != "Deleting"]
    if failed:
        return Cleared(_outcome(failed), gone)
    if refused:
        text = _text([replace(each, text="") for each in refused])
        return Cleared(Outcome(Done.PARTLY, "Deleting", f"waiting for the end of {text}"), gone)
    return Cleared(Outcome(Done.YES), gone)


async def _apply_one(session: Session, item: Item, owner: Owner, force: bool) -> Applied | Refused:
    ref = item.ref
    try:
        resource = await session.discovery.resource(ref.api_version, ref.kind)
        session.watches.follow(resource)
        before = session.watches.get(resource, ref)
        if before is None or before.owner_uid != owner.uid:
            refused = _foreign(ref, await _present(session, resource, ref), owner)
            if refused is not None:
                return refused
        raw = await session.client.patch(
            resource,
            ref.name,
            ApplyPatch(item.body, FIELD_MANAGER, force),
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
    return Applied(replace(ref, uid=state.uid), resource, state, before)


async def _delete_one(
    session: Session, ref: ObjectRef, owner: Owner, kept: frozenset[str]
) -> ObjectRef | Refused:
    try:
        resource = await session.discovery.resource(ref.api_version, ref.kind)
        present = await _present(session, resource, ref)
        if present is None or not _is_ours(present, owner) or present.uid in kept:
            return ref
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
            if not _is_ours(await _present(session, resource, ref), owner):
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


async def _present(session: Session, resource: Resource, ref: ObjectRef) -> _Metadata | None:
    """The object's metadata as the API server has it now; None where there is none."""
    try:
        raw = await session.client.get(
            resource, ref.name, ref.namespace or None, metadata_only=True
        )
    except NotFoundError:
        return None
    return _decode(raw).metadata


def _is_ours(found: _Metadata | None, owner: Owner) -> bool:
    return found is not None and (found.labels or {}).get(UID_LABEL) == owner.uid


def _foreign(ref: ObjectRef, found: _Metadata | None, owner: Owner) -> Refused | None:
    whose = stranger(found.labels, owner.uid) if found is not None else ""
    if not whose:
        return None
    text = f"belongs to application {whose}; to hand it over, remove its label {UID_LABEL}"
    return Refused(ref, "ForeignObject", text)


def _refused(ref: ObjectRef, error: ApiError) -> Refused:
    reason = next((name for kind, name in _REASONS if isinstance(error, kind)), "ApplyFailed")
    return Refused(ref, reason, error.message)


def _outcome(refused: Sequence[Refused]) -> Outcome:
    if not refused:
        return Outcome(Done.YES)
    return Outcome(Done.FAILED, refused[0].reason, _text(refused))


def _text(refused: Sequence[Refused]) -> str:
    """The first few in one line."""
    shown = [f"{each.ref.text}: {each.text}" if each.text else each.ref.text for each in refused]
    more = f"; and {len(shown) - _SHOWN} more" if len(shown) > _SHOWN else ""
    return "; ".join(shown[:_SHOWN]) + more


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
