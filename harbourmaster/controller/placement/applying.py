"""Applies objects to a member cluster in order, and deletes only our own, in reverse order.

Every function raises UnreachableError if the cluster does not answer. A fault of one object is
reported with that object.
"""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from harbourmaster.api.patches import MergePatch
from harbourmaster.controller.placement import refusals
from harbourmaster.controller.placement.refusals import RefusedObject, refusal_of
from harbourmaster.controller.placement.sending import (
    Applied,
    decode,
    read_present,
    refuse_foreign,
    send,
)
from harbourmaster.kube.discovery import UnknownKindError
from harbourmaster.kube.errors import (
    ApiError,
    NotFoundError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
)
from harbourmaster.placement.apply_rules import find_missing
from harbourmaster.placement.inventory import ADOPTED, Inventory, ObjectRef
from harbourmaster.placement.manifests import (
    DEFINITIONS,
    NAMESPACES,
    ManifestTarget,
    definitions,
    for_deletion,
    is_of_others,
    is_ours,
    kinds,
    origin,
    prepare,
    rank,
    release_patch,
)
from harbourmaster.placement.rollout import ActionOutcome, Done

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence

    from harbourmaster.api.resources import Resource
    from harbourmaster.controller.placement.sending import Claim
    from harbourmaster.controller.placement.session import Session
    from harbourmaster.placement.manifests import (
        Item,
        ManifestOwner,
        Prepared,
        Present,
    )

ENOUGH: Final = 10
"""Number of other owners' objects after which the search for more ends."""
_EVENTS: Final = "events"
PARALLEL: Final = 4
"""Requests of one application to one cluster at the same time."""
RELEASED: Final = "Released"
_CONTAINERS: Final = {NAMESPACES: "NamespaceKept", DEFINITIONS: "DefinitionKept"}
"""Why what takes its contents along is left, by rank."""
_LEFT: Final = frozenset((RELEASED, *_CONTAINERS.values()))


class ApplyReport(Struct, frozen=True):
    """The result of applying all; ``is_whole``: everything is there, even if pruning failed."""

    outcome: ActionOutcome
    applied: tuple[Applied, ...] = ()
    pruned: Inventory = ()
    left: tuple[RefusedObject, ...] = ()
    is_whole: bool = False


class DeleteReport(Struct, frozen=True):
    """The result of deleting; ``gone`` no longer exist, or are not ours any more.

    ``left`` are those of them that still exist, and why.
    """

    outcome: ActionOutcome
    gone: Inventory = ()
    left: tuple[RefusedObject, ...] = ()


async def prepared_for(
    session: Session,
    manifests: Sequence[Any],
    owner: ManifestOwner,
    *,
    allow_cluster_scoped: bool,
    secrets: Sequence[dict[str, Any]] = (),
) -> Prepared:
    """The manifests as that cluster takes them. Raises ApiError where it does not say."""
    known = [manifest for manifest in (*manifests, *secrets) if isinstance(manifest, dict)]
    scopes: dict[tuple[str, str], bool] = {}
    for version, kind in sorted(kinds(known)):
        try:
            resource = await session.discovery.resource(version, kind)
        except UnknownKindError:
            continue
        scopes[version, kind] = resource.namespaced
    target = ManifestTarget(scopes, session.namespace, allow_cluster_scoped)
    return prepare(manifests, owner, target, secrets)


async def check(session: Session, prepared: Prepared, claim: Claim) -> ActionOutcome:
    """Find out whether other owners hold objects that would be applied."""

    async def find_refusal(ref: ObjectRef) -> RefusedObject | None:
        try:
            resource = await session.discovery.resource(ref.api_version, ref.kind)
        except UnknownKindError:
            return None
        return refuse_foreign(ref, await read_present(session, resource, ref), claim)

    refused = await _run_all(find_refusal, prepared.refs)
    return refusals.outcome_of([refusal for refusal in refused if refusal is not None])


