"""Certificates of the authority, checked by verifiers that are not ours."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

from harbourmaster.certs.authority import (
    BACKDATED,
    KeyPair,
    backdating,
    create_authority,
    issue_serving_certificate,
)
from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.errors import UnreadableError
from harbourmaster.certs.reload import CertificateHolder
from helpers.certificates import (
    foreign_authority,
    own_files,
    pem,
    rsa_key,
    shake_hands,
    strict_client,
)

NOW = datetime.now(UTC).replace(microsecond=0)
NAMES = ("hm.svc", "localhost", "127.0.0.1", "::1")


def create_pair(names=NAMES):
    authority = create_authority(NOW)
    return authority, issue_serving_certificate(NOW, authority, names)


def parse(pair):
    return x509.load_pem_x509_certificate(pair.certificate)


def verifier(authority, name):
    store = Store([parse(authority)])
    return PolicyBuilder().store(store).time(NOW).build_server_verifier(name)


@pytest.mark.parametrize(
    "name", [x509.DNSName("hm.svc"), x509.IPAddress(ip_address("127.0.0.1"))], ids=str
)
def test_a_leaf_passes_the_web_profile_for_its_names(name):
    authority, leaf = create_pair()
    chain = verifier(authority, name).verify(parse(leaf), [])
    assert chain == [parse(leaf), parse(authority)]


def test_a_leaf_passes_for_no_other_name_and_no_other_authority():
    authority, leaf = create_pair()
    for trusted, name in ((authority, "other.svc"), (create_authority(NOW), "hm.svc")):
        with pytest.raises(VerificationError):
            verifier(trusted, x509.DNSName(name)).verify(parse(leaf), [])


AUTHORITIES = {
    "ours": lambda: create_authority(NOW, NAMES),
    "RSA": lambda: KeyPair(*map(pem, foreign_authority(NOW, rsa_key()))),
}


@pytest.mark.parametrize("make", AUTHORITIES.values(), ids=AUTHORITIES)
@pytest.mark.parametrize("name", ["hm.svc", "127.0.0.1", "::1"])
def test_a_strict_openssl_client_accepts_the_serving_certificate(make, name):
    files = own_files(NOW, NAMES, make())
    holder = CertificateHolder(parse_bundle(files))
    client = shake_hands(holder.context, strict_client(files.ca_crt), name)
    assert client.getpeercert(binary_form=True) == holder.bundle.serving_der


def test_keys_are_of_the_curve_p256():
    keys = [parse(pair).public_key() for pair in create_pair()]
    assert [type(key).__name__ for key in keys] == ["ECPublicKey"] * 2
    assert [key.curve.name for key in keys] == ["secp256r1"] * 2


def test_lives_are_a_year_and_a_week_and_begin_a_little_earlier():
    spans = [
        (parse(pair).not_valid_before_utc - NOW, parse(pair).not_valid_after_utc - NOW)
        for pair in create_pair()
    ]
    assert spans == [(-BACKDATED, timedelta(days=365)), (-BACKDATED, timedelta(days=7))]


def test_a_leaf_never_outlives_its_authority():
    authority = create_authority(NOW, lifetime=timedelta(days=2))
    leaf = parse(issue_serving_certificate(NOW, authority, NAMES))
    assert leaf.not_valid_after_utc == parse(authority).not_valid_after_utc


def test_an_authority_may_not_sign_another_one():
    authority, _ = create_pair()
    constraints = parse(authority).extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert constraints.value == x509.BasicConstraints(ca=True, path_length=0)


@pytest.mark.claim("W12")
@pytest.mark.parametrize(
    ("limits", "name", "is_accepted"),
    [
        (("hm.svc",), "hm.svc", True),
        (("hm.svc",), "other.svc", False),
        (("hm.svc",), "kubernetes.default.svc", False),
        (("hm.svc",), "localhost", False),
        (("hm.svc",), "127.0.0.1", False),
        (("hm.svc",), "::1", False),
        (NAMES, "127.0.0.1", True),
        (NAMES, "::1", True),
        (NAMES, "127.0.0.2", False),
        (NAMES, "example.com", False),
    ],
)
def test_an_authority_certifies_its_names_only(limits, name, is_accepted):
    files = own_files(NOW, (name, limits[0]), create_authority(NOW, limits))
    (extensions,) = [
        extension
        for extension in x509.load_pem_x509_certificate(files.ca_crt).extensions
        if isinstance(extension.value, x509.NameConstraints)
    ]
    assert extensions.critical
    holder = CertificateHolder(parse_bundle(files))
    client = strict_client(files.ca_crt)
    if is_accepted:
        shake_hands(holder.context, client, name)
    else:
        with pytest.raises(ssl.SSLCertVerificationError, match="subtree"):
            shake_hands(holder.context, client, name)


def test_a_name_too_long_for_a_subject_is_still_a_name_of_the_leaf():
    long_name = ".".join(["a" * 60, "b" * 60])
    _, leaf = create_pair((long_name,))
    names = parse(leaf).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert names.value.get_values_for_type(x509.DNSName) == [long_name]


def test_two_of_a_kind_differ():
    first, second = create_authority(NOW), create_authority(NOW)
    assert first.key != second.key
    assert parse(first).serial_number != parse(second).serial_number


def test_the_text_of_a_pair_shows_nothing():
    assert repr(create_authority(NOW)) == "KeyPair(...)"


def test_a_key_that_clients_may_not_know_signs_nothing():
    key = ed25519.Ed25519PrivateKey.generate()
    encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    with pytest.raises(UnreadableError, match=r"ca\.key is neither ECDSA nor RSA"):
        issue_serving_certificate(NOW, KeyPair(create_authority(NOW).certificate, encoded), NAMES)


@pytest.mark.parametrize(
    ("lifetime", "before"),
    [
        (timedelta(days=7), BACKDATED),
        (timedelta(minutes=50), BACKDATED),
        (timedelta(seconds=20), timedelta(seconds=2)),
    ],
)
def test_short_lives_begin_a_tenth_earlier(lifetime, before):
    assert backdating(lifetime) == before
    leaf = parse(issue_serving_certificate(NOW, create_authority(NOW), NAMES, lifetime=lifetime))
    assert leaf.not_valid_before_utc == NOW - before
