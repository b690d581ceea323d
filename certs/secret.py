"""The Secret that replicas share: which authorities its data holds, and what clients must trust.

``ca.crt`` holds first the authority that issued ``tls.crt`` and has its key in ``ca.key``, then the
older ones that are still trusted. ``next-ca.crt`` and ``next-ca.key`` exist while a new one is
being published. Parts that cannot be read are skipped; they are never an error.
"""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives import serialization

from harbourmaster.certs.bundle import CA_CERTIFICATE, is_authority, parse_certificates
from harbourmaster.certs.errors import UnreadableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from cryptography import x509

NEXT_CERTIFICATE: Final = "next-ca.crt"
NEXT_KEY: Final = "next-ca.key"

MAX_AUTHORITIES: Final = 8
"""Maximum number of authorities in ca.crt, because a Secret must stay below 1 MiB."""
_MAX_BLOCK: Final = 16 * 1024
_MAX_BYTES: Final = 1024 * 1024
_BLOCK: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----[A-Za-z0-9+/=\s]+-----END CERTIFICATE-----"
)


def trust_bundle(data: Mapping[str, bytes], now: datetime) -> bytes:
    """Return the caBundle that is required now, in PEM: issuing, next and older authorities.

    They are in the order of their creation, which changes only when an authority is added or
    removed. Empty if there is none to trust; ``overlap.decide`` then requests a write first.
    """
    known = {*read_authorities(data.get(CA_CERTIFICATE), now), *next_authority(data, now)}
    return encode(sorted(known, key=_age))


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
    if since is None or not upcoming[0].not_valid_before_utc <= since <= now:
        return now
    return since


def next_authority(data: Mapping[str, bytes], now: datetime) -> tuple[x509.Certificate, ...]:
    """Return the authority of next-ca.crt, in a tuple that is empty if there is none."""
    return read_authorities(data.get(NEXT_CERTIFICATE), now, limit=1)


def read_authorities(
    pem: bytes | None, now: datetime, *, limit: int | None = MAX_AUTHORITIES
) -> tuple[x509.Certificate, ...]:
    """Return the authorities that have not expired, each once, in order; skip everything else."""
    if pem is None or len(pem) > _MAX_BYTES:
        return ()
    return tuple(islice(dict.fromkeys(_authorities(pem, now)), limit))


def encode(certificates: Iterable[x509.Certificate]) -> bytes:
    """Encode certificates in PEM, with nothing between them."""
    return b"".join(
        certificate.public_bytes(serialization.Encoding.PEM) for certificate in certificates
    )


def _authorities(pem: bytes, now: datetime) -> Iterable[x509.Certificate]:
    for block in _BLOCK.findall(pem):
        if len(block) > _MAX_BLOCK:
            continue
        try:
            certificate = parse_certificates(block, CA_CERTIFICATE)[0]
        except UnreadableError:
            continue
        if is_authority(certificate) and now < certificate.not_valid_after_utc:
            yield certificate


def _age(certificate: x509.Certificate) -> tuple[datetime, bytes]:
    der = certificate.public_bytes(serialization.Encoding.DER)
    return certificate.not_valid_before_utc, der
