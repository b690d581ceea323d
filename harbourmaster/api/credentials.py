"""Removal of credentials from what a server answers, in every form that repeats a request."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST_SECRET: Final = 4
"""Characters of the shortest secret that is redacted; shorter values occur in any text."""
REDACTED: Final = "***"


def secret_forms(secrets: Iterable[str]) -> list[str]:
    """Return the secrets as they are, percent-encoded, in JSON and in base64, the longest first."""
    forms = {form for secret in secrets for form in _forms(secret)}
    return sorted((form for form in forms if len(form) >= SHORTEST_SECRET), key=len, reverse=True)


def redact(text: str, forms: Iterable[str]) -> str:
    """Replace each of these forms in a text."""
    for form in forms:
        text = text.replace(form, REDACTED)
    return text


def redact_bytes(data: bytes, forms: Iterable[str]) -> bytes:
    """Replace each of these forms in encoded text."""
    for form in forms:
        data = data.replace(form.encode("utf-8", "replace"), REDACTED.encode())
    return data


def _forms(secret: str) -> Iterator[str]:
    if len(secret) < SHORTEST_SECRET:
        return
    yield secret
    for encoded in (quote(secret, errors="replace"), quote(secret, "", errors="replace")):
        yield from (encoded, _with_lower_escapes(encoded))
    yield quote_plus(secret, errors="replace")
    for escaped in (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]):
        yield from (escaped, escaped.replace("/", "\\/"))
    data = secret.encode("utf-8", "replace")
    # What comes before the secret shifts its bits within the text by 0, 2 or 4.
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        whole = encoded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        yield from (whole, whole.translate(_URL_SAFE))


def _with_lower_escapes(encoded: str) -> str:
    first, *rest = encoded.split("%")
    return "%".join((first, *(f"{part[:2].lower()}{part[2:]}" for part in rest)))


_URL_SAFE: Final = str.maketrans("+/", "-_")
