"""Manifests as admission sees them: the review of a creation, and what its answer changes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import msgspec

from harbourmaster.api.patches import Operation, apply
from harbourmaster.webhook.review import KIND, V1

if TYPE_CHECKING:
    from harbourmaster.webhook.engine import Verdict

    Json = dict[str, Any]

_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(tuple[Operation, ...]).decode


def object_in(manifest: Json, name: str) -> Json:
    """A field that holds an object; an empty one where it holds anything else."""
    value = manifest.get(name)
    return value if isinstance(value, dict) else {}


def name_of(manifest: Json) -> str | None:
    """Its name, if it has one."""
    name = object_in(manifest, "metadata").get("name")
    return name if isinstance(name, str) else None


def kind_of(manifest: Json) -> tuple[str, str, str]:
    """Group, version and name of its kind."""
    group, _, version = str(manifest.get("apiVersion") or "").rpartition("/")
    return group, version, str(manifest.get("kind") or "")


def creation_of(
    manifest: Json | msgspec.Raw,
    kind: tuple[str, str, str],
    namespace: str,
    name: str | None = None,
) -> bytes:
    """The review of the creation of an object of that kind."""
    request = {
        "uid": "harbourmaster",
        "kind": dict(zip(("group", "version", "kind"), kind, strict=True)),
        "namespace": namespace,
        "name": name,
        "operation": "CREATE",
        "object": manifest,
    }
    return _encode({"apiVersion": V1, "kind": KIND, "request": request})


def operations_of(verdict: Verdict) -> tuple[Operation, ...]:
    """All that the answer does to the object."""
    patch = verdict.response.patch
    return _decode(patch) if patch else ()


def patched(manifest: Json, verdict: Verdict) -> Json:
    """The object as it is stored; the one that is given stays as it is."""
    operations = operations_of(verdict)
    if not operations:
        return manifest
    after = copy.deepcopy(manifest)
    apply(after, operations)
    return after
