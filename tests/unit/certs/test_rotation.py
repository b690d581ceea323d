"""What is renewed when: every row is one instant in the life of a pair."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from harbourmaster.certs.authority import create_authority, issue_serving_certificate
from harbourmaster.certs.bundle import BundleFiles, parse_bundle
from harbourmaster.certs.rotation import Keep, RenewAuthority, RenewServingCertificate, decide

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = ("::1", "hm.svc")
SECOND = timedelta(seconds=1)
BACK = timedelta(minutes=5)
LEAF_DUE = NOW - BACK + (timedelta(days=7) + BACK) * 2 / 3
AUTHORITY_DUE = NOW - BACK + (timedelta(days=365) + BACK) * 2 / 3


def files_at(now, names=NAMES, authority=None):
    authority = authority or create_authority(NOW)
    leaf = issue_serving_certificate(now, authority, names)
    return BundleFiles(
        ca_crt=authority.certificate,
        ca_key=authority.key,
        tls_crt=leaf.certificate,
        tls_key=leaf.key,
    )


@pytest.fixture(scope="module")
def files():
    return files_at(NOW)


@pytest.mark.parametrize("now", [NOW - BACK, NOW, LEAF_DUE - SECOND])
def test_a_pair_is_kept_for_two_thirds_of_its_life(files, now):
    assert decide(now, files, NAMES) == Keep(LEAF_DUE)


@pytest.mark.parametrize("now", [LEAF_DUE, NOW + timedelta(days=7), NOW + timedelta(days=100)])
def test_a_leaf_is_renewed_after_two_thirds_and_when_expired(files, now):
    assert isinstance(decide(now, files, NAMES), RenewServingCertificate)


@pytest.mark.parametrize("now", [AUTHORITY_DUE, NOW + timedelta(days=396)])
def test_an_authority_is_renewed_after_two_thirds_and_when_expired(files, now):
    assert isinstance(decide(now, files, NAMES), RenewAuthority)


def test_a_kept_leaf_ends_when_its_authority_is_due():
    late = AUTHORITY_DUE - timedelta(days=1)
    assert decide(late, files_at(late), NAMES) == Keep(AUTHORITY_DUE)


@pytest.mark.parametrize(
    "names", [("hm.svc",), ("hm.svc", "::1", "new.svc"), ("other.svc",)], ids=str
)
def test_other_names_renew_the_leaf_only(files, names):
    assert isinstance(decide(NOW, files, names), RenewServingCertificate)


@pytest.mark.parametrize(
    "names", [("hm.svc", "::1"), ("hm.svc", "0:0:0:0:0:0:0:1"), ("::1", "hm.svc", "hm.svc")]
)
def test_the_same_names_written_differently_are_kept(files, names):
    assert isinstance(decide(NOW, files, names), Keep)


@pytest.mark.parametrize(
    "change", [{"tls_crt": None}, {"tls_key": None}, {"tls_crt": b"x"}, {"tls_key": b"x"}]
)
def test_an_unusable_leaf_is_renewed(files, change):
    action = decide(NOW, msgspec.structs.replace(files, **change), NAMES)
    assert isinstance(action, RenewServingCertificate)


@pytest.mark.parametrize(
    "change", [{"ca_crt": None}, {"ca_key": None}, {"ca_crt": b"x"}, {"ca_key": b"x"}]
)
def test_an_unusable_authority_is_made_anew(files, change):
    action = decide(NOW, msgspec.structs.replace(files, **change), NAMES)
    assert isinstance(action, RenewAuthority)


def test_nothing_at_all_is_made_anew():
    assert decide(NOW, BundleFiles(), NAMES) == RenewAuthority("ca.crt is missing")


def test_a_leaf_of_another_authority_is_renewed(files):
    stranger = files_at(NOW)
    mixed = msgspec.structs.replace(files, tls_crt=stranger.tls_crt, tls_key=stranger.tls_key)
    assert isinstance(decide(NOW, mixed, NAMES), RenewServingCertificate)


def test_a_clock_far_behind_makes_everything_anew(files):
    assert isinstance(decide(NOW - timedelta(days=30), files, NAMES), RenewAuthority)


def test_a_renewal_is_kept_at_the_instant_of_its_making(files):
    authority = create_authority(NOW)
    renewed = files_at(LEAF_DUE, authority=authority)
    assert isinstance(decide(LEAF_DUE, renewed, NAMES), Keep)
    assert parse_bundle(renewed).not_after > parse_bundle(files).not_after
