"""Removal of credentials from what a server answers, in every form that repeats a request."""

from __future__ import annotations

import base64
import html
import json
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SHORTEST_SECRET: Final = 4
"""Characters of the shortest secret that is redacted; shorter values occur in any text."""
REDACTED: Final = "***"


def secret_forms(secrets: Iterable[str]) -> list[str]:
    """Return the secrets as they are, percent-encoded, in HTML, JSON and base64, longest first."""
    long_enough = (secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
    forms = {form for secret in long_enough for form in _forms(secret)}
    # A message that repeats one of them may be part of JSON that is not decoded yet.
    forms |= {escaped for form in forms for escaped in _in_json(form)}
    return sorted(forms, key=len, reverse=True)


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
    yield secret
    for encode in (quote, partial(quote, safe=""), quote_plus):
        encoded = encode(secret, errors="replace")
        yield from (encoded, _with_lower_escapes(encoded))
    yield from (html.escape(secret), html.escape(secret, quote=False), *_in_json(secret))
    data = secret.encode("utf-8", "replace")
    # What comes before the secret shifts its bits within the text by 0, 2 or 4.
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data).decode()
        whole = encoded[-(-8 * before // 6) : 8 * (before + len(data)) // 6]
        yield from (whole, whole.translate(_URL_SAFE))


def _in_json(text: str) -> Iterator[str]:
    for escaped in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        yield from (escaped, escaped.replace("/", "\\/"), escaped.translate(_GO))


def _with_lower_escapes(encoded: str) -> str:
    first, *rest = encoded.split("%")
    return "%".join((first, *(f"{part[:2].lower()}{part[2:]}" for part in rest)))


_GO: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
"""The characters that Go's encoder escapes, too."""
_URL_SAFE: Final = str.maketrans("+/", "-_")
