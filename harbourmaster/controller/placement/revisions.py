"""Keeps the specs of checked generations of an Application in ControllerRevisions.

Once a later generation is written, only they have what an earlier one deploys.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import APPLICATIONS, CONTROLLER_REVISIONS
from harbourmaster.kube.errors import AlreadyExistsError, NotFoundError
from harbourmaster.placement.manifests import UID_LABEL

if TYPE_CHECKING:
    from collections.abc import Collection

    from harbourmaster.kube.client import Client

MOST_BYTES: Final = 1_000_000
"""The size of a compressed spec: an object may have 1.5 MB with all the rest of it."""
_MOST_BYTES_OF_SPEC: Final = 16 * 1024 * 1024


class _Stored(Struct, frozen=True):
    metadata: Metadata
    spec: msgspec.Raw


class _Data(Struct, frozen=True):
    spec: str = ""


class _Revision(Struct, frozen=True):
    metadata: Metadata
    data: _Data = _Data()
    revision: int = 0


_decode: Final = msgspec.json.Decoder(_Stored).decode
_decode_revision: Final = msgspec.json.Decoder(_Revision).decode


async def compress_spec(client: Client, application: Metadata) -> str | None:
    """Return the compressed spec of this generation; None if another one was written meanwhile.

    Raises ApiError.
    """
    stored = _decode(await client.get(APPLICATIONS, application.name, application.namespace))
    generation = (stored.metadata.uid, stored.metadata.generation)
    if generation != (application.uid, application.generation):
        return None
    compressed = await asyncio.to_thread(zlib.compress, bytes(stored.spec))
    return base64.b64encode(compressed).decode()


async def save_revision(client: Client, application: Metadata) -> bool:
    """Keep the spec of this generation; False if another one was written meanwhile.

    Raises ApiError.
    """
    text = await compress_spec(client, application)
    if text is None:
        return False
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
    try:
        await client.create(CONTROLLER_REVISIONS, body, application.namespace)
    except AlreadyExistsError:
        # One of a generation never changes.
        return True
    return True


async def load_spec(client: Client, application: Metadata, generation: int) -> bytes | None:
    """Return the spec of a generation as JSON; None if it is not kept. Raises ApiError."""
    name, namespace = _name(application, generation), application.namespace
    try:
        revision = _decode_revision(await client.get(CONTROLLER_REVISIONS, name, namespace))
        controller = revision.metadata.controller
        if controller is None or controller.uid != application.uid:
            return None
        compressed = base64.b64decode(revision.data.spec, validate=True)
        return await asyncio.to_thread(_decompress, compressed)
    except (NotFoundError, binascii.Error, zlib.error, msgspec.DecodeError):
        return None


def _decompress(compressed: bytes) -> bytes | None:
    stream = zlib.decompressobj()
    text = stream.decompress(compressed, _MOST_BYTES_OF_SPEC)
    return text if stream.eof else None


async def delete_revisions(client: Client, application: Metadata, kept: Collection[int]) -> None:
    """Delete the revisions of an application, except those of some generations. Raises ApiError."""
    selector = f"{UID_LABEL}={application.uid}"
    page = await client.list(
        CONTROLLER_REVISIONS, application.namespace, limit=0, label_selector=selector
    )
    for revision in map(_decode_revision, page.items):
        controller, metadata = revision.metadata.controller, revision.metadata
        is_ours = controller is not None and controller.uid == application.uid
        if is_ours and revision.revision not in kept:
            await client.delete(
                CONTROLLER_REVISIONS,
                metadata.name,
                metadata.namespace,
                uid=metadata.uid,
                missing_ok=True,
            )


def _name(application: Metadata, generation: int) -> str:
    return f"application-{application.uid}-{generation}"
