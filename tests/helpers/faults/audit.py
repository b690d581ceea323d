"""The API server's audit log: who did what and when, and whether two leaders ever worked at once.

A process is known by the id of its ServiceAccount token, which each has of its own.
"""

from __future__ import annotations

import base64
import contextlib
import json
from datetime import datetime
from typing import NamedTuple

import msgspec

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
            matching = [_deed(event, names) for event in events if _id(event) in names]
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


def _deed(event, names):
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
