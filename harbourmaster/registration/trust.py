"""The content of every caBundle: without I/O, but with a memory.

The Secret says whom to trust. Replicas read it late, so an authority that vanishes from it by hand
stays in the bundles until no replica can serve a serving certificate of it any more.
"""

from __future__ import annotations

import base64
import binascii
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.model import CA_CERTIFICATE, BundleFiles, verify_bundle
from harbourmaster.certs.secret import encode, read_authorities, trust_bundle

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
    from datetime import datetime

    from harbourmaster.certs.model import Bundle
    from harbourmaster.certs.secret import Authority

    Parse = Callable[[BundleFiles], Awaitable[Bundle]]

RETAINED: Final = timedelta(hours=1)
"""The time for which a lost authority stays trusted; mounts follow within two minutes."""


class Trust:
    """Gathers the authorities that the bundles must hold."""

    def __init__(self) -> None:
        self._known: dict[Authority, datetime | None] = {}
        self._ahead: frozenset[Authority] = frozenset()

    def remember(self, bundles: Iterable[bytes], now: datetime) -> None:
        """Trust the authorities in the bundles, because a replica may serve their certificates."""
        for bundle in bundles:
            for authority in read_authorities(bundle, now):
                self._known.setdefault(authority, None)

    def announce(self, data: Mapping[str, bytes] | None, now: datetime) -> None:
        """Trust ahead of time what the Secret will hold; None for nothing."""
        self._ahead = (
            frozenset(required_authorities(data, now)) if data is not None else frozenset()
        )

    def bundle(self, data: Mapping[str, bytes], now: datetime) -> bytes:
        """Return the PEM of every caBundle; empty if there is no authority yet."""
        present = {*required_authorities(data, now), *self._ahead}
        if not present:
            return b""
        for authority in present:
            self._known[authority] = None
        for authority, lost_at in list(self._known.items()):
            if authority in present:
                continue
            if lost_at is None:
                self._known[authority] = now
            elif lost_at + RETAINED <= now:
                del self._known[authority]
        lost = {authority for authority in self._known if now < authority.not_after}
        return encode(sorted(present | lost))

    async def with_lost_authorities(
        self, data: Mapping[str, bytes], now: datetime, parse: Parse
    ) -> Mapping[str, bytes]:
        """Return the Secret's data; if it is not sound, with the authorities that it has lost."""
        authorities = read_authorities(data.get(CA_CERTIFICATE), now)
        lost = [
            authority
            for authority in self._known
            if authority not in authorities and now < authority.not_after
        ]
        if not lost or await is_sound(data, now, parse):
            return data
        return {**data, CA_CERTIFICATE: encode((*authorities, *lost))}


async def is_sound(data: Mapping[str, bytes], now: datetime, parse: Parse) -> bool:
    """Whether the serving certificate can be served now and all four files fit together."""
    try:
        bundle = await parse(
            BundleFiles(
                ca_crt=data.get(CA_CERTIFICATE, b""),
                ca_key=data.get("ca.key"),
                tls_crt=data.get("tls.crt"),
                tls_key=data.get("tls.key"),
            )
        )
        verify_bundle(bundle, now)
    except CertificateError:
        return False
    return True


def required_authorities(data: Mapping[str, bytes], now: datetime) -> tuple[Authority, ...]:
    """The authorities that the Secret's data asks clients to trust."""
    return read_authorities(trust_bundle(data, now), now, limit=None)


def carries(bundles: Collection[bytes], authorities: Collection[Authority], now: datetime) -> bool:
    """Whether each of the bundles holds all of the authorities."""
    wanted = set(authorities)
    return all(wanted <= set(read_authorities(bundle, now, limit=None)) for bundle in bundles)


def bundle_of(entry: Mapping[str, Any]) -> bytes:
    """The caBundle of a webhook, PEM; empty for none and for what is not valid base64."""
    try:
        return base64.b64decode((entry.get("clientConfig") or {}).get("caBundle") or "")
    except (binascii.Error, ValueError, TypeError):
        return b""
