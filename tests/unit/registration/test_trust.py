from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509

from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.certs.child import parse_bundle
from harbourmaster.registration.trust import (
    RETAINED,
    Trust,
    bundle_of,
    carries,
    is_sound,
    required_authorities,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
FIRST, SECOND, THIRD = (create_authority(NOW + timedelta(days=day)) for day in range(3))
LATER = NOW + timedelta(days=3)


def certificates(*pairs):
    return {x509.load_pem_x509_certificate(pair.certificate) for pair in pairs}


def bundle_certificates(pem):
    return set(x509.load_pem_x509_certificates(pem)) if pem else set()


def data(authority, *older, now=NOW, **changes):
    leaf = issue_serving_certificate(now, authority, ["hm.svc"])
    secret_data = {
        "ca.crt": b"".join(pair.certificate for pair in (authority, *older)),
        "ca.key": authority.key,
        "tls.crt": leaf.certificate,
        "tls.key": leaf.key,
    }
    secret_data |= {key.replace("_", "."): value for key, value in changes.items()}
    return {key: value for key, value in secret_data.items() if value is not None}


@pytest.fixture
def trust():
    return Trust()


def test_nobody_is_trusted_without_a_secret(trust):
    trust.remember([FIRST.certificate], NOW)
    assert trust.bundle({}, NOW) == b""


def test_the_secret_says_whom_to_trust(trust):
    assert bundle_certificates(trust.bundle(data(FIRST), NOW)) == certificates(FIRST)
    assert bundle_certificates(trust.bundle(data(SECOND, FIRST), LATER)) == certificates(
        FIRST, SECOND
    )


def test_the_next_authority_is_trusted_too(trust):
    upcoming = {**data(FIRST), "next-ca.crt": SECOND.certificate, "next-ca.key": SECOND.key}
    assert bundle_certificates(trust.bundle(upcoming, LATER)) == certificates(FIRST, SECOND)


def test_the_same_authorities_always_give_the_same_bytes(trust):
    bundle = trust.bundle(data(THIRD, FIRST, SECOND), LATER)
    assert Trust().bundle(data(THIRD, SECOND, FIRST), LATER) == bundle


def test_what_is_lost_by_hand_is_trusted_for_a_while(trust):
    trust.bundle(data(FIRST), NOW)
    assert bundle_certificates(trust.bundle(data(SECOND), LATER)) == certificates(FIRST, SECOND)
    end = LATER + RETAINED
    assert bundle_certificates(
        trust.bundle(data(SECOND), end - timedelta(seconds=1))
    ) == certificates(FIRST, SECOND)
    assert bundle_certificates(trust.bundle(data(SECOND), end)) == certificates(SECOND)


def test_what_comes_back_is_lost_anew(trust):
    trust.bundle(data(FIRST), NOW)
    trust.bundle(data(SECOND), LATER)
    trust.bundle(data(SECOND, FIRST), LATER + RETAINED / 2)
    again = LATER + RETAINED
    assert bundle_certificates(trust.bundle(data(SECOND), again)) == certificates(FIRST, SECOND)


def test_what_expired_is_trusted_no_more(trust):
    trust.bundle(data(FIRST), NOW)
    soon = NOW + timedelta(days=365)
    assert bundle_certificates(
        trust.bundle(data(SECOND), soon + timedelta(seconds=1))
    ) == certificates(SECOND)


def test_bundles_found_at_the_start_are_trusted_for_a_while(trust):
    trust.remember([FIRST.certificate, b"garbage", b""], LATER)
    assert bundle_certificates(trust.bundle(data(SECOND), LATER)) == certificates(FIRST, SECOND)
    assert bundle_certificates(trust.bundle(data(SECOND), LATER + RETAINED)) == certificates(SECOND)


def test_an_announced_authority_is_trusted_ahead_of_time(trust):
    trust.announce(data(SECOND), LATER)
    assert bundle_certificates(trust.bundle(data(FIRST), LATER)) == certificates(FIRST, SECOND)
    assert bundle_certificates(trust.bundle({}, LATER)) == certificates(FIRST, SECOND)
    trust.announce(None, LATER)
    assert trust.bundle({}, LATER) == b""


async def test_sound_data_is_left_as_it_is(trust):
    trust.remember([SECOND.certificate], LATER)
    sound = data(FIRST)
    assert await trust.with_lost_authorities(sound, NOW, parse_bundle) is sound


@pytest.mark.parametrize("lost", [None, b"", b"garbage", SECOND.certificate])
async def test_a_lost_authority_is_put_back(trust, lost):
    trust.remember([FIRST.certificate], NOW)
    mended = await trust.with_lost_authorities(data(FIRST, ca_crt=lost), LATER, parse_bundle)
    assert certificates(FIRST) <= bundle_certificates(mended["ca.crt"])
    assert await is_sound(mended, LATER, parse_bundle) or lost == SECOND.certificate


async def test_data_is_not_mended_with_nothing(trust):
    damaged = data(FIRST, ca_crt=None)
    assert await trust.with_lost_authorities(damaged, NOW, parse_bundle) is damaged


@pytest.mark.parametrize("key", ["ca.crt", "tls.crt", "tls.key"])
async def test_data_without_a_key_is_not_sound(key):
    assert await is_sound(data(FIRST), NOW, parse_bundle)
    assert not await is_sound({k: v for k, v in data(FIRST).items() if k != key}, NOW, parse_bundle)


@pytest.mark.parametrize("now", [NOW - timedelta(days=1), NOW + timedelta(days=8)])
async def test_data_out_of_its_time_is_not_sound(now):
    assert not await is_sound(data(FIRST), now, parse_bundle)


def test_bundles_carry_all_or_not():
    wanted = required_authorities(data(SECOND, FIRST), LATER)
    both = FIRST.certificate + SECOND.certificate
    assert carries([both, SECOND.certificate + both], wanted, LATER)
    assert not carries([both, SECOND.certificate], wanted, LATER)
    assert carries([], wanted, LATER)


@pytest.mark.parametrize(
    "client", [None, {}, {"caBundle": None}, {"caBundle": "#"}, {"caBundle": "x"}]
)
def test_a_webhook_without_a_bundle_has_an_empty_one(client):
    assert bundle_of({"clientConfig": client}) == b""
