"""Properties of certificates in a shared Secret, whatever time, users and faults do to it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.certs.authority import KeyPair, create_authority, issue_serving_certificate
from harbourmaster.certs.bundle import is_issued_by, parse_bundle
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.model import Await, BundleFiles, Keep, Lifetimes, Write, verify_bundle
from harbourmaster.certs.overlap import decide
from harbourmaster.certs.secret import authority_publication, encode, read_authorities, trust_bundle
from helpers.certificates import accepts, foreign_authority, foreign_leaf, kupid_data, margins, pem
from helpers.properties import TIMEOUT, cases

START = datetime(2026, 3, 1, tzinfo=UTC)
NAME = "hm.harbourmaster-system.svc"
STRANGER = create_authority(START).certificate


@pytest.fixture(autouse=True, scope="module")
def results_are_kept():
    """Keep results: the same bytes are parsed and compared thousands of times."""
    certificates = cache(x509.load_pem_x509_certificates)
    key = cache(serialization.load_pem_private_key)
    issued = cache(is_issued_by)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(x509, "load_pem_x509_certificates", lambda pem: [*certificates(pem)])
        patch.setattr(serialization, "load_pem_private_key", key)
        patch.setattr("harbourmaster.certs.bundle.is_issued_by", issued)
        patch.setattr("harbourmaster.certs.overlap.is_issued_by", issued)
        patch.setitem(globals(), "accepts", cache(accepts))
        yield


@dataclass(kw_only=True)
class Lags:
    """Seconds, each the longest."""

    controller: float
    replica: float
    copies: float


@dataclass
class Rotation:
    random: object
    lifetimes: Lifetimes
    lags: Lags
    configurations: int = 2
    writes_fail: float = 0.0
    blocked_until: float = 0.0
    """Before that no caBundle changes any more."""
    spoiled: tuple = ("tls.crt", "tls.key")
    """The keys of the Secret that users break."""
    secret: list = field(default_factory=list)
    """(instant, data) of every write, also by hand."""
    bundles: list = field(default_factory=list)
    """For each configuration (instant, caBundle, whether a client may be harmed by it)."""
    since: datetime | None = None
    reasons: list = field(default_factory=list)

    def __post_init__(self):
        self.secret.append((0.0, {}))
        self.bundles = [[] for _ in range(self.configurations)]
        self._failed = set()
        self._spoiled = False

    @property
    def data(self):
        return self.secret[-1][1]

    @property
    def promotions(self):
        """The number of times a new authority took over as planned."""
        return sum("every caBundle holds" in reason for reason in self.reasons)

    @property
    def replacements(self):
        """The number of times a new authority was used at once; the first of all is one."""
        return sum("at once" in reason for reason in self.reasons)

    def run(self, seconds, hands=0):
        """Let the time pass; ``hands`` is how many edits people make in it."""
        edits = sorted(self.random.uniform(0, seconds) for _ in range(hands))
        instant = 0.0
        while instant < seconds:
            due = self._reconcile(instant)
            following = due + self._lateness()
            while edits and edits[0] < following:
                edited = max(edits.pop(0), instant)
                if self._edit(edited):
                    following = min(following, edited + self._lateness())
            instant = following

    def failures(self):
        """(leaf's number, caBundle's number, instant) of each handshake that could fail."""
        failures = []
        leaves = list(self._spans([pair for pair in self.secret if loadable(*pair)], "replica"))
        for history in self.bundles:
            for number, (begin, end, leaf) in enumerate(leaves):
                for other_number, (first, last, bundle, harmful) in enumerate(
                    self._spans(history, "copies")
                ):
                    if harmful or first >= end or begin >= last:
                        continue
                    failures += [
                        (number, other_number, instant)
                        for instant in (max(begin, first), min(end, last))
                        if not accepts(bundle, leaf["tls.crt"], NAME, at(instant))
                    ]
        return failures

    def _spans(self, history, lag):
        last = self.secret[-1][0]
        following = [*(instant for instant, *_ in history[1:]), last]
        for (instant, *rest), end in zip(history, following, strict=True):
            yield (instant, end + getattr(self.lags, lag), *rest)

    def _reconcile(self, instant):
        now = at(instant)
        observed = [history[-1][1] if history else b"" for history in self.bundles]
        self.since = authority_publication(now, self.data, observed, self.since)
        action = decide(now, self.data, (NAME,), self.since, self.lifetimes)
        if isinstance(action, Write):
            self.secret.append((instant, action.data))
            self.since = None
            self._spoiled = False
            self.reasons.append(action.reason)
        trust = trust_bundle(self.data, now)
        busy = isinstance(action, Write)
        for number, history in enumerate(self.bundles):
            if history and history[-1][1] == trust:
                continue
            busy = True
            if history and self._write_fails(instant, number):
                continue
            self._failed.discard(number)
            history.append((instant, trust, False))
        return instant if busy else (action.until - START).total_seconds()

    def _write_fails(self, instant, number):
        if instant < self.blocked_until:
            return True
        if number in self._failed or self.random.random() >= self.writes_fail:
            return False
        self._failed.add(number)
        return True

    def _lateness(self):
        # Mostly prompt, sometimes down for as long as it may be.
        lag = self.lags.controller
        return self.random.choice(
            [lag / 1000, lag / 1000, lag / 100, self.random.uniform(0, lag), lag]
        )

    def _edit(self, instant):
        if self.random.random() < 0.3:
            return self._edit_secret(instant)
        history = self.random.choice(self.bundles)
        needed = read_authorities(self.data["ca.crt"], at(instant))
        known = read_authorities(history[-1][1], at(instant))
        edited = self.random.choice(
            [
                encode(needed),
                encode(reversed(known)),
                self.random.choice(history)[1],
                history[-1][1] + STRANGER,
                STRANGER,
                b"",
            ]
        )
        harmful = not set(needed) <= set(read_authorities(edited, at(instant)))
        history.append((instant, edited, harmful))
        return True

    def _edit_secret(self, instant):
        if self._spoiled:
            # One at a time: without key and leaf there is nothing to go on with.
            return False
        self._spoiled = True
        data = dict(self.data)
        if "next-ca.crt" in data:
            data.pop(self.random.choice(["next-ca.crt", "next-ca.key"]), None)
        else:
            spoiled = self.random.choice(self.spoiled)
            data[spoiled] = self.random.choice([b"", data[spoiled][:99], data["ca.crt"]])
        self.secret.append((instant, data))
        return True


def at(instant):
    return START + timedelta(seconds=instant)


def settle(now, data, names, lifetimes):
    """Let a controller and clients without any lag go on until there is nothing to do."""
    since = None
    for _ in range(6):
        since = authority_publication(now, data, [trust_bundle(data, now)], since)
        match decide(now, data, names, since, lifetimes):
            case Keep():
                return now, data
            case Write(data=data):
                since = None
            case Await():
                now += lifetimes.publish
    raise AssertionError("there is always something to do")


def loadable(instant, data):
    """Whether a replica can serve what it finds in the Secret."""
    files = BundleFiles(
        ca_crt=data.get("ca.crt"), tls_crt=data.get("tls.crt"), tls_key=data.get("tls.key")
    )
    try:
        verify_bundle(parse_bundle(files), at(instant))
    except CertificateError:
        return False
    return True


DAY = timedelta(days=1)
THIRTEEN_MONTHS = 396 * DAY
LONG = Lifetimes()
SHORT = Lifetimes(
    authority=timedelta(seconds=120), serving=timedelta(seconds=20), publish=timedelta(seconds=2)
)
PROMPT = Lags(controller=0.01, replica=0, copies=0)

many = settings(max_examples=cases(500))
worlds = settings(max_examples=cases(25, least=3))
seeds = st.integers(0, 2**32).map(random.Random)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]


def seconds(span):
    return span.total_seconds()


@worlds
@given(chance=seeds)
def test_no_handshake_fails_in_thirteen_months_of_weeks_and_a_year(chance):
    replica = 90.0
    lags = Lags(
        controller=seconds(margins(LONG).serving) - replica,
        replica=replica,
        copies=seconds(margins(LONG).copies),
    )
    world = Rotation(chance, LONG, lags, configurations=3, writes_fail=0.3)
    world.run(seconds(THIRTEEN_MONTHS), hands=40)
    assert world.failures() == []
    assert world.promotions >= 1
    assert world.replacements == 1


@worlds
@given(chance=seeds)
def test_no_handshake_fails_in_twenty_minutes_of_seconds(chance):
    lags = Lags(controller=4.0, replica=2.0, copies=seconds(margins(SHORT).copies))
    world = Rotation(chance, SHORT, lags, configurations=3, writes_fail=0.3)
    world.run(1200, hands=20)
    assert world.failures() == []
    assert world.promotions >= 10
    assert world.replacements == 1


@worlds
@given(chance=seeds)
def test_no_handshake_fails_when_the_authority_s_key_gets_lost_and_the_controller_is_there(chance):
    # Without the key the leaf gets no successor until the next authority is known.
    lags = Lags(controller=3600.0, replica=90.0, copies=seconds(margins(LONG).copies))
    world = Rotation(chance, LONG, lags, writes_fail=0.3, spoiled=("ca.key", "tls.crt", "tls.key"))
    world.run(seconds(THIRTEEN_MONTHS), hands=60)
    assert world.failures() == []
    assert world.replacements == 1


@pytest.mark.parametrize("lifetimes", [LONG, SHORT], ids=["weeks", "seconds"])
@pytest.mark.parametrize(
    ("lag", "margin"),
    [("controller", "serving"), ("replica", "serving"), ("copies", "copies")],
)
def test_each_margin_is_as_wide_as_it_says_and_no_wider(lifetimes, lag, margin):
    span = seconds(lifetimes.authority) * 3
    most = seconds(getattr(margins(lifetimes), margin))

    def failures(lateness):
        lags = Lags(**{**vars(PROMPT), lag: lateness})
        world = Rotation(Always(), lifetimes, lags)
        world.run(span)
        return world.failures()

    assert failures(most - 0.1) == []
    # The margins leave out what rounding to seconds and a prompt controller take.
    assert failures(most + 3.0) != []


def test_the_margin_of_an_authority_is_for_all_its_steps():
    most = seconds(margins(SHORT).authority)
    due = seconds(SHORT.authority) - seconds(SHORT.publish) - most

    def failures(lateness):
        lags = Lags(controller=0.5, replica=0, copies=0)
        world = Rotation(Always(), SHORT, lags, blocked_until=due + lateness)
        world.run(seconds(SHORT.authority) * 2)
        return world.failures()

    assert failures(most - 2.0) == []
    assert failures(most + 4.0) != []


@pytest.mark.parametrize("jump", [-THIRTEEN_MONTHS, -DAY, -3 * DAY, THIRTEEN_MONTHS], ids=str)
def test_after_a_jump_of_the_clock_and_one_back_all_is_well(jump):
    now, data = settle(START, {}, (NAME,), LONG)
    for instant in (now + 3 * DAY, now + jump, now + 2 * DAY, now + 6 * DAY):
        later, data = settle(instant, data, (NAME,), LONG)
        assert accepts(trust_bundle(data, later), data["tls.crt"], NAME, later)


class Always:
    """Chance that takes the worst: every lag at its longest."""

    def choice(self, options):
        return max(options)

    def uniform(self, _, most):
        return most

    def random(self):
        return 0.0


def _ours(made):
    authority = create_authority(made)
    leaf = issue_serving_certificate(made, authority, (NAME,))
    return [authority.certificate, authority.key, leaf.certificate, leaf.key]


def _pool():
    kupid = kupid_data(START, (NAME,))
    short = foreign_authority(START, lifetime=300 * DAY)
    stranger = foreign_leaf(START, short, ("other.svc",), lifetime=7 * DAY)
    first = KeyPair(*_ours(START)[:2])
    wide = issue_serving_certificate(START, first, (NAME, "more.svc"))
    return [
        *_ours(START),
        *_ours(START - 300 * DAY),
        *_ours(START - 400 * DAY),
        *_ours(START + 30 * DAY),
        *kupid.values(),
        *map(pem, short),
        *map(pem, stranger),
        first.certificate,
        first.key,
        wide.certificate,
        wide.key,
    ]


POOL = _pool()
SETS = [
    dict(zip(("ca.crt", "ca.key", "tls.crt", "tls.key"), POOL[start : start + 4], strict=True))
    for start in (0, 4, 8, 12, 16)
]
KEYS = ("ca.crt", "ca.key", "tls.crt", "tls.key", "next-ca.crt", "next-ca.key", "note")
pieces = st.sampled_from(POOL)


@st.composite
def truncated_pieces(draw):
    piece = draw(pieces)
    return piece[draw(st.integers(0, len(piece))) : draw(st.integers(0, len(piece)))]


@st.composite
def damaged_pieces(draw):
    piece = bytearray(draw(pieces))
    piece[draw(st.integers(0, len(piece) - 1))] = draw(st.integers(0, 255))
    return bytes(piece)


values = st.one_of(
    pieces,
    st.lists(st.one_of(pieces, truncated_pieces()), max_size=4).map(b"".join),
    truncated_pieces(),
    damaged_pieces(),
    st.binary(max_size=64),
    st.sampled_from([b"", bytes(2**20 + 1), POOL[0] * 100]),
)


@st.composite
def secrets(draw):
    data = dict(draw(st.sampled_from([{}, *SETS])))
    if draw(st.booleans()):
        made = draw(st.sampled_from(SETS))
        data |= {"next-ca.crt": made["ca.crt"], "next-ca.key": made["ca.key"]}
    data |= draw(st.dictionaries(st.sampled_from(KEYS), values, max_size=4))
    for key in draw(st.sets(st.sampled_from(KEYS), max_size=2)):
        data.pop(key, None)
    return data


instants = st.sampled_from(
    [START + days * DAY for days in (-400, -30, -1, 0, 1, 5, 8, 40, 250, 300, 396, 9000)]
)
wanted = st.sampled_from([(NAME,), (NAME, "10.0.0.1"), ("other.svc",), (NAME, "more.svc")])


def replica_files(data):
    return BundleFiles(ca_crt=data["ca.crt"], tls_crt=data["tls.crt"], tls_key=data["tls.key"])


def is_accepted(trust, data, now):
    """Whether clients of that trust accept a whole pair."""
    try:
        parse_bundle(BundleFiles(tls_crt=data.get("tls.crt"), tls_key=data.get("tls.key")))
        return accepts(trust, data["tls.crt"], NAME, now)
    except Exception:  # noqa: BLE001 - no pair, for whatever reason
        return False


@many
@given(data=secrets(), now=instants, since=st.none() | instants, names=wanted)
def test_whatever_the_secret_holds_has_one_answer_that_breaks_no_trust(data, now, since, names):
    before = dict(data)
    action = decide(now, data, names, since)
    assert data == before
    assert action.until > now
    trusted = trust_bundle(data, now)
    if not isinstance(action, Write):
        bundle = parse_bundle(replica_files(data))
        assert isinstance(action, Keep) or "next-ca.crt" in data
        if isinstance(action, Keep):
            verify_bundle(bundle, now, names)
        return

    after = action.data
    assert not isinstance(decide(now, after, names), Write)
    # Replicas can load it, and what others keep there stays.
    bundle = parse_bundle(replica_files(after))
    assert after.get("note") == data.get("note")
    known = trust_bundle(after, now)
    if bundle.not_before <= now and NAME in names:
        assert is_accepted(known, after, now)
    if is_accepted(trusted, data, now) and NAME in names:
        # Who is late with the leaf or with the caBundle still gets through.
        assert is_accepted(known, data, now)
        assert is_accepted(trusted, after, now)
    issuing = encode(read_authorities(data.get("ca.crt"), now))
    if since is None and is_accepted(issuing, data, now) and NAME in names:
        # Nobody is known to have the next authority yet.
        assert is_accepted(issuing, after, now)
    secret_lines = after["tls.key"].decode().splitlines()[1:-1]
    assert not any(line in repr(action) for line in secret_lines)


@many
@given(data=secrets(), now=instants, names=wanted)
def test_from_anything_there_is_a_way_to_certificates_of_ours(data, now, names):
    later, data = settle(now, data, names, LONG)
    verify_bundle(parse_bundle(replica_files(data)), later, names)
    assert later <= now + LONG.publish
    assert decide(later, data, names) == decide(later, data, names, later)
