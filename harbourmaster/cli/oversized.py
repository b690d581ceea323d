"""Stored objects that are over the limits for new ones (security O13)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.api.sizes import LIMITS, is_limited, size_errors
from harbourmaster.cli.batches import shorten
from harbourmaster.cli.diagnosis import note
from harbourmaster.cli.live.kinds import metadata_in
from harbourmaster.cli.live.reader import run_together

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    import msgspec

    from harbourmaster.api.resources import Resource
    from harbourmaster.cli.diagnosis import Finding
    from harbourmaster.cli.live.installation import Installation
    from harbourmaster.cli.live.reader import ClusterReader

_SHOWN: Final = 5
_PATH: Final = 256
"""Characters of a path, whose keys may be long."""


class Oversized(Struct, frozen=True):
    """A stored object, as ``Kind namespace/name``, and what of it is over which limit."""

    subject: str
    errors: str


async def list_oversized(
    live: ClusterReader, resources: Iterable[Resource] = tuple(LIMITS)
) -> list[Oversized]:
    """All of these kinds, as far as they have limits. Raises ApiError."""
    limited = [resource for resource in resources if is_limited(resource.group, resource.kind)]
    by_kind = await run_together(
        *(live.items(resource, partial(_oversized_object, resource)) for resource in limited)
    )
    return [obj for objects in by_kind for obj in objects]


async def check(live: Installation) -> AsyncIterator[Finding]:
    """Stored objects that cannot grow any more."""
    for obj in await list_oversized(live):
        text = f"over the limits for new objects: {obj.errors}"
        yield note(obj.subject, text, "it keeps working; no update can make it larger")


def _oversized_object(resource: Resource, raw: msgspec.Raw) -> Oversized | None:
    errors = size_errors(resource.group, resource.kind, raw)
    if not errors:
        return None
    metadata = metadata_in(raw)
    name = "/".join(filter(None, (metadata.namespace, metadata.name)))
    texts = [f"{error.path[:_PATH]}: {error.kind.lower()}: {error.value}" for error in errors]
    return Oversized(f"{resource.kind} {name}", shorten(texts, _SHOWN))
