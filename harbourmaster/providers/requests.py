"""Requests to the server of a target, with the credentials of its Secret."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.providers.errors import BadCredentialsError, BadProviderError
from harbourmaster.providers.replies import UNREADABLE, raise_for_status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harbourmaster.providers.http import HttpClient
    from harbourmaster.providers.model import Target
    from harbourmaster.providers.replies import Reply

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
