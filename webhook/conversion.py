"""ConversionReview on the wire, and its path: many objects of Keptn's kinds into another version.

Every client that reads an old version waits for this. An object that cannot be converted fails the
review with a message, for the API server has no other way to show one, and never the process.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw, Struct

from harbourmaster.api.decoding import LONG, MalformedError, decode, decode_texts
from harbourmaster.lifecycle.conversion import (
    SPEC_FIELDS,
    STATUS_FIELDS,
    ConversionError,
    convert,
)
from harbourmaster.policies.pods import is_absent
from harbourmaster.serving.bodies import admit, read_in_time
from harbourmaster.serving.definitions import METADATA
from harbourmaster.serving.responses import json_response
from harbourmaster.telemetry.logging import get_logger
from harbourmaster.webhook.review import MAX_WARNING, cut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web
    from prometheus_client import Counter

    from harbourmaster.serving.limits import Limits
    from harbourmaster.serving.settings import ServerSettings

KIND: Final = "ConversionReview"
V1: Final = "apiextensions.k8s.io/v1"
_VERSIONS: Final = frozenset((V1, "apiextensions.k8s.io/v1beta1"))
MAX_BODY_BYTES: Final = 24 * 1024 * 1024
"""The most bytes of a review with all objects of a list; less than all bytes in flight."""
CONVERTED: Final = "converted"
FAILED: Final = "failed"
MAX_MESSAGE: Final = 1024


class _Request(Struct, frozen=True, rename={"desired": "desiredAPIVersion"}):
    uid: str = ""
    desired: str = ""
    objects: list[Raw] | None = None


class _Review(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: _Request | None = None


class _Asked(Struct, frozen=True):
    """The part of a request that an answer needs, even if the rest is malformed."""

    uid: str = ""


class _Broken(Struct, frozen=True, rename="camel"):
    api_version: str = ""
    request: _Asked | None = None


class Answer(Struct, frozen=True):
    """A ConversionReview to send; ``error`` says why it failed, empty where it did not."""

    body: bytes
    error: str = ""


_ABSENT: Final = Raw(b"")


def _part_type(names: Iterable[str]) -> Any:  # noqa: ANN401 - a type that is made here
    """Return a type with these fields as they came; others are left out, as by the API server."""
    return msgspec.defstruct("Part", [(name, Raw, _ABSENT) for name in names], frozen=True)


_decode: Final = msgspec.json.Decoder(_Review).decode
_decode_broken: Final = msgspec.json.Decoder(_Broken).decode
_parts: Final = {
    "metadata": msgspec.json.Decoder(_part_type(METADATA["properties"])),
    "spec": msgspec.json.Decoder(_part_type(SPEC_FIELDS.split())),
    "status": msgspec.json.Decoder(_part_type(STATUS_FIELDS.split())),
}
_object: Final = msgspec.json.Decoder(_part_type(("apiVersion", "kind", *_parts)))
_text: Final = msgspec.json.Decoder(str)
_MOST_COMMAS: Final = 8
"""Least bytes of a long review for each comma: objects are longer than empty items of a list."""
_encode: Final = msgspec.json.Encoder().encode
_DECODING: Final = (msgspec.MsgspecError, RecursionError, ValueError)


class Conversions:
    """Answers the conversion path; ``outcomes`` counts reviews by the label ``outcome``."""

    def __init__(self, settings: ServerSettings, limits: Limits, outcomes: Counter) -> None:
        self._settings = settings
        self._limits = limits
        self._outcomes = outcomes
        self._log = get_logger("conversion")

    async def convert(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer with all objects converted, or with a failure."""
        with admit(request, self._settings, self._limits) as admission:
            body, _ = await read_in_time(request, self._settings, admission, limit=MAX_BODY_BYTES)
            result = await self._answer(body)
        self._outcomes.labels(FAILED if result.error else CONVERTED).inc()
        if result.error:
            self._log.warning("conversion failed", error=result.error)
        return json_response(result.body)

    async def _answer(self, body: bytes) -> Answer:
        try:
            return await answer(body)
        except Exception:  # noqa: BLE001 - logged with its traceback
            self._log.exception("conversion failed")
            return _failure(body, "an internal error; the server's log says more")


