"""A small certificate authority that issues ECDSA P-256 certificates for names."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec import Struct

from harbourmaster.certs.bundle import parse_key
from harbourmaster.certs.errors import MissingNamesError, UnreadableError
from harbourmaster.certs.model import AUTHORITY_LIFETIME, SERVING_LIFETIME

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

BACKDATED: Final = timedelta(minutes=5)
"""Time before its creation at which a certificate becomes valid, for clients whose clocks are late.
It is shorter for lifetimes below 50 minutes, which would be due at once (see ``backdating``).
"""

_MAX_COMMON_NAME: Final = 64
_MIN_RSA_BITS: Final = 2048
_ADDRESSES: Final = [x509.IPAddress(ip_network(network)) for network in ("0.0.0.0/0", "::/0")]


class KeyPair(Struct, frozen=True):
    """A certificate and its key, both PEM."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "KeyPair(...)"


def create_authority(
    now: datetime,
    names: Collection[str] = (),
    *,
    common_name: str = "Harbourmaster CA",
    lifetime: timedelta = AUTHORITY_LIFETIME,
) -> KeyPair:
    """Create a self-signed authority, limited to ``names``, DNS names and IP addresses, if given.

    It must not sign other authorities. Raises MissingNamesError for a name that no certificate can
    have.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(common_name)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = x509.CertificateBuilder()
    if names:
        builder = builder.add_extension(_constraints(names), critical=True)
    certificate = (
        builder.subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - backdating(lifetime))
        .not_valid_after(now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        # Strict verifiers want it on a self-signed certificate too.
        .add_extension(_issued_by(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def issue_serving_certificate(
    now: datetime,
    authority: KeyPair,
    names: Collection[str],
    *,
    lifetime: timedelta = SERVING_LIFETIME,
) -> KeyPair:
    """Issue a server certificate for DNS names and IP addresses; it never outlives its authority.

    The authority may be foreign: the first of its certificates is the issuer, and its key may be
    RSA. Raises UnreadableError for a key that cannot sign, and MissingNamesError for a name that
    no certificate can have.
    """
    common_name = next((name for name in names if len(name) <= _MAX_COMMON_NAME), "harbourmaster")
    alternatives = [_alternative(name) for name in names]
    usages = [ExtendedKeyUsageOID.SERVER_AUTH]
    return issue_certificate(now, authority, _name(common_name), alternatives, usages, lifetime)


def issue_certificate(
    now: datetime,
    authority: KeyPair,
    subject: x509.Name,
    alternatives: Collection[x509.GeneralName],
    usages: Collection[x509.ObjectIdentifier],
    lifetime: timedelta,
) -> KeyPair:
    """Issue any certificate; it has no alternative names if none are given.

    Raises UnreadableError for a key that cannot sign.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = signing_key(authority.key)
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(max(now - backdating(lifetime), issuer.not_valid_before_utc))
        .not_valid_after(min(now + lifetime, issuer.not_valid_after_utc))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    )
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(_issued_by(_identifier(issuer)), critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def backdating(lifetime: timedelta) -> timedelta:
    """Return the time before its creation at which a certificate of this lifetime becomes valid."""
    return min(BACKDATED, lifetime / 10)


def signing_key(key: bytes | None) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    """Read ca.key. Raises UnreadableError for one that cannot sign."""
    parsed = parse_key(key, "ca.key")
    if isinstance(parsed, ec.EllipticCurvePrivateKey):
        return parsed
    if isinstance(parsed, rsa.RSAPrivateKey) and parsed.key_size >= _MIN_RSA_BITS:
        return parsed
    raise UnreadableError(
        f"ca.key is neither ECDSA nor RSA of {_MIN_RSA_BITS} bits; "
        "remove ca.crt and ca.key to get new ones"
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str, address: Callable[[str], Any] = ip_address) -> x509.GeneralName:
    try:
        return x509.IPAddress(address(name))
    except ValueError:
        pass
    try:
        return x509.DNSName(name)
    except ValueError:
        raise MissingNamesError(
            f'"{name}" is not a valid DNS name: write it in ASCII (xn--...)'
        ) from None


def _constraints(names: Collection[str]) -> x509.NameConstraints:
    """Permit the names, and exclude all addresses if no address is permitted."""
    permitted = [_alternative(name, ip_network) for name in sorted(set(names))]
    excluded = [] if any(isinstance(name, x509.IPAddress) for name in permitted) else _ADDRESSES
    return x509.NameConstraints(permitted, excluded or None)


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _identifier(certificate: x509.Certificate) -> x509.SubjectKeyIdentifier:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        return x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
    return extension.value


def _issued_by(identifier: x509.SubjectKeyIdentifier) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    return KeyPair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
