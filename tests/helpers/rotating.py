"""A world in which a shared Secret's certificates are renewed, on a clock that is only counted.

The controller does what ``harbourmaster.certs.overlap`` says, as late as it may be; people edit
caBundles and the Secret. What replicas and clients do in the meantime is not drawn but known: a
leaf may be served until ``replica`` seconds after the next one was written, a caBundle may be in
use until ``copies`` seconds after its successor was written. So ``failures`` looks at every leaf
with every caBundle that it can meet, at the first and the last instant of that: validity has no
holes between.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from harbourmaster.certs.authority import create_authority
from harbourmaster.certs.bundle import BundleFiles, parse_bundle, verify_bundle
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.overlap import Await, Write, decide
from harbourmaster.certs.rotation import Keep
from harbourmaster.certs.secret import authority_publication, encode, read_authorities, trust_bundle
from helpers.certificates import accepts

if TYPE_CHECKING:
    from harbourmaster.certs.overlap import Lifetimes

START = datetime(2026, 3, 1, tzinfo=UTC)
NAME = "hm.harbourmaster-system.svc"
STRANGER = create_authority(START).certificate


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
