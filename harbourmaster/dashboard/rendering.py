"""Renders templates: every value is escaped, and a missing one is an error."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from harbourmaster.api.times import moment
from harbourmaster.dashboard.pages.states import age, show_state

if TYPE_CHECKING:
    from datetime import datetime


_ASSETS: Final = Path(__file__).parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_DIGITS: Final = 16


class Asset(Struct, frozen=True):
    """A static file, which never changes because its path has its digest."""

    path: str
    body: bytes
    content_type: str
    etag: str


def read_assets(directory: Path = _ASSETS) -> dict[str, Asset]:
    """Read the static files, by name."""
    return {path.name: _asset(path) for path in directory.iterdir() if path.suffix in _TYPES}


def _asset(file: Path) -> Asset:
    body = file.read_bytes()
    digest = hashlib.sha256(body).hexdigest()[:_DIGITS]
    return Asset(
        path=f"/static/{file.stem}.{digest}{file.suffix}",
        body=body,
        content_type=_TYPES[file.suffix],
        etag=digest,
    )


_TROUBLE: Final = re.compile(
    # Controls except line ends and tabs, marks that order text, line separators, byte order mark.
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)


def escape_invisible(text: str) -> str:
    """Return the text with an escape sequence for each invisible or misleading character."""
    return _TROUBLE.sub(_escape, text)


def finalize(value: object) -> object:
    """Prepare a value for the output: escape invisible characters, and omit ``None``."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return escape_invisible(value)
    return "" if value is None else value


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - one byte


_DIRECTORY: Final = Path(__file__).parent / "templates"


_ENVIRONMENT: Final = Environment(
    loader=FileSystemLoader(_DIRECTORY),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=finalize,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)


def render(template: str, now: datetime, **values: Any) -> str:  # noqa: ANN401 - any model
    """Render a page."""
    return _ENVIRONMENT.get_template(template).render(now=now, **values)


def _clock(stamp: str) -> str:
    """Format a timestamp in UTC for people; return it unchanged if it is invalid."""
    when = moment(stamp)
    return stamp if when is None else f"{when:%Y-%m-%d %H:%M:%S} UTC"


_ENVIRONMENT.filters |= {
    "age": age,
    "clock": _clock,
    "shown": show_state,
    "thousands": lambda number: f"{number:,}",
}
