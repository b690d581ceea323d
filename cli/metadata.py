"""The metadata of any object, as far as the commands for a live cluster look at it."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct


class Metadata(Struct, frozen=True, rename="camel"):
    """What tells objects apart, and whose they are."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: tuple[str, ...] | None = None
    deletion_timestamp: str | None = None

    def label(self, key: str) -> str:
        """The label's value, empty where it is missing."""
        return (self.labels or {}).get(key, "")

    def annotation(self, key: str) -> str:
        """The annotation's value, empty where it is missing."""
        return (self.annotations or {}).get(key, "")


class Metadated(Struct, frozen=True):
    """Any object, projected onto its metadata."""

    metadata: Metadata = Metadata()


_decode: Final = msgspec.json.Decoder(Metadated).decode


def metadata_in(raw: msgspec.Raw | bytes) -> Metadata:
    """The metadata in an object's JSON."""
    return _decode(raw).metadata