async def apply(
    session: Session, prepared: Prepared, claim: Claim, prune: Inventory
) -> ApplyReport:
    """Apply everything, and then delete what is to be pruned.

    A refused object stops only those that need it. As long as one is missing, nothing is pruned.
    """
    applied: list[Applied] = []
    refused: list[RefusedObject] = []
    missing: list[Item] = []
    for level, items in groupby(prepared.items, key=lambda item: rank(item.ref)):
        batch = list(items)
        apply_one = partial(_apply_one, session, replace(claim, missing=tuple(missing)))
        results = await _run_all(apply_one, batch)
        for item, result in zip(batch, results, strict=True):
            if isinstance(result, RefusedObject):
                refused.append(result)
                missing.append(item)
                continue
            applied.append(result)
            if level == DEFINITIONS and not result.state.readiness.is_ready:
                missing.append(item)
        if level == DEFINITIONS:
            for definition in definitions(item.body for item in batch):
                session.discovery.forget(definition[0])
    if refused:
        return ApplyReport(refusals.outcome_of(refused), tuple(applied))
    if prepared.awaited:
        text = refusals.join_first(prepared.awaited)
        waits = ActionOutcome(Done.PARTLY, "WaitingForKind", text)
        return ApplyReport(waits, tuple(applied))
    cleared = await delete(session, prune, claim.owner)
    return ApplyReport(cleared.outcome, tuple(applied), cleared.gone, cleared.left, is_whole=True)


async def delete(
    session: Session,
    refs: Iterable[ObjectRef],
    owner: ManifestOwner,
    kept: frozenset[str] = frozenset(),
) -> DeleteReport:
    """Delete what we made in the background, those first that were applied last; release the rest.

    ``kept`` are the uids of what belongs there by another record: two Clusters may lead to one.
    """
    results: list[ObjectRef | RefusedObject] = []
    for _, batch in groupby(for_deletion(refs), key=rank):
        results += await _run_all(lambda ref: _delete_one(session, ref, owner, kept), list(batch))
    refused = [result for result in results if isinstance(result, RefusedObject)]
    left = tuple(refusal for refusal in refused if refusal.reason in _LEFT)
    refused = [refusal for refusal in refused if refusal.reason not in _LEFT]
    gone = tuple(result for result in results if isinstance(result, ObjectRef))
    gone += tuple(refusal.ref for refusal in left)
    failed = [refusal for refusal in refused if refusal.reason != "Deleting"]
    if failed:
        return DeleteReport(refusals.outcome_of(failed), gone, left)
    if refused:
        text = refusals.describe([replace(refusal, text="") for refusal in refused])
        waiting = ActionOutcome(Done.PARTLY, "Deleting", f"waiting for the end of {text}")
        return DeleteReport(waiting, gone, left)
    return DeleteReport(ActionOutcome(Done.YES), gone, left)


async def _apply_one(session: Session, claim: Claim, item: Item) -> Applied | RefusedObject:
    ref = item.ref
    if ref.key in claim.intact:
        return claim.intact[ref.key]
    if needed := find_missing(item, claim.missing, is_new=False):
        return RefusedObject(ref, refusals.WAITING, f"waits for {needed.text}")
    try:
        resource = await session.discovery.resource(ref.api_version, ref.kind)
        return await send(session, resource, item, claim)
    except UnknownKindError as error:
        return RefusedObject(ref, "UnknownKind", str(error))
    except UnreachableError:
        raise
    except NotFoundError as error:
        # The kind may have gone, or only the namespace.
        session.discovery.forget(ref.api_version)
        return refusal_of(ref, error)
    except ApiError as error:
        return refusal_of(ref, error)
    except ValueError as error:
        # Also what can't be decoded: a name that is none, or no object.
        return RefusedObject(ref, "Invalid", str(error))


