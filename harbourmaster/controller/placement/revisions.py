"""Keeps the specs of checked generations of an Application in ControllerRevisions.

Once a later generation is written, only they have what an earlier one deploys.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import APPLICATIONS, CONTROLLER_REVISIONS
from harbourmaster.kube.errors import AlreadyExistsError, ConflictError, NotFoundError
from harbourmaster.placement.manifests import UID_LABEL
from harbourmaster.placement.model import ApplicationSpec

if TYPE_CHECKING:
    from collections.abc import Collection

    from harbourmaster.kube.client import Client

MOST_BYTES: Final = 1_000_000
"""The size of a compressed spec: an object may have 1.5 MB with all the rest of it."""
_MOST_BYTES_OF_SPEC: Final = 16 * 1024 * 1024


class _Stored(Struct, frozen=True):
    metadata: Metadata
    spec: msgspec.Raw


class _Revision(Struct, frozen=True):
    metadata: Metadata
    data: dict[str, str] = {}
    revision: int = 0


_decode: Final = msgspec.json.Decoder(_Stored).decode
_decode_spec: Final = msgspec.json.Decoder(ApplicationSpec).decode
_decode_revision: Final = msgspec.json.Decoder(_Revision).decode


class Revisions:
    """The revisions of all Applications, with what is known of them by key."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._specs: dict[str, tuple[str, int, ApplicationSpec]] = {}
        """The UID of each Application, with a generation and its spec."""
        self._kept: dict[str, tuple[str, Collection[int]]] = {}
        """The UID of each Application, with the generations that are kept."""

    def forget(self, key: str) -> None:
        """Drop what is known of a deleted Application."""
        self._specs.pop(key, None)
        self._kept.pop(key, None)

    async def find(self, application: Metadata, generation: int) -> ApplicationSpec | None:
        """Return the spec of a generation; None if it is not kept. Raises ApiError."""
        known = self._specs.get(application.key)
        if known is None or known[:2] != (application.uid, generation):
            text = await load_spec(self._client, application, generation)
            if text is None:
                return None
            known = (application.uid, generation, _decode_spec(text))
            self._specs[application.key] = known
        return known[2]

    async def keep(self, application: Metadata) -> str:
        """Keep the spec of this generation, or return why not. Raises ApiError.

        If another one was written meanwhile, a ConflictError.
        """
        namespace = application.namespace
        stored = _decode(await self._client.get(APPLICATIONS, application.name, namespace))
        present = (stored.metadata.uid, stored.metadata.generation)
        if present != (application.uid, application.generation):
            raise ConflictError(f"Application {application.key} has changed")
        compressed = await asyncio.to_thread(zlib.compress, bytes(stored.spec))
        text = base64.b64encode(compressed).decode()
        if len(text) > MOST_BYTES:
            return (
                f"Application {application.name} has {len(text)} bytes compressed, and at most "
                f"{MOST_BYTES} can be kept for a revert: split it, or remove spec.checks"
            )
        owner = application.as_controller(APPLICATIONS.api_version, APPLICATIONS.kind)
        body: dict[str, Any] = {
            **CONTROLLER_REVISIONS.type_fields,
            "metadata": {
                "name": _name(application, application.generation),
                "labels": {UID_LABEL: application.uid},
                "ownerReferences": [msgspec.to_builtins(owner)],
            },
            "revision": application.generation,
            "data": {"spec": text},
        }
        # One of a generation never changes.
        with contextlib.suppress(AlreadyExistsError):
            await self._client.create(CONTROLLER_REVISIONS, body, namespace)
        return ""

    async def clean(self, application: Metadata, kept: Collection[int]) -> None:
        """Delete the revisions of other generations than these. Raises ApiError."""
        if self._kept.get(application.key) == (application.uid, kept):
            return
        namespace, selector = application.namespace, f"{UID_LABEL}={application.uid}"
        page = await self._client.list(
            CONTROLLER_REVISIONS, namespace, limit=0, label_selector=selector
        )
        for revision in map(_decode_revision, page.items):
            metadata = revision.metadata
            if metadata.is_controlled_by(application) and revision.revision not in kept:
                await self._client.delete(
                    CONTROLLER_REVISIONS,
                    metadata.name,
                    namespace,
                    uid=metadata.uid,
                    missing_ok=True,
                )
        self._kept[application.key] = (application.uid, kept)


async def load_spec(client: Client, application: Metadata, generation: int) -> bytes | None:
    """Return the spec of a generation as JSON; None if it is not kept. Raises ApiError."""
    name, namespace = _name(application, generation), application.namespace
    try:
        revision = _decode_revision(await client.get(CONTROLLER_REVISIONS, name, namespace))
        if not revision.metadata.is_controlled_by(application):
            return None
        compressed = base64.b64decode(revision.data.get("spec", ""), validate=True)
        return await asyncio.to_thread(_decompress, compressed)
    except (NotFoundError, binascii.Error, zlib.error, msgspec.DecodeError):
        return None


def _decompress(compressed: bytes) -> bytes | None:
    stream = zlib.decompressobj()
    text = stream.decompress(compressed, _MOST_BYTES_OF_SPEC)
    return text if stream.eof else None


def _name(application: Metadata, generation: int) -> str:
    return f"application-{application.uid}-{generation}"
