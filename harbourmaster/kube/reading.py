"""Decoding of objects, one at a time: an invalid object does not affect others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.telemetry.text import reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from structlog.typing import FilteringBoundLogger

    from harbourmaster.api.resources import Resource
    from harbourmaster.kube.client import Client
    from harbourmaster.kube.faults import WatchMetrics

T = TypeVar("T")


class Metadata(Struct, gc=False, rename="camel"):
    """The identity of an object; a bookmark has only a resource version."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""

    @property
    def key(self) -> str:
        """``namespace/name`` or ``name``; empty without a name."""
        if self.namespace and self.name:
            return f"{self.namespace}/{self.name}"
        return self.name


class _Object(Struct, gc=False):
    metadata: Metadata


_MAX_TEXT: Final = 1024
"""Characters of a key or a resource version; names have at most 253."""
_MAX_FAULTS: Final = 1000
"""Objects whose faults are remembered and logged."""
_decode_object: Final = msgspec.json.Decoder(_Object).decode


def readable(
    items: Iterable[msgspec.Raw],
    decode: Callable[[msgspec.Raw], T],
    skip: Callable[[Metadata, Exception], None],
) -> Iterator[T]:
    """Decode each object of a list by itself; ``skip`` gets those that cannot be read."""
    for raw in items:
        try:
            obj = decode(raw)
        except Exception as error:  # noqa: BLE001 - one bad object harms no other, whatever it is
            skip(_metadata(raw), error)
        else:
            yield obj


async def read_all(
    client: Client,
    resource: Resource,
    decode: Callable[[msgspec.Raw], T],
    skip: Callable[[Metadata, Exception], None],
    *,
    field_selector: str = "",
) -> list[T]:
    """All objects of a list as the API has them now; ``skip`` gets those that cannot be read.

    Raises ApiError.
    """
    objects: list[T] = []
    token = ""
    while True:
        page = await client.list(resource, continue_token=token, field_selector=field_selector)
        objects += readable(page.items, decode, skip)
        token = page.continue_token
        if not token:
            return objects


def log_skipped(log: FilteringBoundLogger, metadata: Metadata, error: Exception) -> None:
    """Log an object that ``readable`` skips."""
    log.warning("object skipped, decoding failed", key=metadata.key, error=str(error))


def _metadata(raw: msgspec.Raw) -> Metadata:
    try:
        return _decode_object(raw).metadata
    except (msgspec.DecodeError, RecursionError, ValueError):
        return Metadata()


class Reader(Generic[T]):
    """Decodes the objects of one resource, and logs each fault of an object once."""

    def __init__(
        self,
        name: str,
        decode: Callable[[msgspec.Raw], T],
        undecodable: Callable[[str, msgspec.Raw, Exception], T | None] | None,
        metrics: WatchMetrics,
        log: FilteringBoundLogger,
    ) -> None:
        self._name = name
        self._decode = decode
        self._undecodable = undecodable
        self._metrics = metrics
        self._log = log
        self._faults: dict[str, str] = {}
        self._faults_of_list: dict[str, str] = {}

    def start_list(self) -> None:
        """Begin to read all objects again."""
        self._faults_of_list = {}

    def end_list(self) -> None:
        """End the reading of all objects, and forget the faults of those that are gone."""
        self._faults = self._faults_of_list

    def metadata(self, raw: msgspec.Raw) -> Metadata | None:
        """Return the metadata of any object, or None."""
        try:
            metadata = _decode_object(raw).metadata
        except (msgspec.DecodeError, RecursionError) as error:
            self._reject("", error)
            return None
        if max(len(metadata.key), len(metadata.resource_version)) > _MAX_TEXT:
            self._reject("", ValueError(f"a name or version is longer than {_MAX_TEXT}"))
            return None
        return metadata

    def read(self, key: str, raw: msgspec.Raw) -> T | None:
        """Return the object, or None if it cannot be decoded."""
        if not key:
            self._reject(key, ValueError("metadata.name is missing"))
            return None
        try:
            obj: T | None = self._decode(raw)
        except Exception as error:  # noqa: BLE001 - one bad object harms no other, whatever it is
            obj = self._rescue(key, raw, error)
            if obj is None:
                self._reject(key, error)
                return None
        self.forget(key)
        return obj

    def forget(self, key: str) -> None:
        """Forget the fault of an object that is gone or valid."""
        self._faults.pop(key, None)

    def _rescue(self, key: str, raw: msgspec.Raw, error: Exception) -> T | None:
        if self._undecodable is None:
            return None
        try:
            return self._undecodable(key, raw, error)
        except Exception:  # noqa: BLE001 - as above
            self._log.exception("object not replaced", key=key)
            return None

    def _reject(self, key: str, error: Exception) -> None:
        self._metrics.count_undecodable(self._name)
        text = reason(error)
        if key not in self._faults and len(self._faults) >= _MAX_FAULTS:
            return
        if self._faults.get(key) != text:
            self._log.error("object dropped, decoding failed", key=key, error=text)
        self._faults[key] = self._faults_of_list[key] = text
