"""URLs that users write into objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.parse import SplitResult

_SCHEMES: Final = frozenset(("http", "https"))


def with_scheme(text: str, scheme: str) -> str:
    """Return the URL, with ``scheme`` if it has none, as in ``prometheus:9090``."""
    return text if not text or "://" in text else f"{scheme}://{text}"


def http_url(text: str) -> SplitResult | None:
    """Split an http or https URL with a host; None for anything else."""
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        return None
    try:
        url = urlsplit(text)
        # Raises for an invalid port.
        is_sound = url.port != 0
    except ValueError:
        return None
    return url if is_sound and url.scheme in _SCHEMES and url.hostname else None