# One thread, so that reviews of pods keep most of the processor.
_thread: Final = ThreadPoolExecutor(1, "conversions")


async def answer(body: bytes) -> Answer:
    """Answer the ConversionReview in ``body``; a long one in a thread, so that no pod waits."""
    if len(body) <= LONG:
        return _answer(body)
    return await asyncio.get_running_loop().run_in_executor(_thread, _answer, body)


def _answer(body: bytes) -> Answer:
    if len(body) > LONG and body.count(b",") > len(body) // _MOST_COMMAS:
        return _failure(body, f"the body is not a {KIND}: it has too many values")
    try:
        review = _decode(body)
    except _DECODING as error:
        return _failure(body, f"the body is not a {KIND}: {error}")
    if review.api_version not in _VERSIONS or review.kind != KIND:
        asked = f"{review.api_version}, Kind={review.kind}"
        return _failure(body, f"expected {V1}, Kind={KIND}, got {asked}")
    request = review.request
    if request is None:
        return _failure(body, "the review holds no request")
    converted: list[Raw] = []
    for index, raw in enumerate(request.objects or ()):
        try:
            converted.append(Raw(_encode(convert(_read_object(raw), request.desired))))
        except ConversionError as error:
            return _failure(body, str(error))
        except MalformedError as error:
            return _failure(body, f"object {index} of the review cannot be decoded: {error}")
    response = {"uid": request.uid, "result": {"status": "Success"}, "convertedObjects": converted}
    return Answer(_encode({"apiVersion": review.api_version, "kind": KIND, "response": response}))


def _read_object(raw: Raw) -> dict[str, Any]:
    """Decode an object down to its fields, which stay as they came. Raises MalformedError."""
    fields = _given(decode(_object, raw, ""))
    if not bytes(raw).isascii():
        # What is not decoded is not checked either.
        try:
            bytes(raw).decode()
        except UnicodeDecodeError:
            raise MalformedError("not valid UTF-8") from None
    _decode_texts(fields, ("apiVersion", "kind"))
    for part, decoder in _parts.items():
        first = bytes(memoryview(fields.get(part, _ABSENT))[:1])
        if first == b"n":
            fields[part] = None
        elif first == b"{":
            fields[part] = _given(decode(decoder, fields[part], part))
    metadata = fields.get("metadata")
    if isinstance(metadata, dict):
        _decode_texts(metadata, ("name", "namespace", "uid"), "metadata.")
        raw = metadata.get("annotations", _ABSENT)
        if not is_absent(raw):
            metadata["annotations"] = decode_texts(raw, "metadata.annotations")
        elif raw is not _ABSENT:
            metadata["annotations"] = None
    return fields


def _decode_texts(fields: dict[str, Any], names: Iterable[str], at: str = "") -> None:
    for name in names:
        if name in fields:
            fields[name] = decode(_text, fields[name], f"{at}{name}")


def _given(part: Struct) -> dict[str, Any]:
    """Return the fields of a part that are there."""
    fields = msgspec.structs.asdict(part)
    return {name: raw for name, raw in fields.items() if raw is not _ABSENT}


def _failure(body: bytes, text: str) -> Answer:
    try:
        asked = _decode_broken(body)
    except _DECODING:
        asked = _Broken()
    version = asked.api_version if asked.api_version in _VERSIONS else V1
    message = cut(text, MAX_MESSAGE)
    response = {
        "uid": asked.request.uid if asked.request is not None else "",
        "result": {"status": "Failure", "message": message},
        "convertedObjects": [],
    }
    answered = {"apiVersion": version, "kind": KIND, "response": response}
    return Answer(_encode(answered), cut(text, MAX_WARNING))
