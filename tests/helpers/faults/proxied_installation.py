"""An installation with a proxy before the API server of each process, and its audit log.

The log says who did what and when, and whether two leaders ever worked at once. A process is known
by the id of its ServiceAccount token, which each has of its own.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import NamedTuple

import msgspec

from harbourmaster.playground import api
from harbourmaster.playground.errors import PlaygroundError
from harbourmaster.playground.installation import Installation
from harbourmaster.playground.workloads import workload_name
from helpers.cluster import plane_for
from helpers.faults.api_proxy import ApiProxy
from helpers.faults.stored_objects import Stored
from helpers.patience import PATIENCE

LEASES = "leases"
_WRITES = {"create", "update", "patch", "delete"}
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


class Deed(NamedTuple):
    """A request; times are seconds since the epoch, by the API server's clock."""

    who: str
    verb: str
    resource: str
    name: str
    status: int
    begun: float
    ended: float


class Term(NamedTuple):
    """A term of a Lease's holder: from its acquisition until another process requested it."""

    who: str
    begun: float
    ended: float


class AuditLog:
    """The log of a control plane, as far as it is about the processes of an installation."""

    def __init__(self, plane, installation):
        self._path = plane.layout.logs / "audit.log"
        self._installation = installation

    @property
    def size(self):
        """A place to read from later."""
        return self._path.stat().st_size

    def deeds(self, since=0):
        """The requests of the processes, in the order in which they arrived."""
        names = {
            _credential(workload): workload.name
            for workload in self._installation.workloads.values()
        }
        with self._path.open("rb") as file:
            file.seek(since)
            events = filter(None, map(_event, file))
            matching = [_deed_of(event, names) for event in events if _id(event) in names]
        return sorted(matching, key=lambda deed: deed.begun)


def terms(deeds):
    """The holders of the Lease and their times, from the successful writes of it."""
    merged = []
    for deed in lease_writes(deeds):
        if merged and merged[-1].who != deed.who:
            merged[-1] = merged[-1]._replace(ended=deed.begun)
        if not merged or merged[-1].who != deed.who:
            merged.append(Term(deed.who, deed.ended, float("inf")))
    return merged


def work(deeds):
    """The requests that only a leader may send, refused or not: writes, Leases and Events aside."""
    return [
        deed for deed in deeds if deed.verb in _WRITES and deed.resource not in {LEASES, "events"}
    ]


def trespasses(deeds):
    """The work that was done, in whole or in part, outside the terms of who did it."""
    found_terms = terms(deeds)
    return [
        deed
        for deed in work(deeds)
        if not any(
            term.who == deed.who and term.begun <= deed.begun and deed.ended <= term.ended
            for term in found_terms
        )
    ]


def staleness(deeds):
    """For each piece of work, how long before it the Lease was last renewed by who did it."""
    renewals = lease_writes(deeds)
    for deed in work(deeds):
        own = [
            renewal.begun
            for renewal in renewals
            if renewal.who == deed.who and renewal.ended <= deed.begun
        ]
        yield deed, deed.begun - max(own, default=float("-inf"))


def lease_writes(deeds):
    """The writes of the Lease that succeeded."""
    return [
        deed
        for deed in deeds
        if deed.resource == LEASES and deed.verb in _WRITES and deed.status in {200, 201}
    ]


def _event(line):
    # The last line may not be whole yet, or never be where its API server was killed.
    with contextlib.suppress(ValueError):
        return msgspec.json.decode(line)
    return None


def _deed_of(event, names):
    target = event.get("objectRef", {})
    return Deed(
        names[_id(event)],
        event["verb"],
        target.get("resource", ""),
        target.get("name", ""),
        event.get("responseStatus", {}).get("code", 0),
        _seconds(event["requestReceivedTimestamp"]),
        _seconds(event["stageTimestamp"]),
    )


def _seconds(text):
    return datetime.fromisoformat(text).timestamp()


def _id(event):
    return next(iter(event["user"].get("extra", {}).get(_CREDENTIAL, ())), "")


def _credential(workload):
    """The id of the token that a process has; the token is the same as long as the test takes."""
    _, claims, _ = (workload.identity / "token").read_text().split(".")
    padding = "=" * (-len(claims) % 4)
    return f"JTI={json.loads(base64.urlsafe_b64decode(claims + padding))['jti']}"


