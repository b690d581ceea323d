"""The URLs and addresses that are allowed, for every spelling of an address.

Users that can create a provider can name any server. Addresses whose services hand out credentials,
or trust every client, are therefore rejected unless the operator allows them.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias

from yarl import URL

from harbourmaster.providers.errors import BadProviderError, ForbiddenAddressError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from ipaddress import IPv4Network, IPv6Network

Address: TypeAlias = IPv4Address | IPv6Address

REFUSED: Final = {
    "an unspecified address": ("0.0.0.0/8", "::/128"),
    "a loopback address": ("127.0.0.0/8", "::1/128"),
    "a link-local address": ("169.254.0.0/16", "fe80::/10", "fec0::/10"),
    "a multicast or reserved address": ("224.0.0.0/4", "240.0.0.0/4", "ff00::/8"),
    "an address of cloud metadata": (
        "100.100.100.200/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
        "fd00:ec2::/32",
        "fd00:42::42/128",
        "fd00:100::100:200/128",
        "fd00:a9fe:a9fe::1/128",
        "fd00:c1::a9fe:a9fe/128",
        "fd20:ce::254/128",
    ),
    # The IPv4 address behind it depends on the translator.
    "an address of a local translator": ("64:ff9b:1::/48",),
}
"""The networks that are rejected by default, by reason. Most clouds have link-local metadata."""

_LONGEST_URL: Final = 2048
_LONGEST_HOST: Final = 253
_NAME: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_NUMERIC: Final = re.compile(r"(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$")
"""The ends of names that some libraries read as IPv4 addresses."""
_SHORT: Final = 32
"""Bits of an IPv4 address."""


class AddressFilter:
    """Rejects addresses: ``denied`` overrides ``allowed``, which overrides the defaults."""

    def __init__(self, allowed: Iterable[str] = (), denied: Iterable[str] = ()) -> None:
        """Take addresses and networks, ``10.1.2.3`` or ``10.0.0.0/8``. Raises ValueError."""
        self._allowed = parse_networks(allowed)
        self._denied = parse_networks(denied)
        self._refused = [(why, parse_networks(texts)) for why, texts in REFUSED.items()]

    def check(self, address: str, host: str) -> None:
        """Raise ForbiddenAddressError if ``address``, one of ``host``, is forbidden."""
        why = self.refusal(ip_address(address.partition("%")[0]))
        if why:
            raise ForbiddenAddressError(f"{host} is not allowed: it has {why}")

    def refusal(self, address: Address) -> str:
        """Return why an address is forbidden; empty if it is allowed."""
        forms = tuple(_forms(address))
        if any(_within(form, self._denied) for form in forms):
            return "an address that is denied"
        if _within(address, self._allowed):
            return ""
        for form in forms:
            if _within(form, self._allowed):
                continue
            for why, networks in self._refused:
                if _within(form, networks):
                    return why
        return ""


def parse_server_url(url: str) -> URL:
    """Return a valid server URL without query and fragment. Raises BadProviderError."""
    if not url.isprintable() or " " in url or "\\" in url or len(url) > _LONGEST_URL:
        raise BadProviderError("invalid server URL: it is too long or has invalid characters")
    try:
        parsed = URL(url)
        # Reading "host" decodes it, which may fail.
        host, port = parsed.raw_host or "" if parsed.host else "", parsed.port
    except (ValueError, IndexError):
        # yarl reads a host behind the "@" of "http://[]@".
        raise BadProviderError("invalid server URL: write https://host:port") from None
    if parsed.scheme not in {"http", "https"}:
        raise BadProviderError("invalid server URL: expected http:// or https://")
    # "@host" has an empty user, which yarl does not tell from none.
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    if "@" in authority:
        raise BadProviderError("invalid server URL: it has a user: put credentials into a Secret")
    if "?" in url or "#" in url:
        raise BadProviderError("invalid server URL: it has a ? or #: write https://host:port/path")
    if not port or not _is_host(host) or ("[" in authority) != (":" in host):
        raise BadProviderError(
            "invalid server URL: invalid host or port: write https://host:port, and an IPv4 "
            "address as four decimal numbers"
        )
    return parsed


def literal_address(url: URL) -> str | None:
    """Return the host if it is an address; None if it is a name."""
    host = url.raw_host or ""
    return host if ":" in host or _NUMERIC.search(host) else None


def host_and_port(url: URL) -> str:
    """Return ``host:port`` for an error."""
    host = url.raw_host or ""
    return f"[{host}]:{url.port}" if ":" in host else f"{host}:{url.port}"


def describe_server(server: str) -> str:
    """Return ``host:port`` of a server URL; no part of an invalid one."""
    try:
        return host_and_port(parse_server_url(server))
    except BadProviderError:
        return "the server"


def _is_host(host: str) -> bool:
    if len(host) > _LONGEST_HOST:
        return False
    try:
        # No zone: a provider must not choose one of our interfaces.
        return "%" not in host and bool(ip_address(host))
    except ValueError:
        return bool(_NAME.fullmatch(host)) and not _NUMERIC.search(host)


def parse_networks(texts: Iterable[str]) -> tuple[IPv4Network | IPv6Network, ...]:
    """Parse addresses and networks, ``10.1.2.3`` or ``10.0.0.0/8``. Raises ValueError."""
    return tuple(ip_network(text, strict=False) for text in texts)


def check_networks(field: str, texts: Iterable[str]) -> None:
    """Raise ValueError for a text of ``field`` that is neither an address nor a network."""
    try:
        parse_networks(texts)
    except ValueError as error:
        raise ValueError(f"{field}: {error}: write 10.1.2.3 or 10.0.0.0/8") from None


def _within(address: Address, networks: tuple[IPv4Network | IPv6Network, ...]) -> bool:
    return any(address in network for network in networks)


def _forms(address: Address) -> Iterator[Address]:
    """Yield the address, and every IPv4 address that a translator or tunnel derives from it."""
    yield address
    if isinstance(address, IPv4Address):
        return
    number = int(address)
    last = IPv4Address(number & 0xFFFFFFFF)
    if number >> _SHORT in _WITH_LAST:
        yield last
    # ISATAP: any network, then 0:5efe or 200:5efe, then the address.
    if (number >> _SHORT) & 0xFDFFFFFF == 0x5EFE:  # noqa: PLR2004 - RFC 5214
        yield last
    if address.sixtofour is not None:
        yield address.sixtofour
    if address.teredo is not None:
        yield from address.teredo


_WITH_LAST: Final = {
    int(IPv6Address(prefix)) >> _SHORT
    for prefix in ("::ffff:0:0", "::", "::ffff:0:0:0", "64:ff9b::")
}
"""Prefixes of mapped, compatible, translated (RFC 2765) and NAT64 addresses, which end in IPv4."""
