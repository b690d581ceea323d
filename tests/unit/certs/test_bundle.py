"""Each fault of a bundle is an error of its own, in one line."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from harbourmaster.certs.bundle import check_authority, check_issuer, is_authority, parse_bundle
from harbourmaster.certs.errors import (
    ChainError,
    KeyMismatchError,
    MissingNamesError,
    UnreadableError,
    ValidityError,
)
from harbourmaster.certs.model import BundleFiles, verify_bundle
from helpers.certificates import own_files

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = ("hm.svc", "127.0.0.1")


@pytest.fixture(scope="module")
def files():
    return own_files(NOW, NAMES)


@pytest.fixture(scope="module")
def foreign():
    """The files of another authority of the same name."""
    return own_files(NOW, NAMES)


def test_a_good_bundle_is_known_by_its_leaf(files):
    bundle = parse_bundle(files)
    certificate = x509.load_pem_x509_certificate(files.tls_crt)
    assert bundle.serving_der == certificate.public_bytes(serialization.Encoding.DER)
    assert bundle.names == set(NAMES)
    assert bundle.not_after == NOW + timedelta(days=7)
    assert bundle.authority_not_after == NOW + timedelta(days=365)


def test_a_bundle_without_an_authority_is_good_too(files):
    bundle = parse_bundle(BundleFiles(tls_crt=files.tls_crt, tls_key=files.tls_key))
    assert bundle.authority_not_after is None


def test_a_chain_with_an_intermediate_leads_to_its_root():
    root = trustme.CA()
    intermediate = root.create_child_ca()
    issued = intermediate.issue_cert("hm.svc")
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    bundle = parse_bundle(
        BundleFiles(
            ca_crt=root.cert_pem.bytes(), tls_crt=chain, tls_key=issued.private_key_pem.bytes()
        )
    )
    assert bundle.names == {"hm.svc"}


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"tls_crt": None}, UnreadableError, "tls.crt is missing"),
        ({"tls_key": None}, UnreadableError, "tls.key is missing"),
        ({"tls_crt": b""}, UnreadableError, "tls.crt holds no certificate in PEM form"),
        ({"tls_crt": b"\xff\x00"}, UnreadableError, "tls.crt holds no certificate in PEM form"),
        ({"ca_crt": b"x"}, UnreadableError, "ca.crt holds no certificate in PEM form"),
        (
            {"tls_key": b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"},
            UnreadableError,
            "tls.key holds no unencrypted private key in PEM form",
        ),
    ],
)
def test_an_unreadable_file_is_named(files, change, error, text):
    with pytest.raises(error) as caught:
        parse_bundle(msgspec.structs.replace(files, **change))
    assert str(caught.value) == text


def test_half_a_certificate_can_t_be_read(files):
    half = files.tls_crt[: len(files.tls_crt) // 2]
    with pytest.raises(UnreadableError, match=r"tls\.crt holds no certificate"):
        parse_bundle(msgspec.structs.replace(files, tls_crt=half))


def test_an_encrypted_key_can_t_be_read(files):
    key = serialization.load_pem_private_key(files.tls_key, None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    with pytest.raises(UnreadableError, match="no unencrypted private key"):
        parse_bundle(msgspec.structs.replace(files, tls_key=encrypted))


@pytest.mark.parametrize(
    ("taken", "absent", "error", "text"),
    [
        ("tls_key", {}, KeyMismatchError, "tls.key is not the key of tls.crt"),
        ("ca_key", {}, KeyMismatchError, "ca.key is not the key of ca.crt"),
        ("ca_crt", {"ca_key": None}, ChainError, "tls.crt was not issued by ca.crt"),
    ],
)
def test_a_file_of_another_bundle_is_named(files, foreign, taken, absent, error, text):
    mixed = msgspec.structs.replace(files, **{taken: getattr(foreign, taken), **absent})
    with pytest.raises(error) as caught:
        parse_bundle(mixed)
    assert str(caught.value) == text


def test_a_certificate_with_broken_extensions_can_t_be_read(files):
    # The key's bit string of the key usage extension becomes an integer; nothing else changes.
    der = x509.load_pem_x509_certificate(files.tls_crt).public_bytes(serialization.Encoding.DER)
    usage = bytes.fromhex("0603551d0f0101ff0404")
    assert der.count(usage + b"\x03") == 1
    broken = b64encode(der.replace(usage + b"\x03", usage + b"\x02"))
    pem = b"-----BEGIN CERTIFICATE-----\n" + broken + b"\n-----END CERTIFICATE-----\n"
    with pytest.raises(UnreadableError, match=r"tls\.crt holds no certificate"):
        parse_bundle(msgspec.structs.replace(files, tls_crt=pem))


def test_a_certificate_that_may_not_sign_is_no_authority(files):
    key = serialization.load_pem_private_key(files.ca_key, None)
    original = x509.load_pem_x509_certificate(files.ca_crt)
    usage = original.extensions.get_extension_for_class(x509.KeyUsage).value
    fields = {name.lstrip("_"): value for name, value in vars(usage).items()}
    builder = (
        x509.CertificateBuilder()
        .subject_name(original.subject)
        .issuer_name(original.issuer)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    )
    assert is_authority(builder.sign(key, hashes.SHA256()))
    forbidden = x509.KeyUsage(**{**fields, "key_cert_sign": False})
    assert not is_authority(
        builder.add_extension(forbidden, critical=True).sign(key, hashes.SHA256())
    )


def test_a_leaf_of_an_older_authority_in_ca_crt_is_good(files, foreign):
    bundle = parse_bundle(
        msgspec.structs.replace(files, ca_crt=foreign.ca_crt + files.ca_crt, ca_key=None)
    )
    assert bundle.authority_not_after == NOW + timedelta(days=365)


def test_an_authority_under_another_name_is_named_so(files, foreign):
    certificate = x509.load_pem_x509_certificate(files.ca_crt)
    key = serialization.load_pem_private_key(foreign.ca_key, None)
    with pytest.raises(KeyMismatchError, match=r"^next-ca\.key is not the key of next-ca\.crt$"):
        check_issuer(certificate, key, NOW, ("next-ca.crt", "next-ca.key"))


def test_a_leaf_can_t_issue(files):
    with pytest.raises(ChainError, match="not a certificate authority"):
        check_authority(BundleFiles(ca_crt=files.tls_crt, ca_key=files.tls_key), NOW)


@pytest.mark.parametrize(
    ("now", "text"),
    [
        (NOW + timedelta(days=7), "tls.crt expired at 2026-03-08T00:00:00+00:00"),
        (NOW - timedelta(minutes=6), "tls.crt is not valid before 2026-02-28T23:55:00+00:00"),
    ],
)
def test_a_bundle_outside_its_window_is_invalid(files, now, text):
    with pytest.raises(ValidityError) as caught:
        verify_bundle(parse_bundle(files), now)
    assert str(caught.value) == text


def test_an_expired_authority_makes_the_bundle_invalid(files):
    bundle = msgspec.structs.replace(parse_bundle(files), authority_not_after=NOW)
    with pytest.raises(ValidityError, match=r"ca\.crt expired"):
        verify_bundle(bundle, NOW)


def test_a_name_that_the_leaf_is_not_for_is_named(files):
    with pytest.raises(MissingNamesError) as caught:
        verify_bundle(parse_bundle(files), NOW, ("hm.svc", "new.svc"))
    assert str(caught.value) == "tls.crt is not for new.svc; it is for 127.0.0.1, hm.svc"


def test_s3_the_text_of_a_bundle_shows_no_contents(files):
    bundle = parse_bundle(files)
    secrets = files.tls_key.decode().splitlines()[1:-1]
    shown = f"{files!r} {bundle!r} {bundle.files}"
    assert not any(line in shown for line in secrets)
    assert repr(files) == "BundleFiles(ca_crt, ca_key, tls_crt, tls_key)"
