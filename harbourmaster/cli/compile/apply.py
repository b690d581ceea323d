"""``harbourmaster compile apply``: all steps of ``compile``, each after the one before it worked.

Until the last step nothing changes outside the probe namespace, and each step can be repeated.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.api.patches import ApplyPatch
from harbourmaster.api.resources import MUTATING_POLICIES, NAMESPACES
from harbourmaster.cli.batches import plural
from harbourmaster.cli.installed import GUARDS, VALIDATING_POLICIES
from harbourmaster.cli.live.cluster import collect, say
from harbourmaster.cli.live.kinds import decode_anything, metadata_in
from harbourmaster.kube.backoff import Backoff
from harbourmaster.kube.errors import ApiError, NotFoundError, UnauthorizedError
from harbourmaster.policies.enforcement import COMPILED_KEY, QUIET

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from harbourmaster.api.metadata import Metadata
    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.policies.delegation import Objects

    Json = dict[str, Any]

_KINDS: Final = {resource.kind: resource for resource in (NAMESPACES, *GUARDS)}
_RETRIES: Final = Backoff(first=0.5, limit=5.0)


class StepError(Exception):
    """A step that failed; the text says why, and ``lines`` more."""

    def __init__(self, text: str, lines: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.lines = lines


async def apply_objects(
    client: Client,
    objects: Objects,
    try_out: Callable[[], Awaitable[int]],
    *,
    patience: float,
    is_dry: bool,
) -> None:
    """Write the objects of all steps, and delete those of former sets.

    ``try_out`` raises StepError while the API server does not do what the webhook does; it is
    repeated for ``patience`` seconds. With ``is_dry``, each request is a dry run. Raises StepError
    and ApiError.
    """
    done = " (dry run)" if is_dry else ""
    for step in ("policies", "probe"):
        say(f"{step}: {await _write(client, getattr(objects, step), is_dry=is_dry)}{done}")
    if objects.policies and not is_dry:
        say(f"tried: {plural(await _repeat(try_out, patience), 'object')}, 0 differ")
        await _check_types(client, objects.policies)
    say(f"final: {await _write(client, objects.final, is_dry=is_dry)}{done}")
    former = await former_objects(client, objects)
    if former and not is_dry:
        say(
            f"former sets: they are deleted in {QUIET:g} s, when every API server knows the new one"
        )
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
    counts: Counter[str] = Counter()
    for manifest in manifests:
        resource, name = _KINDS[manifest["kind"]], manifest["metadata"]["name"]
        before = await _find(client, resource, name)
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


async def _find(client: Client, resource: Resource, name: str) -> Metadata | None:
    try:
        return metadata_in(await client.get(resource, name, metadata_only=True))
    except NotFoundError:
        return None


async def _repeat(try_out: Callable[[], Awaitable[int]], patience: float) -> int:
    """Try until the API server has noticed the objects, of which it gives no event."""
    last: Exception | None = None
    attempt = 0
    try:
        async with asyncio.timeout(patience):
            while True:
                try:
                    return await try_out()
                except UnauthorizedError:
                    raise
                except (StepError, ApiError) as error:
                    last = error
                if attempt == 0:
                    say("tried: waiting until the API server enforces the policies of the probe")
                await asyncio.sleep(_RETRIES.delay(attempt, random.random()))  # noqa: S311 - a pause
                attempt += 1
    except TimeoutError:
        raise last or StepError("the API server did not answer in time") from None


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