async def _delete_one(
    session: Session, ref: ObjectRef, owner: ManifestOwner, kept: frozenset[str]
) -> ObjectRef | RefusedObject:
    try:
        resource = await session.discovery.resource(ref.api_version, ref.kind)
        there = await read_present(session, resource, ref)
        if there is None or not is_ours(there, owner) or there.uid in kept:
            return ref
        left = await _find_obstacle(session, ref, there, owner)
        if left is not None:
            patch = MergePatch(release_patch(there, owner))
            await session.client.patch(resource, ref.name, patch, ref.namespace or None)
            return left
        if not there.deletion_timestamp:
            # Its end is to be told.
            session.watches.follow(resource)
            await session.client.delete(
                resource,
                ref.name,
                ref.namespace or None,
                uid=there.uid,
                propagation="Background",
                missing_ok=True,
            )
            if not is_ours(await read_present(session, resource, ref), owner):
                return ref
    except UnknownKindError:
        # The kind is gone, and its objects with it.
        return ref
    except UnreachableError:
        raise
    except ApiError as error:
        return refusal_of(ref, error)
    except ValueError as error:
        return RefusedObject(ref, "Invalid", str(error))
    return RefusedObject(ref, "Deleting", "is being deleted")


async def _find_obstacle(
    session: Session, ref: ObjectRef, there: Present, owner: ManifestOwner
) -> RefusedObject | None:
    """Why an object of ours is not to be deleted; None where it is."""
    if origin(there, ref, owner) == ADOPTED:
        was = "existed before the application"
        unsure = (
            "no origin is recorded, and it is older than the application or others have written "
            "it: delete it if it is not needed"
        )
        return RefusedObject(ref, RELEASED, was if ref.origin else unsure)
    if there.deletion_timestamp or rank(ref) not in _CONTAINERS:
        return None
    others = await _find_other_objects(session, ref, owner)
    if not others:
        return None
    held = refusals.join_first(others)
    text = f"it holds {held}, not of this application: delete it when it is no longer needed"
    return RefusedObject(ref, _CONTAINERS[rank(ref)], text)


async def _find_other_objects(session: Session, ref: ObjectRef, owner: ManifestOwner) -> list[str]:
    """The objects of others in a namespace, or of a definition's kind: some, in words.

    Raises an ApiError where the cluster is in no state to say.
    """
    everything = await session.discovery.listable()
    namespaced = {(resource.group, resource.kind) for resource in everything if resource.namespaced}
    is_namespace = rank(ref) == NAMESPACES
    texts: list[str] = []
    for resource in everything:
        is_inside = resource.namespaced and resource.plural != _EVENTS
        if not (is_inside if is_namespace else resource.name == ref.name):
            continue
        try:
            async for held in _list_objects(session, resource, ref.name if is_namespace else None):
                if is_of_others(resource.kind, held, owner, namespaced):
                    texts.append(f"{resource.kind} {held.name}")
                if len(texts) >= ENOUGH:
                    return texts
        except NotFoundError:
            continue
        except (ServerError, TooManyRequestsError, UnreachableError):
            raise
        except ApiError as error:
            # Objects of a kind that we cannot list may exist.
            texts.append(f"perhaps {resource.plural} ({error.message})")
    return texts


async def _list_objects(
    session: Session, resource: Resource, namespace: str | None
) -> AsyncIterator[Present]:
    token = ""
    while True:
        page = await session.client.list(
            resource, namespace, continue_token=token, metadata_only=True
        )
        for item in page.items:
            yield decode(item).metadata
        token = page.continue_token
        if not token:
            return


async def _run_all(do: Callable[[Any], Awaitable[Any]], items: Sequence[Any]) -> list[Any]:
    """Return the results for all items, a few at a time; the first that raises ends the others."""
    places = asyncio.Semaphore(PARALLEL)

    async def run(item: object) -> Any:  # noqa: ANN401 - what ``do`` gives
        async with places:
            return await do(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(item)) for item in items]
    except BaseExceptionGroup as failed:
        first = failed.exceptions[0]
        raise first from first.__cause__
    return [task.result() for task in tasks]
