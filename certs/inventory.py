"""The usable parts of a shared Secret, and what is wrong with the others."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec import Struct

from harbourmaster.certs.authority import KeyPair, backdating, signing_key
from harbourmaster.certs.bundle import (
    CA_CERTIFICATE,
    CA_KEY,
    TLS_CERTIFICATE,
    TLS_KEY,
    Bundle,
    BundleFiles,
    check_issuer,
    check_permitted,
    is_authority,
    is_issued_by,
    parse_bundle,
    parse_certificates,
    parse_key,
    permitted_names,
    verify_bundle,
)
from harbourmaster.certs.errors import CertificateError, ChainError, UnreadableError
from harbourmaster.certs.rotation import overdue, renewal_time
from harbourmaster.certs.secret import (
    MAX_AUTHORITIES,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    encode,
    next_authority,
    read_authorities,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

ROUNDING: Final = timedelta(seconds=1)
"""Certificates have whole seconds, so a lifetime may be this much longer than requested."""
_SERVING: Final = frozenset(
    (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE)
)


class ServingPair(Struct, frozen=True):
    """A serving certificate and key that clients accept, now or when clocks agree."""

    bundle: Bundle
    certificate: x509.Certificate
    issuer: x509.Certificate


class Inventory(Struct, frozen=True, kw_only=True):
    """The usable parts; a fault says why a part is missing or must be renewed."""

    trusted: tuple[x509.Certificate, ...]
    """The certificates of ca.crt, the issuing one first."""
    signer: KeyPair | None
    """The issuing authority, if it can sign."""
    authority_fault: str
    upcoming: KeyPair | None
    upcoming_fault: str
    serving: ServingPair | None
    serving_fault: str

    def __repr__(self) -> str:
        # Keys must never reach a log or a traceback.
        return (
            f"Inventory({self.authority_fault!r}, {self.upcoming_fault!r}, {self.serving_fault!r})"
        )


def take_inventory(
    now: datetime,
    data: Mapping[str, bytes],
    wanted: frozenset[str],
    lifetime: timedelta,
    permitted: frozenset[str],
) -> Inventory:
    """Parse a Secret's data.

    ``lifetime`` is the validity that authorities should have, and ``permitted`` are the names to
    which they should be limited.
    """
    trusted = read_authorities(data.get(CA_CERTIFICATE), now)
    serving, serving_fault = None, ""
    try:
        serving = _read_serving(now, data, (*trusted, *next_authority(data, now)), wanted)
    except CertificateError as error:
        serving_fault = str(error)
    # The served certificate decides who the issuer is, not the order in ca.crt.
    candidates = trusted if serving is None else (serving.issuer,)
    issuing, authority_fault = _find_signer(now, data, candidates, wanted)
    signer = None
    if issuing is not None:
        signer = KeyPair(encode([issuing]), data[CA_KEY])
        authority_fault = _renewal_reason(issuing, CA_CERTIFICATE, now, lifetime, permitted)
    first = issuing if serving is None else serving.issuer
    if first is not None:
        trusted = tuple(islice(dict.fromkeys((first, *trusted)), MAX_AUTHORITIES))
    upcoming, upcoming_fault = _find_upcoming(now, data, lifetime, permitted)
    return Inventory(
        trusted=trusted,
        signer=signer,
        authority_fault=authority_fault,
        upcoming=upcoming,
        upcoming_fault=upcoming_fault,
        serving=serving,
        serving_fault=serving_fault,
    )


def unlike_ours(certificate: x509.Certificate, file: str, lifetime: timedelta) -> str:
    """Return why we would not have issued a certificate; empty if we would."""
    key = certificate.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != ec.SECP256R1.name:
        return f"{file} is not of ECDSA P-256"
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    if life > lifetime + backdating(lifetime) + ROUNDING:
        return f"{file} lives for {life}, more than {lifetime}"
    return ""


def _read_serving(
    now: datetime,
    data: Mapping[str, bytes],
    trusted: Sequence[x509.Certificate],
    wanted: frozenset[str],
) -> ServingPair:
    chain = data.get(TLS_CERTIFICATE)
    bundle = parse_bundle(BundleFiles(tls_crt=chain, tls_key=data.get(TLS_KEY)))
    certificate = parse_certificates(chain, TLS_CERTIFICATE)[0]
    issuer = next(
        (authority for authority in trusted if is_issued_by(certificate, authority)), None
    )
    if issuer is None:
        raise ChainError("tls.crt was not issued by ca.crt")
    if is_authority(certificate) or not _is_for_servers(certificate):
        raise ChainError("tls.crt is not a server certificate")
    # A certificate for one of the names is in use, and our own clock may be behind.
    needed = wanted if wanted.isdisjoint(bundle.names) else ()
    verify_bundle(bundle, max(now, bundle.not_before), needed)
    return ServingPair(bundle, certificate, issuer)


def _is_for_servers(certificate: x509.Certificate) -> bool:
    try:
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return True
    return not _SERVING.isdisjoint(usage)


def _find_signer(
    now: datetime,
    data: Mapping[str, bytes],
    candidates: Sequence[x509.Certificate],
    wanted: frozenset[str],
) -> tuple[x509.Certificate | None, str]:
    if not candidates:
        return None, _fault_of_missing(now, data, CA_CERTIFICATE)
    try:
        # Only once: checking an RSA key is slow.
        key = signing_key(data.get(CA_KEY))
    except UnreadableError as error:
        return None, str(error)
    faults = []
    for candidate in candidates:
        try:
            check_issuer(candidate, key, now)
            # Clients would refuse a certificate for a name that it must not certify.
            check_permitted(candidate, wanted)
        except CertificateError as error:
            faults.append(str(error))
        else:
            return candidate, ""
    return None, faults[0]


def _find_upcoming(
    now: datetime, data: Mapping[str, bytes], lifetime: timedelta, permitted: frozenset[str]
) -> tuple[KeyPair | None, str]:
    authority = next_authority(data, now)
    if not authority:
        return None, _fault_of_missing(now, data, NEXT_CERTIFICATE)
    try:
        key = parse_key(data.get(NEXT_KEY), NEXT_KEY)
        check_issuer(authority[0], key, now, (NEXT_CERTIFICATE, NEXT_KEY))
    except CertificateError as error:
        return None, str(error)
    fault = _renewal_reason(authority[0], NEXT_CERTIFICATE, now, lifetime, permitted)
    return (None, fault) if fault else (KeyPair(encode(authority), data[NEXT_KEY]), "")


def _fault_of_missing(now: datetime, data: Mapping[str, bytes], file: str) -> str:
    try:
        first = parse_certificates(data.get(file), file)[0]
    except UnreadableError as error:
        return str(error)
    if now >= first.not_valid_after_utc:
        return f"{file} expired at {first.not_valid_after_utc.isoformat()}"
    return f"{file} holds no certificate authority that can be used"


def _renewal_reason(
    certificate: x509.Certificate,
    file: str,
    now: datetime,
    lifetime: timedelta,
    permitted: frozenset[str],
) -> str:
    fault = unlike_ours(certificate, file, lifetime)
    if not fault and not (permitted_names(certificate) or frozenset()) >= permitted:
        fault = f"{file} is not limited to our names"
    due = renewal_time(certificate.not_valid_before_utc, certificate.not_valid_after_utc)
    return fault or (overdue(file, due) if now >= due else "")
