"""Checks every request, and adds headers to every answer of the dashboard."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp import hdrs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from ipaddress import IPv4Address, IPv4Network, IPv6Network

    from aiohttp import web

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
NO_STORE: Final = "no-store"
_LOOPBACK: Final = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]+)?", re.IGNORECASE)
_SAME: Final = "same-origin"


async def harden(_request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers; a handler of the signal ``on_response_prepare``."""
    for name, value in HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault(hdrs.CACHE_CONTROL, NO_STORE)


def is_host_of_loopback(request: web.BaseRequest) -> bool:
    """Whether the Host header of a plain request is a name of the loopback interface.

    Another site can have its own name resolved to our address (DNS rebinding).
    """
    return _LOOPBACK.fullmatch(request.headers.get(hdrs.HOST, "")) is not None


def client_of(request: web.BaseRequest, proxies: Sequence[IPv4Network | IPv6Network]) -> str:
    """Return the client of a request: an IPv4 address, or an IPv6 network of 64 bits.

    It is the last address in ``X-Forwarded-For`` that is not a trusted proxy, because the client
    can send any addresses before it.
    """
    address = _address(request.remote or "")
    forwarded = ",".join(request.headers.getall(hdrs.X_FORWARDED_FOR, ())).split(",")
    while address and forwarded and any(address in proxy for proxy in proxies):
        before = _address(forwarded.pop().strip())
        if before is None:
            break
        address = before
    if isinstance(address, IPv6Address):
        return str(ip_network((int(address), 64), strict=False))
    return str(address or request.remote)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address


def is_from_our_page(request: web.BaseRequest) -> bool:
    """Whether the browser says that one of our pages sent the form.

    Our pages send no referrer, so the origin of their forms is ``null``; ``Sec-Fetch-Site``, which
    no page can forge, comes first.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site == _SAME
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc == request.headers.get(hdrs.HOST, "")
    except ValueError:
        return False


def local_path(text: str) -> str:
    """Return ``text`` if it is a path of the dashboard, else the path of the first page."""
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\", "/login", "/logout"))
    return text if is_ours and text.isascii() and text.isprintable() else "/"
