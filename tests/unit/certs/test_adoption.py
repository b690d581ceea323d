"""A Secret as kupid leaves it is taken over without a failed handshake (kupid-spec 6.7)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.model import BundleFiles, Lifetimes, Write
from harbourmaster.certs.overlap import decide
from harbourmaster.certs.reload import CertificateHolder
from harbourmaster.certs.secret import trust_bundle
from helpers.certificates import (
    KUPID_NAMES,
    NAME,
    accepts,
    first,
    is_trusted,
    kupid_data,
    same_leaf,
    shake_hands,
    strict_client,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = (NAME,)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
PUBLISH = Lifetimes().publish


def write(now, data, names=NAMES, since=None, **options):
    action = decide(now, data, names, since, **options)
    assert isinstance(action, Write), action
    return action


@pytest.fixture(scope="module")
def kupid():
    return kupid_data(NOW)


def test_kupid_s_secret_issues_a_leaf_for_our_names_and_gets_a_next_authority(kupid):
    data = write(NOW, kupid).data
    assert first(data) == first(kupid)
    assert "next-ca.crt" in data
    assert is_trusted(data, NOW)
    leaf_key = first(data, "tls.crt").public_key()
    assert isinstance(leaf_key, ec.EllipticCurvePublicKey)


def test_kupid_s_leaf_is_served_until_the_next_authority_is_known(kupid):
    name = KUPID_NAMES[2]
    data = write(NOW, kupid, (name,)).data
    assert same_leaf(data, kupid)
    since = NOW + SECOND
    after = write(since + PUBLISH, data, (name,), since).data
    assert is_trusted(after, since + PUBLISH, name)
    assert accepts(trust_bundle(after, since), kupid["tls.crt"], name, since + PUBLISH)
    assert kupid["ca.key"] not in after.values()


def test_kupid_s_ten_years_end_with_the_rotation_after_that(kupid):
    data = write(NOW, kupid).data
    data = write(NOW + PUBLISH, data, since=NOW).data
    assert first(kupid) in x509.load_pem_x509_certificates(data["ca.crt"])
    due = NOW + timedelta(days=244)
    data = write(due, data).data
    data = write(due + PUBLISH, data, since=due).data
    assert first(kupid) not in x509.load_pem_x509_certificates(data["ca.crt"])


def test_an_rsa_key_too_short_is_a_lost_key(kupid, monkeypatch):
    monkeypatch.setattr("harbourmaster.certs.authority._MIN_RSA_BITS", 3072)
    data = write(NOW, kupid, (KUPID_NAMES[0],)).data
    assert same_leaf(data, kupid)
    assert "next-ca.crt" in data


def test_a_strict_openssl_client_goes_through_an_adoption():
    now = datetime.now(UTC)
    lifetimes = Lifetimes(publish=timedelta(0))
    data = kupid_data(now - DAY)
    clients, holders = [], []
    for _ in range(2):
        data = write(now, data, since=now, lifetimes=lifetimes).data
        clients.append(strict_client(trust_bundle(data, now)))
        files = BundleFiles(ca_crt=data["ca.crt"], tls_crt=data["tls.crt"], tls_key=data["tls.key"])
        holders.append(CertificateHolder(parse_bundle(files)))
    assert len(holders) == len(clients) == 2
    for holder in holders:
        for client in clients:
            peer = shake_hands(holder.context, client, NAME).getpeercert(binary_form=True)
            assert peer == holder.bundle.serving_der
