from __future__ import annotations

import base64
import random

import pytest

from harbourmaster.dashboard.tokens import LIFETIME, LONGEST_TOKEN, Sealer

TOKEN = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"  # noqa: S105 - of no user


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sealer(clock):
    return Sealer(clock)


def test_what_was_sealed_is_opened(sealer):
    assert sealer.open(sealer.seal(TOKEN)) == TOKEN


@pytest.mark.claim("D2")
def test_the_token_can_not_be_read_in_the_cookie_and_no_two_are_alike(sealer):
    first, second = sealer.seal(TOKEN), sealer.seal(TOKEN)
    assert first != second
    assert TOKEN.encode() not in base64.urlsafe_b64decode(first + "==")


def test_a_session_ends(sealer, clock):
    cookie = sealer.seal(TOKEN)
    clock.now += LIFETIME - 1
    assert sealer.open(cookie) == TOKEN
    clock.now += 1
    assert sealer.open(cookie) is None


def test_every_replica_with_the_key_opens_it(sealer, clock):
    second = Sealer(clock)
    assert second.open(sealer.seal(TOKEN)) is None
    for replica in (sealer, second):
        replica.renew(b"key of the leaf")
    assert second.open(sealer.seal(TOKEN)) == TOKEN


def test_a_renewed_key_opens_what_the_last_one_sealed_and_not_the_one_before(sealer):
    sealer.renew(b"one")
    cookie = sealer.seal(TOKEN)
    sealer.renew(b"two")
    assert sealer.open(cookie) == TOKEN
    sealer.renew(b"two")
    assert sealer.open(cookie) == TOKEN
    sealer.renew(b"three")
    assert sealer.open(cookie) is None


def test_any_other_cookie_is_none(sealer):
    cookie = sealer.seal(TOKEN)
    strange = ["", "=", "a", "ab", "é", "\x00", "A" * 16, "A" * 5000, cookie[:-2], f"A{cookie}"]
    for value in strange:
        assert sealer.open(value) is None
    chosen = random.Random(7)  # noqa: S311 - a test's
    raw = bytearray(base64.urlsafe_b64decode(cookie + "=" * (-len(cookie) % 4)))
    for _ in range(200):
        place = chosen.randrange(len(raw))
        changed = bytearray(raw)
        changed[place] ^= 1 << chosen.randrange(8)
        assert sealer.open(base64.urlsafe_b64encode(changed).decode()) is None


def test_the_longest_token_fits_into_a_cookie(sealer):
    name_and_attributes = 200
    assert len(sealer.seal("x" * LONGEST_TOKEN)) + name_and_attributes < 4096
