"""What applications of placement have on member clusters, which only the controller reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import APPLICATIONS
from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.live.cluster import collect
from harbourmaster.cli.uninstall.removal import NOTHING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.kube.client import Client


class _Metadata(Struct, frozen=True, gc=False):
    namespace: str = ""


class _Objects(Struct, frozen=True):
    cluster: str = ""


class _Status(Struct, frozen=True, rename="camel"):
    inventory: tuple[_Objects, ...] | None = None
    pending_cleanup: tuple[_Objects, ...] | None = None


class _Application(Struct, frozen=True):
    metadata: _Metadata
    status: _Status = _Status()

    @property
    def clusters(self) -> Iterator[str]:
        """The keys of the clusters where it has something."""
        for each in (*(self.status.inventory or ()), *(self.status.pending_cleanup or ())):
            yield f"{self.metadata.namespace}/{each.cluster}"


_decode: Final = msgspec.json.Decoder(_Application).decode


async def stays(client: Client) -> str:
    """What nobody deletes there, in one line. Raises ApiError."""
    found = [set(each.clusters) for each in await collect(client, APPLICATIONS, _decode)]
    placed = [each for each in found if each]
    if not placed:
        return NOTHING
    clusters = sorted(set().union(*placed))
    return f"those of {many(len(placed), 'application')} stay on {shown(clusters)}"
