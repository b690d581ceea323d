"""Requests to the server of a target with the credentials of its Secret, and their replies."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Struct

from harbourmaster.api.decoding import LONG
from harbourmaster.providers.errors import (
    BadAnswerError,
    BadCredentialsError,
    BadProviderError,
    BadQueryError,
    ThrottledError,
    UnauthorizedError,
    UnreachableError,
)
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from harbourmaster.providers.errors import ProviderError
    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Target


_T = TypeVar("_T")

MAX_WORDS: Final = 200
"""The limit of characters of a provider's text in an error."""
MAX_PAUSE: Final = 3600.0
"""The limit of a Retry-After in seconds."""
_BAD_QUERY: Final = (HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY)
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


_MESSAGE_FIELDS: Final = (
    "error",
    "errors",
    "details",
    "errorMessage",
    "constraintViolations",
    "message",
    "reason",
)
"""The fields of error documents that have messages, the most specific first."""
_LEVELS: Final = 5


async def send_request(  # noqa: PLR0913 - what a request has
    http: HttpClient,
    target: Target,
    method: str,
    path: str,
    headers: Mapping[str, str],
    *,
    params: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Reply:
    """Return the 2xx reply to a request at ``path`` below the server's URL.

    A POST is also repeated if the connection breaks, because all requests are queries. Raises
    ProviderError, for any other status with the message of the server.
    """
    reply = await http.send(
        method,
        endpoint_url(target.server, path),
        headers={"Accept": "application/json", **headers},
        params=params,
        body=body,
        skip_verify=target.skip_verify,
        repeatable=True,
    )
    raise_for_status(reply, error_message(reply))
    return reply


def endpoint_url(server: str, path: str) -> str:
    """Return the URL of ``path`` below the server's URL, which may have a path."""
    if "?" in server or "#" in server:
        raise BadProviderError(
            "invalid targetServer: it has a query or a fragment: end it with the path"
        )
    return server.rstrip("/") + path


def missing_keys(target: Target, *keys: str) -> BadCredentialsError:
    """Return the error of a Secret without these keys; its own keys may be secret, too."""
    if target.secret is None:
        return BadCredentialsError("no secret: set secretKeyRef")
    where, _, name = target.secret_name.partition("/")
    return BadCredentialsError(
        f"Secret {target.secret_name} does not contain {' and '.join(keys)}: "
        f"correct it or secretKeyRef; kubectl -n {where} describe secret {name} lists its keys"
    )


def credential(target: Target, key: str) -> str:
    """Return the value of a key of the Secret, without white space at its ends."""
    if target.secret is None or key not in target.secret:
        raise missing_keys(target, f"the key {key}")
    try:
        text = target.secret[key].decode("ascii").strip()
    except UnicodeDecodeError:
        text = ""
    # In a header, a line end would begin another header.
    if not text or not text.isprintable():
        raise BadCredentialsError(f"the key {key} of the secret is empty or not printable ASCII")
    return text


def basic_auth(target: Target) -> str:
    """Return the Authorization header for ``user`` and ``password`` of the Secret."""
    secret = target.secret or {}
    if "user" not in secret or "password" not in secret:
        raise BadCredentialsError("secret key does not contain user and password")
    # Secrets are often created from texts that end with a line end.
    pair = b":".join(secret[key].rstrip(b"\r\n") for key in ("user", "password"))
    return f"Basic {b64encode(pair).decode()}"


def error_message(reply: Reply) -> str | None:
    """Return the message of an error document of any of the APIs; None without one."""
    if len(reply.body) > LONG:
        # Values of a few bytes take many times their size.
        return None
    try:
        return _first_message(msgspec.json.decode(reply.body), _LEVELS)
    except UNREADABLE:
        return None


def _first_message(document: object, levels: int) -> str | None:
    if isinstance(document, str):
        return document
    if isinstance(document, list) and document and levels:
        return _first_message(document[0], levels - 1)
    if isinstance(document, dict) and levels:
        for key in _MESSAGE_FIELDS:
            if message := _first_message(document.get(key), levels - 1):
                return message
    return None
