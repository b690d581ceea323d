"""Decisions about the shared Secret: every test is one instant in its life."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from harbourmaster.certs.authority import BACKDATED, create_authority, issue_serving_certificate
from harbourmaster.certs.bundle import parse_bundle, permitted_names
from harbourmaster.certs.errors import MissingNamesError
from harbourmaster.certs.model import Await, BundleFiles, Keep, Lifetimes, Write
from harbourmaster.certs.overlap import decide
from harbourmaster.certs.secret import trust_bundle
from helpers.certificates import (
    NAME,
    accepts,
    first,
    foreign_authority,
    foreign_leaf,
    is_trusted,
    margins,
    pem,
    same_leaf,
)

NOW = datetime(2026, 3, 1, tzinfo=UTC)
NAMES = (NAME,)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)
PUBLISH = Lifetimes().publish
LEAF_DUE = NOW - BACKDATED + (timedelta(days=7) + BACKDATED) * 2 / 3
AUTHORITY_DUE = NOW - BACKDATED + (timedelta(days=365) + BACKDATED) * 2 / 3
AUTHORITY_END = NOW + timedelta(days=365)


def write(now, data, names=NAMES, since=None, **options):
    action = decide(now, data, names, since, **options)
    assert isinstance(action, Write), action
    assert action.until > now
    # One write is enough: the next look finds nothing more to do.
    assert not isinstance(decide(now, action.data, names, **options), Write)
    return action


def without(data, *keys):
    return {key: value for key, value in data.items() if key not in keys}


@pytest.fixture(scope="module")
def fresh():
    return write(NOW, {}).data


@pytest.fixture(scope="module")
def rotating(fresh):
    """The data when its authority was due and a next one was made; the leaf is a new one too."""
    return write(AUTHORITY_DUE, fresh).data


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"ca.crt": b"", "ca.key": b"", "tls.crt": b"", "tls.key": b""},
        {"ca.crt": b"\xff" * 9, "ca.key": b"x", "tls.crt": b"-----BEGIN CERTIFICATE-----"},
    ],
    ids=["absent", "empty", "garbage"],
)
def test_without_any_trust_all_is_made_at_once(data):
    action = write(NOW, data)
    assert sorted(action.data) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    assert is_trusted(action.data, NOW)
    assert action.until == LEAF_DUE


def test_a_fresh_secret_is_kept_until_its_leaf_is_due(fresh):
    assert decide(NOW, fresh, NAMES) == Keep(LEAF_DUE)
    assert decide(LEAF_DUE - SECOND, fresh, NAMES) == Keep(LEAF_DUE)


def test_a_due_leaf_is_renewed_by_the_same_authority(fresh):
    action = write(LEAF_DUE, fresh)
    assert action.reason == f"tls.crt is due for renewal since {LEAF_DUE.isoformat()}"
    assert first(action.data) == first(fresh)
    assert not same_leaf(action.data, fresh)
    assert is_trusted(action.data, LEAF_DUE)


@pytest.mark.parametrize("names", [(NAME, "new.svc"), ("new.svc",)], ids=str)
def test_names_that_are_permitted_renew_the_leaf(names):
    both = write(NOW, {}, permitted=(NAME, "new.svc")).data
    data = write(NOW, both, names).data
    assert first(data) == first(both)
    assert all(is_trusted(data, NOW, name) for name in names)


@pytest.mark.claim("W12")
def test_a_name_that_is_not_permitted_needs_a_new_authority_which_is_published_first(fresh):
    names = (NAME, "new.svc")
    data = write(NOW, fresh, names).data
    assert same_leaf(data, fresh)
    assert is_trusted(data, NOW)
    after = write(NOW + PUBLISH, data, names, NOW).data
    assert all(is_trusted(after, NOW + PUBLISH, name) for name in names)
    # Who still has the leaf of before is trusted, too.
    assert accepts(trust_bundle(after, NOW + PUBLISH), fresh["tls.crt"], NAME, NOW + PUBLISH)
    alone = write(NOW, fresh, ("new.svc",)).data
    assert is_trusted(alone, NOW, "new.svc")


@pytest.mark.claim("W12")
def test_an_authority_without_limits_is_replaced_after_its_successor_is_published():
    authority = create_authority(NOW)
    leaf = issue_serving_certificate(NOW, authority, NAMES)
    old = dict(
        zip(
            ("ca.crt", "ca.key", "tls.crt", "tls.key"),
            (authority.certificate, authority.key, leaf.certificate, leaf.key),
            strict=True,
        )
    )
    action = write(NOW, old)
    assert action.reason == "ca.crt is not limited to our names: a new authority is published"
    assert same_leaf(action.data, old)
    after = write(NOW + PUBLISH, action.data, since=NOW).data
    assert permitted_names(first(after)) == {NAME}
    assert authority.key not in after.values()
    assert is_trusted(after, NOW + PUBLISH)
    assert accepts(trust_bundle(after, NOW + PUBLISH), old["tls.crt"], NAME, NOW + PUBLISH)


def test_names_no_longer_wanted_leave_the_leaf(fresh):
    more = write(NOW, {}, (NAME, "old.svc")).data
    assert "more names" in write(NOW, more).reason


@pytest.mark.parametrize(
    "change",
    [{"tls.crt": b""}, {"tls.key": b"x"}, {"tls.crt": b"x" * 2**20}],
    ids=["empty", "no key", "huge"],
)
def test_a_broken_pair_is_renewed_by_the_same_authority(fresh, change):
    data = write(NOW, {**fresh, **change}).data
    assert first(data) == first(fresh)
    assert is_trusted(data, NOW)


def test_a_pair_of_two_halves_is_renewed(fresh):
    renewed = write(LEAF_DUE, fresh).data
    data = write(LEAF_DUE, {**fresh, "tls.crt": renewed["tls.crt"]}).data
    assert parse_bundle(BundleFiles(tls_crt=data["tls.crt"], tls_key=data["tls.key"]))


def test_a_leaf_for_clients_is_renewed():
    authority = foreign_authority(NOW, lifetime=timedelta(days=300))
    usage = ExtendedKeyUsageOID.CLIENT_AUTH
    leaf = foreign_leaf(NOW, authority, NAMES, lifetime=timedelta(days=7), usage=usage)
    keys = ("ca.crt", "ca.key", "tls.crt", "tls.key")
    data = dict(zip(keys, map(pem, (*authority, *leaf)), strict=True))
    assert write(NOW, data).reason.startswith("tls.crt is not a server certificate; ")


def test_a_leaf_that_ends_with_its_authority_is_not_renewed(fresh):
    late = AUTHORITY_END - DAY
    data = write(late, fresh).data
    assert first(data, "tls.crt").not_valid_after_utc == AUTHORITY_END
    last = AUTHORITY_END - SECOND
    assert decide(last, data, NAMES) == Await(AUTHORITY_END)


def test_a_due_authority_gets_a_next_one_while_the_old_leaf_is_served(fresh, rotating):
    assert first(rotating) == first(fresh)
    assert first(rotating, "next-ca.crt") != first(fresh)
    assert is_trusted(rotating, AUTHORITY_DUE)
    assert trust_bundle(rotating, AUTHORITY_DUE).count(b"BEGIN") == 2


def test_the_next_authority_waits_until_it_is_known(rotating):
    since = AUTHORITY_DUE + DAY
    assert isinstance(decide(since, rotating, NAMES), Await)
    assert decide(since, rotating, NAMES, since) == Await(since + PUBLISH)
    last = since + PUBLISH - SECOND
    assert decide(last, rotating, NAMES, since) == Await(since + PUBLISH)


def test_a_known_authority_takes_over(fresh, rotating):
    now = AUTHORITY_DUE + PUBLISH
    data = write(now, rotating, since=AUTHORITY_DUE).data
    assert sorted(data) == ["ca.crt", "ca.key", "tls.crt", "tls.key"]
    authorities = x509.load_pem_x509_certificates(data["ca.crt"])
    assert authorities == [first(rotating, "next-ca.crt"), first(fresh)]
    assert data["ca.key"] == rotating["next-ca.key"]
    # Both leaves are good for whoever has the caBundle of before or after.
    assert trust_bundle(data, now) == trust_bundle(rotating, now)
    assert is_trusted(data, now)
    assert accepts(trust_bundle(data, now), rotating["tls.crt"], NAME, now)


def test_no_key_of_before_is_left_after_that(fresh, rotating):
    data = write(AUTHORITY_DUE + PUBLISH, rotating, since=AUTHORITY_DUE).data
    assert fresh["ca.key"] not in data.values()


@pytest.mark.parametrize(
    "since", [AUTHORITY_DUE - DAY, AUTHORITY_DUE + DAY, datetime.max.replace(tzinfo=UTC)], ids=str
)
def test_an_impossible_time_is_no_publication(rotating, since):
    assert isinstance(decide(AUTHORITY_DUE + PUBLISH, rotating, NAMES, since), Await)


def test_an_old_authority_is_dropped_when_it_has_expired(rotating):
    data = write(AUTHORITY_DUE + PUBLISH, rotating, since=AUTHORITY_DUE).data
    renewed = write(AUTHORITY_END - DAY, data).data
    assert trust_bundle(renewed, AUTHORITY_END - SECOND).count(b"BEGIN") == 2
    assert decide(AUTHORITY_END - DAY, renewed, NAMES) == Keep(AUTHORITY_END)
    assert trust_bundle(renewed, AUTHORITY_END).count(b"BEGIN") == 1
    assert write(AUTHORITY_END, renewed).data["ca.crt"].count(b"BEGIN") == 1


def test_a_due_leaf_is_renewed_while_the_next_authority_waits(rotating):
    now = AUTHORITY_DUE + timedelta(days=5)
    data = write(now, rotating).data
    assert without(data, "tls.crt", "tls.key") == without(rotating, "tls.crt", "tls.key")
    assert is_trusted(data, now)


def test_more_names_are_no_reason_to_renew_while_the_next_authority_waits(rotating):
    wide = write(AUTHORITY_DUE, rotating, (NAME, "old.svc")).data
    assert isinstance(decide(AUTHORITY_DUE, wide, NAMES), Await)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: without(data, "next-ca.key"),
        lambda data: without(data, "next-ca.crt"),
        lambda data: {**data, "next-ca.crt": data["next-ca.crt"][:200]},
        lambda data: {**data, "next-ca.key": data["ca.key"]},
        lambda data: {**data, "next-ca.crt": data["tls.crt"], "next-ca.key": data["tls.key"]},
    ],
    ids=["no key", "no certificate", "half", "another key", "no authority"],
)
def test_a_broken_next_authority_is_replaced(rotating, spoil):
    now = AUTHORITY_DUE + PUBLISH
    action = write(now, spoil(rotating), since=AUTHORITY_DUE)
    assert first(action.data, "next-ca.crt") != first(rotating, "next-ca.crt")
    assert same_leaf(action.data, rotating)


def test_a_next_authority_that_is_due_is_replaced(rotating):
    # Its own two thirds are over only when the issuing one is long gone, so that one is younger.
    issuing = write(NOW + timedelta(days=400), {}).data
    data = {key: rotating[key] for key in ("next-ca.crt", "next-ca.key")} | issuing
    now = AUTHORITY_DUE + timedelta(days=244)
    action = write(now, data, since=AUTHORITY_DUE)
    assert "next-ca.crt is due for renewal" in action.reason
    assert first(action.data, "next-ca.crt") != first(data, "next-ca.crt")


def test_an_empty_next_authority_asks_for_one(fresh):
    action = write(NOW, {**fresh, "next-ca.crt": b""})
    assert action.data["next-ca.key"]
    assert same_leaf(action.data, fresh)


@pytest.mark.parametrize("key", [None, b"", b"x", "other"])
def test_a_lost_key_starts_a_next_authority_and_the_leaf_is_served_on(fresh, key):
    lost = without(fresh, "ca.key")
    if key is not None:
        lost["ca.key"] = create_authority(NOW).key if key == "other" else key
    data = write(NOW, lost).data
    assert "next-ca.crt" in data
    assert same_leaf(data, fresh)
    after = write(NOW + PUBLISH, data, since=NOW).data
    assert is_trusted(after, NOW + PUBLISH)
    assert after["ca.crt"].count(b"BEGIN") == 2


def test_a_leaf_for_some_of_the_names_is_served_on_without_the_key(fresh):
    data = write(NOW, without(fresh, "ca.key"), (NAME, "new.svc")).data
    assert same_leaf(data, fresh)
    assert is_trusted(write(NOW, without(fresh, "ca.key"), ("new.svc",)).data, NOW, "new.svc")


def test_a_lost_key_and_a_lost_leaf_are_replaced_at_once(fresh):
    data = write(NOW, without(fresh, "ca.key", "tls.key")).data
    assert is_trusted(data, NOW)
    # Replicas may still have the leaf in memory.
    assert accepts(trust_bundle(data, NOW), fresh["tls.crt"], NAME, NOW)


def test_a_next_authority_is_used_at_once_where_nothing_else_is_left(rotating):
    now = AUTHORITY_DUE
    data = write(now, without(rotating, "ca.key", "tls.crt")).data
    assert first(data) == first(rotating, "next-ca.crt")
    assert "next-ca.crt" not in data


def test_expired_certificates_are_replaced_and_no_longer_trusted(fresh):
    now = NOW + timedelta(days=396)
    data = write(now, fresh).data
    assert data["ca.crt"].count(b"BEGIN") == 1
    assert first(data) != first(fresh)
    assert is_trusted(data, now)


def test_a_clock_far_behind_changes_nothing_before_the_new_authority_is_known(fresh):
    early = NOW - timedelta(days=396)
    data = write(early, fresh).data
    assert same_leaf(data, fresh)
    after = write(early + PUBLISH, data, since=early).data
    assert is_trusted(after, early + PUBLISH)
    assert first(fresh) in x509.load_pem_x509_certificates(after["ca.crt"])


def test_a_clock_somewhat_behind_gets_a_leaf_of_the_same_authority(fresh):
    renewed = write(LEAF_DUE, fresh).data
    data = write(LEAF_DUE - DAY, renewed).data
    assert first(data) == first(fresh)
    assert is_trusted(data, LEAF_DUE - DAY)


def test_certificates_of_no_authority_are_removed_from_ca_crt(fresh):
    untidy = b"# ours\n" + fresh["tls.crt"] + fresh["ca.crt"] * 2 + fresh["ca.crt"][:100]
    data = write(NOW, {**fresh, "ca.crt": untidy}).data
    assert data == fresh


def test_the_issuing_authority_is_put_first(fresh):
    older = create_authority(NOW).certificate
    data = write(NOW, {**fresh, "ca.crt": older + fresh["ca.crt"]}).data
    assert data == {**fresh, "ca.crt": fresh["ca.crt"] + older}


def test_an_authority_put_first_by_hand_must_be_known_before_it_issues(fresh):
    authority = create_authority(NOW)
    ca_crt = authority.certificate + fresh["ca.crt"]
    data = write(NOW, {**fresh, "ca.crt": ca_crt, "ca.key": authority.key}).data
    assert same_leaf(data, fresh)
    assert "next-ca.crt" in data


def test_a_leaf_that_the_next_authority_has_issued_already_is_served_on(fresh):
    created = write(NOW, {}).data
    early = {**created, "ca.crt": fresh["ca.crt"], "ca.key": fresh["ca.key"]}
    early |= {"next-ca.crt": created["ca.crt"], "next-ca.key": created["ca.key"]}
    data = write(NOW, early).data
    assert same_leaf(data, early)
    assert data["ca.crt"] == created["ca.crt"] + fresh["ca.crt"]
    full = early["ca.crt"] + b"".join(create_authority(NOW).certificate for _ in range(7))
    assert same_leaf(write(NOW, {**early, "ca.crt": full}).data, early)


def test_authorities_without_number_don_t_fill_the_secret(fresh):
    many = b"".join(create_authority(NOW).certificate for _ in range(20))
    data = write(NOW, {**fresh, "ca.crt": fresh["ca.crt"] + many}).data
    assert data["ca.crt"].count(b"BEGIN") == 8
    lost = without(data, "ca.key", "tls.key")
    assert write(NOW, lost).data["ca.crt"].count(b"BEGIN") == 8


def test_other_keys_of_the_secret_stay(fresh):
    assert write(LEAF_DUE, {**fresh, "note": b"mine"}).data["note"] == b"mine"


def test_an_authority_of_our_kind_that_lives_too_long_is_due(fresh):
    shorter = Lifetimes(authority=timedelta(days=30))
    action = write(NOW, fresh, lifetimes=shorter)
    assert "365 days" in action.reason
    assert "next-ca.crt" in action.data


def test_a_leaf_that_lives_too_long_is_renewed(fresh):
    action = write(NOW, fresh, lifetimes=Lifetimes(serving=DAY))
    assert first(action.data, "tls.crt").not_valid_after_utc == NOW + DAY
    assert first(action.data) == first(fresh)


def test_an_invalid_name_is_an_error():
    with pytest.raises(MissingNamesError):
        decide(NOW, {}, ("höst",))


def test_the_text_of_a_write_shows_no_contents(fresh):
    action = write(LEAF_DUE, fresh)
    shown = repr(action) + str(action)
    secrets = action.data["tls.key"].decode().splitlines()[1:-1]
    assert not any(line in shown for line in secrets)
    assert "next-ca" not in shown


def test_margins_are_what_the_last_thirds_leave():
    computed = margins(Lifetimes())
    assert computed.copies == timedelta(seconds=30)
    assert timedelta(days=2.3) < computed.serving < timedelta(days=7) / 3 + BACKDATED
    assert timedelta(days=121) < computed.authority < timedelta(days=365) / 3 + BACKDATED


def test_certificates_of_seconds_are_not_due_at_their_making():
    short = Lifetimes(serving=timedelta(seconds=20), authority=timedelta(seconds=120))
    action = write(NOW, {}, lifetimes=short)
    assert action.until - NOW > timedelta(seconds=12)
