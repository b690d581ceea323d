"""The Secret that replicas share: which authorities its data holds, and what clients must trust.

``ca.crt`` holds first the authority that issued ``tls.crt`` and has its key in ``ca.key``, then the
older ones that are still trusted. ``next-ca.crt`` and ``next-ca.key`` exist while a new one is
being published. Parts that cannot be read are skipped; they are never an error.
"""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from harbourmaster.certs.model import CA_CERTIFICATE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

NEXT_CERTIFICATE: Final = "next-ca.crt"
NEXT_KEY: Final = "next-ca.key"

MAX_AUTHORITIES: Final = 8
"""Maximum number of authorities in ca.crt, because a Secret must stay below 1 MiB."""
_MAX_BLOCK: Final = 16 * 1024
_MAX_BYTES: Final = 1024 * 1024
BLOCK: Final = re.compile(rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----")
_CONSTRAINTS: Final = bytes.fromhex("0603551d13")
"""The identifier of basic constraints, without which clients accept a certificate as no issuer."""


class Authority(Struct, frozen=True, order=True):
    """The certificate of an authority; the oldest is the least."""

    not_before: datetime
    der: bytes
    not_after: datetime


def trust_bundle(data: Mapping[str, bytes], now: datetime) -> bytes:
    """Return the caBundle that is required now, in PEM: issuing, next and older authorities.

    They are in the order of their creation, which changes only when an authority is added or
    removed. Empty if there is none to trust; ``overlap.decide`` then requests a write first.
    """
    known = {*read_authorities(data.get(CA_CERTIFICATE), now), *next_authority(data, now)}
    return encode(sorted(known))


def authority_publication(
    now: datetime,
    data: Mapping[str, bytes],
    observed: Collection[bytes],
    since: datetime | None,
) -> datetime | None:
    """Return the time since when every caBundle has the next authority; None if one does not.

    ``observed`` has a caBundle for each webhook that should be registered, empty if it is missing.
    ``since`` is the previous result, not rounded down; an impossible time is replaced.
    """
    upcoming = next_authority(data, now)
    if not upcoming or not observed:
        return None
    if not all(upcoming[0] in read_authorities(bundle, now, limit=None) for bundle in observed):
        return None
    if since is None or not upcoming[0].not_before <= since <= now:
        return now
    return since


def next_authority(data: Mapping[str, bytes], now: datetime) -> tuple[Authority, ...]:
    """Return the authority of next-ca.crt, in a tuple that is empty if there is none."""
    return read_authorities(data.get(NEXT_CERTIFICATE), now, limit=1)


def read_authorities(
    pem: bytes | None, now: datetime, *, limit: int | None = MAX_AUTHORITIES
) -> tuple[Authority, ...]:
    """Return the authorities that have not expired, each once, in order; skip everything else."""
    if pem is None or len(pem) > _MAX_BYTES:
        return ()
    known = (_parse(block) for block in BLOCK.findall(pem) if len(block) <= _MAX_BLOCK)
    current = (authority for authority in known if authority and now < authority.not_after)
    return tuple(islice(dict.fromkeys(current), limit))


def encode(authorities: Iterable[Authority]) -> bytes:
    """Encode certificates in PEM, with nothing between them."""
    return "".join(ssl.DER_cert_to_PEM_cert(authority.der) for authority in authorities).encode()


@lru_cache(maxsize=64)
def _parse(block: bytes) -> Authority | None:
    """Return the authority in a block of PEM; None for anything else."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=block.decode("ascii"))
        # Both lists have only certificates that may sign others.
        [der], [fields] = context.get_ca_certs(binary_form=True), context.get_ca_certs()
        start, end = (
            datetime.fromtimestamp(ssl.cert_time_to_seconds(str(fields[name])), UTC)
            for name in ("notBefore", "notAfter")
        )
    except (ssl.SSLError, ValueError):
        return None
    return Authority(start, der, end) if _CONSTRAINTS in der else None
