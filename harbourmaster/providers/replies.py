"""Status and body of a response, as an error or as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.providers.errors import (
    BadAnswerError,
    BadQueryError,
    ThrottledError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from harbourmaster.providers.errors import ProviderError

_T = TypeVar("_T")

MAX_WORDS: Final = 200
"""The limit of characters of a provider's text in an error."""
MAX_PAUSE: Final = 3600.0
"""The limit of a Retry-After in seconds."""
_BAD_QUERY: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding; RecursionError means that the JSON is nested too deeply."""


class Reply(Struct, frozen=True, gc=False):
    """A response; the names of ``headers`` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def raise_for_status(reply: Reply, message: str | None = None) -> None:
    """Raise the error of a status that is not 2xx.

    ``message`` is that of the provider, by default the beginning of the body.
    """
    status = reply.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return
    # A provider that rejects credentials may repeat them.
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        raise UnauthorizedError(f"the provider rejected the credentials (HTTP {status})")
    if message is None:
        message = reply.body[: 4 * MAX_WORDS].decode("utf-8", "replace")
    raise _error(reply, one_line(message))


def _error(reply: Reply, message: str) -> ProviderError:
    status = reply.status
    why = f"HTTP {status}: {message}" if message else f"HTTP {status}"
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        seconds = _parse_retry_after(reply.headers.get("retry-after", ""))
        return ThrottledError("too many requests to the provider (HTTP 429)", seconds)
    if status in _BAD_QUERY:
        return BadQueryError(f"the provider rejected the query ({why})")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return UnreachableError(f"the provider failed ({why})")
    return BadAnswerError(f"the provider answered with {why}")


def decode_reply(reply: Reply, decoder: msgspec.json.Decoder[_T]) -> _T:
    """Decode a body of JSON. Raises UnreachableError for another content type, BadAnswerError."""
    kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and "json" not in kind:
        raise UnreachableError(f"the server answered with {one_line(kind)} instead of JSON")
    try:
        return decoder.decode(reply.body)
    except UNREADABLE as error:
        why = "invalid UTF-8" if isinstance(error, UnicodeDecodeError) else one_line(str(error))
        raise BadAnswerError(f"invalid answer: {why}") from None


def one_line(text: str) -> str:
    """Return a text of a provider as one short line without control characters."""
    # Cleaning may lengthen the text.
    text = clean(" ".join(text[: 4 * MAX_WORDS].split()))
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…"


def _parse_retry_after(text: str) -> float | None:
    """Return the seconds of a Retry-After header, which has seconds or a date; None if invalid."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(float(text), MAX_PAUSE)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    seconds = (at - datetime.now(UTC)).total_seconds()
    return min(max(math.ceil(seconds), 0.0), MAX_PAUSE)