LONG = bool(os.environ.get("HARBOURMASTER_CHAOS_LONG"))
"""Whether faults last as long as they do in life."""
PAUSE = 0.1


class LeaseTimes(NamedTuple):
    """The times of the election, in seconds.

    They are those that are shipped: on a busy machine a shorter Lease ends although nothing fails.
    """

    lease_duration: int
    renew_deadline: int
    retry_period: int


LEASE = LeaseTimes(15, 10, 2)


class ProxiedInstallation:
    """A control plane, an installation on it, proxies by process, and the audit log."""

    def __init__(self, plane, installation, proxies):
        self.plane = plane
        self.installation = installation
        self.proxies = proxies
        self.audit = AuditLog(plane, installation)
        self.stored = Stored(plane)

    @contextmanager
    def failing(self, fault, concerned="", names=None):
        """Let the API fail for the named processes, by default for all."""
        with ExitStack() as stack:
            for name in names or self.proxies:
                stack.enter_context(self.proxies[name].failing(fault, concerned))
            yield

    def metric(self, name, sample):
        """The sum of all samples of a process whose lines begin so."""
        lines = self.health(name, "metrics")[1].splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(sample))

    def health(self, name, path):
        """Status and text of an answer of a process about itself."""
        return api.ask(f"{self.installation.workloads[name].health}/{path}")

    @property
    def controllers(self):
        """The names of the controllers."""
        workloads = self.installation.workloads.values()
        return [workload.name for workload in workloads if workload.role == "controller"]

    def leader(self, *, among=None):
        """The name of the controller that leads; None where it is not one."""
        leading = [name for name in among or self.controllers if self._leads(name)]
        return leading[0] if len(leading) == 1 else None

    def log_size(self, name):
        """A place to read a log from later."""
        return self.installation.log(name).stat().st_size

    def log(self, name, since=0):
        """The log lines of a process."""
        with self.installation.log(name).open("rb") as file:
            file.seek(since)
            return [json.loads(line) for line in file if line.startswith(b"{")]

    def stops(self, deeds, logged):
        """For each end of a term since a size of its log: how long before it the last renewal was.

        In seconds, by process; a term that its holder ended of itself is none.
        """
        for name, since in logged.items():
            own = [deed.begun for deed in lease_writes(deeds) if deed.who == name]
            for line in self.log(name, since):
                if line["event"] == "lost leadership":
                    stopped = datetime.fromisoformat(line["timestamp"]).timestamp()
                    yield stopped - max(begun for begun in own if begun < stopped)

    def _leads(self, name):
        try:
            return self.metric(name, "harbourmaster_leader ") == 1
        except PlaygroundError:
            return False


@contextmanager
def proxied_installation(request, folders, *, controllers=1, webhooks=1, arguments=None):
    """Start a ProxiedInstallation; its folder stays if a test of it fails."""
    flags = {role: list((arguments or {}).get(role, ())) for role in ("controller", "webhook")}
    for name, seconds in LEASE._asdict().items():
        flag = name.replace("_", "-")
        flags["controller"].append(f"--leader-election-{flag}-seconds={seconds}")
    counts = {"controller": controllers, "webhook": webhooks}
    with ExitStack() as stack:
        options = {"optional": (), "audit": True}
        plane = stack.enter_context(plane_for(request, folders, "proxied", **options))
        proxies = {
            workload_name(role, number + 1): stack.enter_context(ApiProxy(plane))
            for role, count in counts.items()
            for number in range(count)
        }
        installation = Installation(
            plane,
            controllers=controllers,
            webhooks=webhooks,
            arguments=flags,
            api_ports={name: proxy.port for name, proxy in proxies.items()},
        )
        yield ProxiedInstallation(plane, stack.enter_context(installation), proxies)


def until(ask, is_right=bool, *, patience=PATIENCE):
    """Ask until the answer is right; return it, and the seconds that it took."""
    began = time.monotonic()
    while True:
        try:
            answer = ask()
        except PlaygroundError as error:
            answer, right = error, False
        else:
            right = is_right(answer)
        seconds = time.monotonic() - began
        if right:
            return answer, seconds
        assert seconds < patience, f"after {seconds:.0f} s still {answer}"
        time.sleep(PAUSE)


def equals(wanted):
    """Whether an answer is the one that is wanted."""
    return lambda answer: answer == wanted


def note(**figures):
    """Show figures with a test's output."""
    shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    print(shown)  # noqa: T201 - figures to note
