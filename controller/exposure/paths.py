"""Request targets taken apart: each part decoded by itself, so that none can become two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote

if TYPE_CHECKING:
    from aiohttp import web

_MAX_FIELDS: Final = 32


def parts_of(request: web.BaseRequest) -> tuple[str, ...]:
    """The parts of the path; a slash at its end makes no difference."""
    path = request.raw_path.partition("?")[0]
    if not path.startswith("/"):
        return ("",)
    return tuple(map(unquote, path[1:].removesuffix("/").split("/")))


def parameters_of(request: web.BaseRequest) -> dict[str, str]:
    """The parameters, of those given twice the first. Raises ValueError for too many of them."""
    query = request.raw_path.partition("?")[2]
    found: dict[str, str] = {}
    for key, value in parse_qsl(query, keep_blank_values=True, max_num_fields=_MAX_FIELDS):
        found.setdefault(key, value)
    return found
