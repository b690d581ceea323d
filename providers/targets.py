"""URLs and headers from a provider's object and its Secret, and the texts of server errors."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING, Final

import msgspec

from harbourmaster.providers.errors import BadCredentialsError, BadProviderError

if TYPE_CHECKING:
    from harbourmaster.providers.http import Reply
    from harbourmaster.providers.model import Target

_COMPLAINTS: Final = (
    "error",
    "errors",
    "details",
    "errorMessage",
    "constraintViolations",
    "message",
    "reason",
)
"""The members of error documents that lead to what people can read, the most telling first."""
_LEVELS: Final = 5


def endpoint(server: str, path: str) -> str:
    """The URL of ``path`` below the server's, whose own path is kept."""
    if "?" in server or "#" in server:
        raise BadProviderError(
            "invalid targetServer: it has a query or a fragment: end it with the path"
        )
    return server.rstrip("/") + path


def credential(target: Target, key: str) -> str:
    """The text under ``key`` of the Secret, without the blanks and line ends around it."""
    if target.secret is None:
        raise BadCredentialsError("no secret: set secretKeyRef")
    try:
        text = target.secret[key].decode("ascii").strip()
    except KeyError:
        raise BadCredentialsError(f"secret does not contain the key {key}") from None
    except UnicodeDecodeError:
        text = ""
    # It becomes a header, where a line end would begin another one.
    if not text or not text.isprintable():
        raise BadCredentialsError(f"the key {key} of the secret is empty or not printable ASCII")
    return text


def basic(target: Target) -> str:
    """The Authorization of the ``user`` and ``password`` in the Secret."""
    secret = target.secret or {}
    if "user" not in secret or "password" not in secret:
        raise BadCredentialsError("secret key does not contain user and password")
    # Many a Secret is made by a command that ends its output with a line end.
    pair = b":".join(secret[key].rstrip(b"\r\n") for key in ("user", "password"))
    return f"Basic {b64encode(pair).decode()}"


def complaint(reply: Reply) -> str | None:
    """What an error document of any of the APIs says in words; None where it can't be found."""
    try:
        return _said(msgspec.json.decode(reply.body), _LEVELS)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _said(document: object, levels: int) -> str | None:
    if isinstance(document, str):
        return document
    if isinstance(document, list) and document and levels:
        return _said(document[0], levels - 1)
    if isinstance(document, dict) and levels:
        for key in _COMPLAINTS:
            if found := _said(document.get(key), levels - 1):
                return found
    return None
