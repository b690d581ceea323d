"""What pages load besides themselves: one style sheet, one script, one icon; read once."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from msgspec import Struct

_DIRECTORY: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DIGITS: Final = 16


class Asset(Struct, frozen=True):
    """A file; its path has its digest, so it never changes."""

    path: str
    body: bytes
    content_type: str
    etag: str


def read_assets(directory: Path = _DIRECTORY) -> dict[str, Asset]:
    """All of them, by their names."""
    return {each.name: _asset(each) for each in directory.iterdir() if each.suffix in _TYPES}


def _asset(file: Path) -> Asset:
    body = file.read_bytes()
    digest = hashlib.sha256(body).hexdigest()[:_DIGITS]
    return Asset(
        path=f"/static/{file.stem}.{digest}{file.suffix}",
        body=body,
        content_type=_TYPES[file.suffix],
        etag=digest,
    )
