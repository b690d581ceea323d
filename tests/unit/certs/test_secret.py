"""Authorities that clients must trust, and the time since when they know the next one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.certs.secret import authority_publication, read_authorities, trust_bundle
from helpers.certificates import foreign_authority, pem, strict_client

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def old():
    return create_authority(NOW - timedelta(days=300))


@pytest.fixture(scope="module")
def issuing():
    return create_authority(NOW)


@pytest.fixture(scope="module")
def upcoming():
    return create_authority(NOW + timedelta(days=1))


@pytest.fixture(scope="module")
def data(old, issuing, upcoming):
    return {
        "ca.crt": issuing.certificate + old.certificate,
        "next-ca.crt": upcoming.certificate,
        "next-ca.key": upcoming.key,
    }


def test_the_oldest_comes_first_whatever_the_secret_s_order(data, old, issuing, upcoming):
    expected = old.certificate + issuing.certificate + upcoming.certificate
    assert trust_bundle(data, NOW) == expected
    after = {"ca.crt": upcoming.certificate + issuing.certificate + old.certificate}
    assert trust_bundle(after, NOW) == expected


def test_each_authority_comes_once(issuing):
    data = {"ca.crt": issuing.certificate * 3, "next-ca.crt": issuing.certificate}
    assert trust_bundle(data, NOW) == issuing.certificate


def test_authorities_that_have_expired_are_left_out(data, old, issuing, upcoming):
    end = NOW + timedelta(days=65)
    assert old.certificate in trust_bundle(data, end - SECOND)
    assert trust_bundle(data, end) == issuing.certificate + upcoming.certificate


def test_only_certificates_of_authorities_come_in(issuing):
    leaf = issue_serving_certificate(NOW, issuing, ("hm.svc",))
    broken = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
    noise = (
        b"# text\n"
        + broken
        + issuing.key
        + leaf.certificate
        + issuing.certificate[:200]
        + b"\n\xff"
    )
    assert trust_bundle({"ca.crt": noise + issuing.certificate}, NOW) == issuing.certificate


@pytest.mark.parametrize("pem", [b"", b"\x00", b"-----BEGIN CERTIFICATE-----" * 99], ids=len)
def test_of_nothing_comes_nothing(pem):
    assert trust_bundle({"ca.crt": pem, "next-ca.crt": pem}, NOW) == b""
    assert trust_bundle({}, NOW) == b""


def test_oversized_certificates_are_skipped(issuing):
    assert read_authorities(issuing.certificate + bytes(2**20), NOW) == ()
    large = pem(foreign_authority(NOW, ballast=bytes(16 * 1024))[0])
    assert len(read_authorities(large + issuing.certificate, NOW)) == 1


def test_openssl_reads_every_certificate_of_a_bundle(data):
    assert len(strict_client(trust_bundle(data, NOW)).get_ca_certs()) == 3


def test_publication_begins_when_the_last_bundle_has_the_next_authority(data, issuing):
    whole = trust_bundle(data, NOW)
    later = NOW + timedelta(days=1)
    assert authority_publication(later, data, [whole, issuing.certificate], None) is None
    assert authority_publication(later, data, [whole, b""], None) is None
    assert authority_publication(later, data, [whole, whole], None) == later
    assert authority_publication(later + SECOND, data, [whole, whole], later) == later


def test_publication_ends_when_one_bundle_loses_it(data, issuing):
    whole = trust_bundle(data, NOW)
    assert authority_publication(NOW, data, [whole, issuing.certificate], NOW) is None


def test_a_publication_ahead_of_the_clock_or_before_the_making_begins_anew(data):
    whole = trust_bundle(data, NOW)
    later = NOW + timedelta(days=2)
    for since in (later + SECOND, NOW):
        assert authority_publication(later, data, [whole], since) == later


def test_without_a_next_authority_or_a_webhook_nothing_is_published(data, issuing):
    assert (
        authority_publication(NOW, {"ca.crt": issuing.certificate}, [issuing.certificate], NOW)
        is None
    )
    assert authority_publication(NOW, data, [], NOW) is None


def test_a_bundle_with_much_before_the_next_authority_has_it_too(data, upcoming):
    many = b"".join(create_authority(NOW).certificate for _ in range(10))
    later = NOW + timedelta(days=1)
    assert authority_publication(later, data, [many + upcoming.certificate], None) == later


def test_certificates_are_written_as_they_were_read(data):
    pem = trust_bundle(data, NOW)
    certificates = x509.load_pem_x509_certificates(pem)
    authorities = read_authorities(pem, NOW)
    assert pem == b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
    assert [authority.der for authority in authorities] == [
        certificate.public_bytes(Encoding.DER) for certificate in certificates
    ]
    assert [(authority.not_before, authority.not_after) for authority in authorities] == [
        (certificate.not_valid_before_utc, certificate.not_valid_after_utc)
        for certificate in certificates
    ]
