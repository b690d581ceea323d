"""Certificates of other hands, the margins of a renewal, and TLS handshakes without sockets."""

from __future__ import annotations

import ssl
from datetime import timedelta
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from harbourmaster.certs.authority import backdating, create_authority, issue_serving_certificate
from harbourmaster.certs.model import BundleFiles
from harbourmaster.certs.overlap import ROUNDING
from harbourmaster.certs.secret import trust_bundle

if TYPE_CHECKING:
    from pathlib import Path

NAME = "hm.harbourmaster-system.svc"
KUPID_NAMES = ("kupid", "kupid.garden", "kupid.garden.svc")
TEN_YEARS = timedelta(days=3652)


def accepts(trust, chain, name, now):
    """Whether a client that trusts only ``trust`` accepts the certificate of PEM ``chain``."""
    if not trust:
        return False
    store = Store(x509.load_pem_x509_certificates(trust))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(name))
    leaf, *others = x509.load_pem_x509_certificates(chain)
    try:
        verifier.verify(leaf, others)
    except VerificationError:
        return False
    return True


def is_trusted(data, now, name=NAME):
    """Whether who trusts the bundle of a Secret accepts its serving certificate."""
    return accepts(trust_bundle(data, now), data["tls.crt"], name, now)


def first(data, key="ca.crt"):
    """The first certificate of a key of a Secret."""
    return x509.load_pem_x509_certificates(data[key])[0]


def same_leaf(first, second):
    """Whether two Secrets hold the same serving certificate with its key."""
    return first["tls.crt"] == second["tls.crt"] and first["tls.key"] == second["tls.key"]


def own_files(now, names, authority=None):
    """The four files of a directory of ours: a serving certificate made now, its authority."""
    authority = authority or create_authority(now)
    serving = issue_serving_certificate(now, authority, names)
    return BundleFiles(
        ca_crt=authority.certificate,
        ca_key=authority.key,
        tls_crt=serving.certificate,
        tls_key=serving.key,
    )


def rsa_key():
    return rsa.generate_private_key(65537, 2048)


def pem(thing):
    """A certificate or a key, PKCS1 as Go writes it."""
    if isinstance(thing, x509.Certificate):
        return thing.public_bytes(serialization.Encoding.PEM)
    return thing.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def foreign_authority(now, key=None, *, lifetime=TEN_YEARS, ballast=b""):
    """Certificate and key of an authority as Go programs make it."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = _builder(now, "webhook-ca", "webhook-ca", key, lifetime)
    builder = builder.add_extension(_usage(ca=True), critical=True)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(identifier, critical=False)
    if ballast:
        extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.5.1"), ballast)
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(key, hashes.SHA256()), key


def foreign_leaf(now, authority, names, key=None, *, lifetime=TEN_YEARS, usage=None):
    """Certificate and key of a server, issued by what ``foreign_authority`` gave."""
    issuer, issuer_key = authority
    key = key or ec.generate_private_key(ec.SECP256R1())
    identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    identifier = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    alternative = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    usages = x509.ExtendedKeyUsage([usage or ExtendedKeyUsageOID.SERVER_AUTH])
    builder = _builder(now, "kupid", "webhook-ca", key, lifetime)
    builder = builder.add_extension(_usage(ca=False), critical=True)
    builder = builder.add_extension(usages, critical=False)
    builder = builder.add_extension(identifier, critical=False)
    builder = builder.add_extension(alternative, critical=False)
    return builder.sign(issuer_key, hashes.SHA256()), key


def kupid_data(now, names=KUPID_NAMES):
    """The data of kupid's Secret: RSA 2048, ten years."""
    authority = foreign_authority(now, rsa_key())
    leaf = foreign_leaf(now, authority, names, rsa_key())
    return {
        "ca.crt": pem(authority[0]),
        "ca.key": pem(authority[1]),
        "tls.crt": pem(leaf[0]),
        "tls.key": pem(leaf[1]),
    }


def _builder(now, name, issuer, key, lifetime):
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + lifetime)
    )


def _usage(*, ca):
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=True,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


class Margins(NamedTuple):
    """Delays that cause no failed handshake."""

    copies: timedelta
    """The time after a write for which a client can still use the previous caBundle."""
    serving: timedelta
    """Delay until the controller renews the serving certificate and every replica reads it."""
    authority: timedelta
    """Delay until the controller creates a new authority, writes it into every caBundle, sees it
    there and uses it, and every replica reads the serving certificate."""


def margins(lifetimes):
    """The margins for these lifetimes."""
    serving = lifetimes.serving + backdating(lifetimes.serving)
    authority = lifetimes.authority + backdating(lifetimes.authority)
    return Margins(
        copies=lifetimes.publish,
        serving=serving / 3 - ROUNDING,
        authority=authority / 3 - ROUNDING - lifetimes.publish,
    )


def strict_client(authority: bytes | None = None, **options) -> ssl.SSLContext:
    """A client that trusts one authority only (none: verifies nothing), by Python 3.13's rules."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        context.load_verify_locations(cadata=authority.decode())
    for name, value in options.items():
        setattr(context, name, value)
    return context


def server_tls(authority, *names) -> ssl.SSLContext:
    """A server with a certificate of the authority (of trustme), by default for 127.0.0.1."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*(names or ("127.0.0.1",))).configure_cert(context)
    return context


def with_certificate(context: ssl.SSLContext, pair: bytes, directory: Path) -> ssl.SSLContext:
    """Return the context with a client certificate and key given as one PEM."""
    path = directory / "client.pem"
    path.write_bytes(pair)
    context.load_cert_chain(path)
    return context


def shake_hands(
    server: ssl.SSLContext, client: ssl.SSLContext, name: str | None = None
) -> ssl.SSLObject:
    """Complete a handshake in memory and return the client's side; raises what either side does."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = list(sides)
    for _ in range(20):
        for side in tuple(waiting):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(side)
        if not waiting:
            return sides[0]
    raise AssertionError("the handshake did not come to an end")


async def call_in_process(_kind, function, *arguments):
    """Do what ``certs.child`` does, for a virtual clock, which waits for no other process."""
    return resolve_name(f"harbourmaster.certs.{function}")(*arguments)
