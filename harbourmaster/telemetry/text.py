"""Untrusted text: cleans it for one line of a log or a terminal, or reads it as a URL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

MAX_TEXT: Final = 1024
"""Maximum number of characters of a value."""


def clean(text: str) -> str:
    """Cut ``text``, and escape line ends, terminal controls and all else that is not printable."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}… ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def reason(error: BaseException) -> str:
    """Return the text of an exception, never empty: some, such as most TimeoutErrors, have none.

    The text of an OSError is without its number and its file.
    """
    said = (getattr(error, "strerror", None) or str(error)).strip()
    if said:
        return said
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionError):
        return "the connection was closed"
    return type(error).__name__


def endpoint_url(text: str) -> SplitResult | None:
    """Split a URL of http or https that can be connected to; None for any other text."""
    try:
        url = urlsplit(text)
        is_usable = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        return None
    return url if is_usable and text.isprintable() and " " not in text else None


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
