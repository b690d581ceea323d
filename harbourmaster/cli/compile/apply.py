"""``harbourmaster compile apply``: all steps of ``compile``, each after the one before it worked.

Until the last step nothing changes outside the probe namespace, and each step can be repeated.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from contextlib import suppress
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.patches import ApplyPatch
from harbourmaster.api.resources import MUTATING_POLICIES, NAMESPACES
from harbourmaster.cli.batches import plural
from harbourmaster.cli.installed import GUARDS, VALIDATING_POLICIES
from harbourmaster.cli.live.cluster import collect, say
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.cli.live.reader import ClusterReader
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.errors import ApiError, UnauthorizedError
from harbourmaster.policies.enforcement import COMPILED_KEY, QUIET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.policies.delegation import Objects

    Json = dict[str, Any]
    Trial = Callable[[], Awaitable[tuple[int, list[list[str]]]]]

_KINDS: Final = {resource.kind: resource for resource in (NAMESPACES, *GUARDS)}
_RETRIES: Final = Backoff(first=0.5, limit=5.0)


class StepError(Exception):
    """A step that failed; the text says why."""


async def apply_objects(
    client: Client, objects: Objects, try_out: Trial, *, patience: float, is_dry: bool
) -> None:
    """Write the objects of all steps, and delete those of former sets.

    ``try_out`` returns how many objects it tried, and the lines of each difference between API
    server and webhook; it is repeated for ``patience`` seconds until there is none. With
    ``is_dry``, each request is a dry run. Raises StepError and ApiError.
    """
    done = " (dry run)" if is_dry else ""
    for step in ("policies", "probe"):
        say(f"{step}: {await _write(client, getattr(objects, step), is_dry=is_dry)}{done}")
    if objects.policies and not is_dry:
        say(f"tried: {plural(await _try_until_equal(try_out, patience), 'object')}, 0 differ")
        await _check_types(client, objects.policies)
    say(f"final: {await _write(client, objects.final, is_dry=is_dry)}{done}")
    former = await former_objects(client, objects)
    if former and not is_dry:
        say(f"former sets: deleted in {QUIET:g} s, when every API server knows the new one")
        await asyncio.sleep(QUIET)
        for resource, metadata in former:
            await client.delete(resource, metadata.name, uid=metadata.uid, missing_ok=True)
    say(f"former sets: {plural(len(former), 'object')} deleted{done}")


async def former_objects(client: Client, objects: Objects) -> list[tuple[Resource, Metadata]]:
    """Return compiled objects that are not among these, bindings first. Raises ApiError."""
    manifests = (*objects.policies, *objects.probe, *objects.final)
    kept = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests}
    former = [
        (resource, metadata)
        for resource in GUARDS
        for metadata in await collect(
            client, resource, metadata_in, label_selector=COMPILED_KEY, metadata_only=True
        )
        if (resource.kind, metadata.name) not in kept
    ]
    return sorted(former, key=lambda pair: not pair[0].kind.endswith("Binding"))


async def _write(client: Client, manifests: Iterable[Json], *, is_dry: bool) -> str:
    """Apply objects; return how many were created, changed and unchanged."""
    live, counts = ClusterReader(client), Counter[str]()
    for manifest in manifests:
        resource, name = _KINDS[manifest["kind"]], manifest["metadata"]["name"]
        before = await live.read(resource, name, metadata_in)
        if before is not None and before.generation > 1 and resource == MUTATING_POLICIES:
            # A set that was edited does not count any more, whatever it contains.
            if not is_dry:
                await client.delete(resource, name, uid=before.uid, missing_ok=True)
            before = None
        patch = ApplyPatch(manifest, field_manager="harbourmaster-cli", force=True)
        after = metadata_in(await client.patch(resource, name, patch, dry_run=is_dry))
        is_same = before is not None and before.generation == after.generation
        counts["unchanged" if is_same else "changed" if before is not None else "created"] += 1
    return ", ".join(f"{counts[word]} {word}" for word in sorted(counts)) or "nothing to apply"


async def _try_until_equal(try_out: Trial, patience: float) -> int:
    """Try until the API server has noticed the objects, of which it gives no event."""
    failure: Exception = StepError("the API server did not answer in time")
    differences: list[list[str]] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            for attempt in count():
                try:
                    tried, differences = await try_out()
                    if not differences:
                        return tried
                    failure = StepError(f"{len(differences)} of {tried} objects differ")
                except UnauthorizedError:
                    raise
                except ApiError as error:
                    failure, differences = error, []
                if attempt == 0:
                    say("tried: waiting until the API server enforces the policies of the probe")
                await asyncio.sleep(_RETRIES.delay(attempt, random.random()))  # noqa: S311 - a pause
    sys.stdout.writelines(chain.from_iterable(differences))
    raise failure


async def _check_types(client: Client, manifests: Iterable[Json]) -> None:
    """Raise StepError for an expression whose types the API server warns of."""
    for manifest in manifests:
        if manifest["kind"] == VALIDATING_POLICIES.kind:
            name = manifest["metadata"]["name"]
            stored = decode_anything(await client.get(VALIDATING_POLICIES, name))
            checking = (stored.get("status") or {}).get("typeChecking") or {}
            for warned in checking.get("expressionWarnings") or ():
                text = f"{warned.get('fieldRef')}: {warned.get('warning')}"
                raise StepError(f"{VALIDATING_POLICIES.kind} {name}: {text}")
