"""Decisions about renewals: every row is one instant in the life of a pair."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.certs.authority import create_authority
from harbourmaster.certs.bundle import parse_bundle
from harbourmaster.certs.model import BundleFiles, Keep
from harbourmaster.certs.store import RenewAuthority, RenewServingCertificate, decide
from helpers.certificates import own_files

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = ("::1", "hm.svc")
SECOND = timedelta(seconds=1)
BACK = timedelta(minutes=5)
SERVING_DUE = NOW - BACK + (timedelta(days=7) + BACK) * 2 / 3
AUTHORITY_DUE = NOW - BACK + (timedelta(days=365) + BACK) * 2 / 3


@pytest.fixture(scope="module")
def files():
    return own_files(NOW, NAMES)


@pytest.mark.parametrize("now", [NOW - BACK, NOW, SERVING_DUE - SECOND])
def test_a_pair_is_kept_for_two_thirds_of_its_life(files, now):
    assert decide(now, files, NAMES) == Keep(SERVING_DUE)


@pytest.mark.parametrize(
    ("now", "action"),
    [
        (SERVING_DUE, RenewServingCertificate),
        (NOW + timedelta(days=7), RenewServingCertificate),
        (NOW + timedelta(days=100), RenewServingCertificate),
        (AUTHORITY_DUE, RenewAuthority),
        (NOW + timedelta(days=396), RenewAuthority),
        # A clock that is far behind.
        (NOW - timedelta(days=30), RenewAuthority),
    ],
    ids=str,
)
def test_each_certificate_is_renewed_after_two_thirds_and_when_it_is_not_valid(files, now, action):
    assert isinstance(decide(now, files, NAMES), action)


def test_a_kept_leaf_ends_when_its_authority_is_due():
    late = AUTHORITY_DUE - timedelta(days=1)
    assert decide(late, own_files(late, NAMES, create_authority(NOW)), NAMES) == Keep(AUTHORITY_DUE)


@pytest.mark.parametrize(
    ("names", "action"),
    [
        (("hm.svc",), RenewServingCertificate),
        (("hm.svc", "::1", "new.svc"), RenewServingCertificate),
        (("other.svc",), RenewServingCertificate),
        (("hm.svc", "::1"), Keep),
        (("hm.svc", "0:0:0:0:0:0:0:1"), Keep),
        (("::1", "hm.svc", "hm.svc"), Keep),
    ],
    ids=str,
)
def test_other_names_renew_the_serving_certificate_and_other_spellings_do_not(files, names, action):
    assert isinstance(decide(NOW, files, names), action)


@pytest.mark.parametrize("content", [None, b"x"])
@pytest.mark.parametrize(
    ("file", "action"),
    [
        ("tls_crt", RenewServingCertificate),
        ("tls_key", RenewServingCertificate),
        ("ca_crt", RenewAuthority),
        ("ca_key", RenewAuthority),
    ],
)
def test_an_unusable_file_is_replaced(files, file, content, action):
    decision = decide(NOW, msgspec.structs.replace(files, **{file: content}), NAMES)
    assert isinstance(decision, action)


def test_missing_files_are_created():
    assert decide(NOW, BundleFiles(), NAMES) == RenewAuthority("ca.crt is missing")


def test_a_leaf_of_another_authority_is_renewed(files):
    stranger = own_files(NOW, NAMES)
    mixed = msgspec.structs.replace(files, tls_crt=stranger.tls_crt, tls_key=stranger.tls_key)
    assert isinstance(decide(NOW, mixed, NAMES), RenewServingCertificate)


def test_a_renewal_is_kept_at_the_instant_of_its_making(files):
    renewed = own_files(SERVING_DUE, NAMES, create_authority(NOW))
    assert isinstance(decide(SERVING_DUE, renewed, NAMES), Keep)
    assert parse_bundle(renewed).not_after > parse_bundle(files).not_after
