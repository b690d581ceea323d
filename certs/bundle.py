"""The four files of a certificate directory: parsed and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from harbourmaster.certs.errors import (
    ChainError,
    KeyMismatchError,
    MissingNamesError,
    UnreadableError,
)
from harbourmaster.certs.model import CA_CERTIFICATE, CA_KEY, Bundle, check_window

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes

    from harbourmaster.certs.model import BundleFiles

_MAX_CHAIN: Final = 8
_PARSE_ERRORS: Final = (
    UnsupportedAlgorithm,
    x509.DuplicateExtension,
    x509.InvalidVersion,
    x509.UnsupportedGeneralNameType,
)
"""Exceptions of the library for invalid certificates, besides ValueError."""


def parse_bundle(files: BundleFiles) -> Bundle:
    """Check that certificate and key are a pair, and that the chain leads to ca.crt if it exists.

    ``verify_bundle`` checks times and names. Raises UnreadableError, KeyMismatchError, ChainError.
    """
    chain = parse_certificates(files.tls_crt, "tls.crt")
    _check_pair(chain[0], parse_key(files.tls_key, "tls.key"), "tls.crt", "tls.key")
    authorities: Sequence[x509.Certificate] = ()
    anchor = None
    if files.ca_crt is not None:
        authorities = parse_certificates(files.ca_crt, "ca.crt")
        anchor = _anchor(chain, authorities).public_bytes(serialization.Encoding.DER)
        if files.ca_key is not None:
            _check_pair(authorities[0], parse_key(files.ca_key, "ca.key"), "ca.crt", "ca.key")
    return Bundle(
        files=files,
        serving_der=chain[0].public_bytes(serialization.Encoding.DER),
        not_before=chain[0].not_valid_before_utc,
        not_after=chain[0].not_valid_after_utc,
        names=_names(chain[0]),
        authority_not_before=authorities[0].not_valid_before_utc if authorities else None,
        authority_not_after=authorities[0].not_valid_after_utc if authorities else None,
        anchor_der=anchor,
    )


def parse_certificates(pem: bytes | None, file: str) -> list[x509.Certificate]:
    """Read one or more certificates; ``file`` is named in the UnreadableError."""
    if pem is None:
        raise UnreadableError(f"{file} is missing")
    try:
        certificates = x509.load_pem_x509_certificates(pem)
        for certificate in certificates:
            _read_through(certificate)
    except (ValueError, *_PARSE_ERRORS):
        raise UnreadableError(f"{file} holds no certificate in PEM form") from None
    return certificates


def end_of(pem: bytes, file: str) -> datetime:
    """Return the end of the first certificate of ``file``. Raises UnreadableError."""
    return parse_certificates(pem, file)[0].not_valid_after_utc


def parse_key(pem: bytes | None, file: str) -> PrivateKeyTypes:
    """Read a private key; ``file`` is named in the UnreadableError."""
    if pem is None:
        raise UnreadableError(f"{file} is missing")
    try:
        return serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        # An encrypted key raises TypeError. The library's text could quote the file.
        raise UnreadableError(f"{file} holds no unencrypted private key in PEM form") from None


def check_authority(files: BundleFiles, now: datetime) -> x509.Certificate:
    """The first certificate of ca.crt, which can sign with ca.key.

    Raises UnreadableError, KeyMismatchError, ValidityError or ChainError.
    """
    certificate = parse_certificates(files.ca_crt, CA_CERTIFICATE)[0]
    check_issuer(certificate, parse_key(files.ca_key, CA_KEY), now)
    return certificate


def check_issuer(
    certificate: x509.Certificate,
    key: PrivateKeyTypes,
    now: datetime,
    files: tuple[str, str] = (CA_CERTIFICATE, CA_KEY),
) -> None:
    """Check that a certificate and a key can sign; the errors name them as ``files``.

    Raises KeyMismatchError, ValidityError or ChainError.
    """
    file, key_file = files
    _check_pair(certificate, key, file, key_file)
    check_window(file, certificate.not_valid_before_utc, certificate.not_valid_after_utc, now)
    if not is_authority(certificate):
        raise ChainError(f"{file} is not a certificate authority")


def is_issued_by(certificate: x509.Certificate, issuer: x509.Certificate) -> bool:
    """Whether ``issuer`` is an authority and issued the certificate, by name and signature."""
    try:
        certificate.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return is_authority(issuer)


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it may sign certificates."""
    extensions = certificate.extensions
    try:
        if not extensions.get_extension_for_class(x509.BasicConstraints).value.ca:
            return False
        return extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except x509.ExtensionNotFound as error:
        # Without a KeyUsage a key may be used for everything.
        return error.oid == x509.KeyUsage.oid


def check_permitted(authority: x509.Certificate, names: Collection[str]) -> None:
    """Check that an authority may certify the names. Raises MissingNamesError."""
    permitted = permitted_names(authority)
    missing = sorted(set(names) - permitted) if permitted is not None else ()
    if missing:
        raise MissingNamesError(f"ca.crt must not certify {', '.join(missing)}")


def permitted_names(certificate: x509.Certificate) -> frozenset[str] | None:
    """Return the DNS names and addresses to which an authority is limited; None if it is not."""
    try:
        constraints = certificate.extensions.get_extension_for_class(x509.NameConstraints).value
    except x509.ExtensionNotFound:
        return None
    values = (subtree.value for subtree in constraints.permitted_subtrees or ())
    return frozenset(str(getattr(value, "network_address", value)) for value in values)


def _check_pair(
    certificate: x509.Certificate, key: PrivateKeyTypes, certificate_file: str, key_file: str
) -> None:
    if key.public_key() != certificate.public_key():
        raise KeyMismatchError(f"{key_file} is not the key of {certificate_file}")


def _anchor(
    chain: Sequence[x509.Certificate], roots: Sequence[x509.Certificate]
) -> x509.Certificate:
    certificate = chain[0]
    for _ in range(_MAX_CHAIN):
        if certificate in roots:
            return certificate
        root = next((root for root in roots if is_issued_by(certificate, root)), None)
        if root is not None:
            return root
        issuer = next((issuer for issuer in chain[1:] if is_issued_by(certificate, issuer)), None)
        if issuer is None:
            break
        certificate = issuer
    raise ChainError("tls.crt was not issued by ca.crt")


def _names(certificate: x509.Certificate) -> frozenset[str]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return frozenset()
    dns = extension.value.get_values_for_type(x509.DNSName)
    addresses = extension.value.get_values_for_type(x509.IPAddress)
    return frozenset((*dns, *map(str, addresses)))


def _read_through(certificate: x509.Certificate) -> None:
    # The library parses most parts on access; a broken one must be found here.
    certificate.public_key()
    _ = (
        certificate.extensions,
        certificate.subject,
        certificate.issuer,
        certificate.not_valid_before_utc,
        certificate.not_valid_after_utc,
    )
