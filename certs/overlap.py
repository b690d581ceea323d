"""Renewal of the Secret that replicas share, so that no handshake fails (decision D15).

Every client gets a new authority before a certificate that it issued is served, and the old one
stays trusted: its key is deleted, and none of its certificates outlives it. No handshake fails
while no delay exceeds the margins that the tests compute. If ca.key is lost, all steps to a new
authority must fit into the remaining validity of the serving certificate, at least a third, because
nothing can renew that certificate.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID
from msgspec import Struct

from harbourmaster.certs.authority import (
    KeyPair,
    backdating,
    create_authority,
    issue_serving_certificate,
    signing_key,
)
from harbourmaster.certs.bundle import (
    check_issuer,
    check_permitted,
    is_authority,
    is_issued_by,
    parse_bundle,
    parse_certificates,
    parse_key,
    permitted_names,
)
from harbourmaster.certs.errors import CertificateError, ChainError, UnreadableError
from harbourmaster.certs.model import (
    CA_CERTIFICATE,
    CA_KEY,
    TLS_CERTIFICATE,
    TLS_KEY,
    Await,
    Bundle,
    BundleFiles,
    Keep,
    Lifetimes,
    Write,
    verify_bundle,
)
from harbourmaster.certs.rotation import (
    canonical_name,
    overdue,
    renewal_time,
    serving_renewal_time,
    too_many_names,
)
from harbourmaster.certs.secret import (
    MAX_AUTHORITIES,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    read_authorities,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from harbourmaster.certs.model import (
        Action,
    )


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
    trusted = _authorities(data.get(CA_CERTIFICATE), now)
    serving, serving_fault = None, ""
    try:
        serving = _read_serving(now, data, (*trusted, *_next_authority(data, now)), wanted)
    except CertificateError as error:
        serving_fault = str(error)
    # The served certificate decides who the issuer is, not the order in ca.crt.
    candidates = trusted if serving is None else (serving.issuer,)
    issuing, authority_fault = _find_signer(now, data, candidates, wanted)
    signer = None
    if issuing is not None:
        signer = KeyPair(_encode([issuing]), data[CA_KEY])
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
    authority = _next_authority(data, now)
    if not authority:
        return None, _fault_of_missing(now, data, NEXT_CERTIFICATE)
    try:
        key = parse_key(data.get(NEXT_KEY), NEXT_KEY)
        check_issuer(authority[0], key, now, (NEXT_CERTIFICATE, NEXT_KEY))
    except CertificateError as error:
        return None, str(error)
    fault = _renewal_reason(authority[0], NEXT_CERTIFICATE, now, lifetime, permitted)
    return (None, fault) if fault else (KeyPair(_encode(authority), data[NEXT_KEY]), "")


def _authorities(
    pem: bytes | None, now: datetime, limit: int = MAX_AUTHORITIES
) -> tuple[x509.Certificate, ...]:
    """Return what ``read_authorities`` does and the library can parse."""
    certificates = []
    for authority in read_authorities(pem, now, limit=limit):
        with suppress(UnreadableError):
            block = ssl.DER_cert_to_PEM_cert(authority.der).encode()
            certificates += parse_certificates(block, CA_CERTIFICATE)
    return tuple(certificates)


def _next_authority(data: Mapping[str, bytes], now: datetime) -> tuple[x509.Certificate, ...]:
    return _authorities(data.get(NEXT_CERTIFICATE), now, limit=1)


def _encode(certificates: Iterable[x509.Certificate]) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


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


_DEFAULTS: Final = Lifetimes()


class _Case(Struct, frozen=True):
    """The input of a decision."""

    now: datetime
    data: Mapping[str, bytes]
    wanted: frozenset[str]
    permitted: frozenset[str]
    lifetimes: Lifetimes
    held: Inventory

    def __repr__(self) -> str:
        return f"_Case({self.held!r})"

    @property
    def is_rotating(self) -> bool:
        """Whether the issuing authority is being replaced, or must be."""
        begun = NEXT_CERTIFICATE in self.data or NEXT_KEY in self.data
        return begun or bool(self.held.authority_fault)


def decide(
    now: datetime,
    data: Mapping[str, bytes],
    names: Collection[str],
    published_since: datetime | None = None,
    lifetimes: Lifetimes = _DEFAULTS,
    permitted: Collection[str] = (),
) -> Action:
    """Decide what to do with the Secret's data; any data has an answer.

    An authority is limited to ``names`` and ``permitted``, names that may be wanted later.
    ``published_since`` is the result of ``authority_publication``. The presence of next-ca.crt or
    next-ca.key, even empty, asks for a new authority. Raises MissingNamesError for a wanted name
    that no certificate can have.
    """
    wanted = frozenset(map(canonical_name, names))
    case = _case(now, data, wanted, wanted.union(map(canonical_name, permitted)), lifetimes)
    held = case.held
    if held.serving is None and held.signer is None:
        # Clients accept nothing that is served now, so waiting would help no client.
        authority = held.upcoming or create_authority(
            now, case.permitted, lifetime=lifetimes.authority
        )
        reason = f"{held.serving_fault}; {held.authority_fault}: a new authority is used at once"
        return _write(case, _use_authority(case, authority), reason)
    if held.upcoming is not None and _is_known(case, held.upcoming, published_since):
        reason = "every caBundle holds the new authority: it is used from now on"
        return _write(case, _use_authority(case, held.upcoming), reason)
    changes, reasons = _renewals(case)
    if changes:
        return _write(case, {**data, **changes}, "; ".join(reasons))
    until = _next_check(case, published_since)
    return Await(until) if case.is_rotating else Keep(until)


def _case(
    now: datetime,
    data: Mapping[str, bytes],
    wanted: frozenset[str],
    permitted: frozenset[str],
    lifetimes: Lifetimes,
) -> _Case:
    held = take_inventory(now, data, wanted, lifetimes.authority, permitted)
    return _Case(now, data, wanted, permitted, lifetimes, held)


def _is_known(case: _Case, upcoming: KeyPair, since: datetime | None) -> bool:
    created = parse_certificates(upcoming.certificate, NEXT_CERTIFICATE)[0].not_valid_before_utc
    # An earlier time is that of another authority.
    return since is not None and since >= created and case.now - since >= case.lifetimes.publish


def _use_authority(case: _Case, authority: KeyPair) -> dict[str, bytes]:
    serving = issue_serving_certificate(
        case.now, authority, sorted(case.wanted), lifetime=case.lifetimes.serving
    )
    first = parse_certificates(authority.certificate, CA_CERTIFICATE)[0]
    # Keep the previous CA for slow replicas; drop an adopted CA before it expires.
    trusted = dict.fromkeys((first, *case.held.trusted[:1]))
    trusted |= dict.fromkeys(
        certificate
        for certificate in case.held.trusted[1:]
        if not unlike_ours(certificate, CA_CERTIFICATE, case.lifetimes.authority)
    )
    kept = {key: case.data[key] for key in case.data if key not in {NEXT_CERTIFICATE, NEXT_KEY}}
    return {
        **kept,
        CA_CERTIFICATE: _encode(islice(trusted, MAX_AUTHORITIES)),
        CA_KEY: authority.key,
        TLS_CERTIFICATE: serving.certificate,
        TLS_KEY: serving.key,
    }


def _renewals(case: _Case) -> tuple[dict[str, bytes], list[str]]:
    """Return the keys that change and the reasons, while the issuing authority stays."""
    now, held, lifetimes = case.now, case.held, case.lifetimes
    changes: dict[str, bytes] = {}
    reasons = []
    serving_fault = _serving_fault(case)
    if serving_fault and held.signer is not None:
        serving = issue_serving_certificate(
            now, held.signer, sorted(case.wanted), lifetime=lifetimes.serving
        )
        changes |= {TLS_CERTIFICATE: serving.certificate, TLS_KEY: serving.key}
        reasons.append(serving_fault)
    if case.is_rotating and held.upcoming is None:
        upcoming = create_authority(now, case.permitted, lifetime=lifetimes.authority)
        changes |= {NEXT_CERTIFICATE: upcoming.certificate, NEXT_KEY: upcoming.key}
        fault = held.authority_fault or held.upcoming_fault
        reasons.append(f"{fault}: a new authority is published")
    trusted = _encode(held.trusted)
    if trusted != case.data.get(CA_CERTIFICATE):
        changes[CA_CERTIFICATE] = trusted
        reasons.append("ca.crt held more than authorities to trust, or in another order")
    return changes, reasons


def _serving_fault(case: _Case) -> str:
    serving = case.held.serving
    if serving is None:
        return case.held.serving_fault
    try:
        verify_bundle(serving.bundle, case.now, case.wanted)
    except CertificateError as error:
        return str(error)
    if not case.is_rotating:
        # Otherwise it soon gets a successor anyway.
        if serving.bundle.names != case.wanted:
            return too_many_names(case.wanted)
        fault = unlike_ours(serving.certificate, TLS_CERTIFICATE, case.lifetimes.serving)
        if fault:
            return fault
    due = serving_renewal_time(serving.bundle)
    end = min(case.now + case.lifetimes.serving, serving.issuer.not_valid_after_utc)
    # An authority issues no successor of a certificate that ends with it.
    return (
        overdue(TLS_CERTIFICATE, due) if case.now >= due and end > serving.bundle.not_after else ""
    )


def _write(case: _Case, data: dict[str, bytes], reason: str) -> Write:
    after = _case(case.now, data, case.wanted, case.permitted, case.lifetimes)
    return Write(data, reason, _next_check(after, None))


def _next_check(case: _Case, since: datetime | None) -> datetime:
    held = case.held
    instants = [authority.not_valid_after_utc for authority in held.trusted]
    instants += [
        renewal_time(authority.not_valid_before_utc, authority.not_valid_after_utc)
        for authority in (*held.trusted[:1], *_next_authority(case.data, case.now))
    ]
    if held.serving is not None:
        instants += [held.serving.bundle.not_after, serving_renewal_time(held.serving.bundle)]
    if since is not None and held.upcoming is not None:
        # A time ahead of the clock starts again.
        instants.append(case.lifetimes.publish + min(since, case.now))
    return min(instant for instant in instants if instant > case.now)
