"""Pure decisions of the leader election, from the observed Lease and the time of observation.

Times in a Lease are never compared with a clock: another candidate's Lease lasts for its duration
after we last saw it change, by our own clock. So clocks need not agree.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from harbourmaster.api.resources import LEASES
from harbourmaster.api.times import moment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

_RELEASED_SECONDS: Final = 1
"""Duration in seconds of a Lease that its holder gave back; the API accepts no less."""
_GRACE: Final = 0.8
"""The share of the time between deadline and expiry in which work may end; the rest is margin."""
_SPREAD: Final = 0.25
"""The share of a wait that chance may add, so that candidates do not all come at once."""
_PATIENCE: Final = 3
"""Failed calls that fit into a deadline."""


class LeaseSpec(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The spec of a Lease. Every field may be missing or null."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
    preferred_holder: str | None = None
    strategy: str | None = None


_NO_SPEC: Final = LeaseSpec()


class Lease(Struct, frozen=True):
    """A Lease as it is stored. ``metadata`` goes back whole, with the labels of others."""

    metadata: dict[str, Any]
    spec: LeaseSpec = _NO_SPEC

    @property
    def version(self) -> str:
        """The resourceVersion."""
        return str(self.metadata.get("resourceVersion") or "")

    @property
    def annotations(self) -> dict[str, Any]:
        """The annotations."""
        annotations = self.metadata.get("annotations")
        return annotations if isinstance(annotations, dict) else {}

    @property
    def holder(self) -> str:
        """The holder; empty if there is none."""
        return self.spec.holder_identity or ""


class _Wire(Struct, frozen=True):
    metadata: dict[str, Any]
    spec: LeaseSpec | None = None


_decode: Final = msgspec.json.Decoder(_Wire).decode


def decode_lease(body: bytes) -> Lease:
    """Read a Lease. Raises msgspec.DecodeError."""
    wire = _decode(body)
    return Lease(wire.metadata, wire.spec or _NO_SPEC)


def encode_lease(lease: Lease) -> bytes:
    """Encode a Lease as JSON."""
    fields = {"metadata": lease.metadata, "spec": lease.spec}
    return msgspec.json.encode({**LEASES.type_fields, **fields})


def micro_time(instant: datetime) -> str:
    """Format an aware ``instant`` as the API does: RFC 3339, UTC, microseconds."""
    offset = instant.utcoffset()
    if offset is None:
        raise ValueError(f"{instant.isoformat()} has no time zone")
    utc = instant.replace(tzinfo=None) - offset
    return f"{utc.isoformat(timespec='microseconds')}Z"


class Timing(Struct, frozen=True, gc=False):
    """The times of an election, in seconds. Raises ValueError where they can't hold together.

    A leader that could not renew for ``renew_deadline`` stops, and must have stopped ``grace``
    later; others take the Lease ``lease_duration`` after they saw its last renewal.
    """

    lease_duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < 2 * self.retry_period <= self.renew_deadline < self.lease_duration:
            raise ValueError(
                "an election needs a lease_duration above renew_deadline, and that at least twice "
                f"retry_period, not {self.lease_duration:g} s, {self.renew_deadline:g} s and "
                f"{self.retry_period:g} s"
            )

    def wait(self, chance: float) -> float:
        """Return the seconds from an attempt to the next one; ``chance`` is from 0 to 1."""
        return self.retry_period * (1 + _SPREAD * chance)

    @property
    def call_timeout(self) -> float:
        """Seconds of one call, so that several fit into the deadline."""
        return min(1.5 * self.retry_period, self.renew_deadline / _PATIENCE)

    @property
    def grace(self) -> float:
        """Seconds for work to end once it is cancelled."""
        return (self.lease_duration - self.renew_deadline) * _GRACE

    @property
    def whole_duration(self) -> int:
        """The duration as the API takes it: rounded up, so that others wait long enough."""
        return math.ceil(self.lease_duration)


class LeaseObservation(Struct, frozen=True):
    """The knowledge of a candidate: the last Lease that it saw, or None, and its consequence."""

    lease: Lease | None
    free_at: float
    """The time of our own clock before which its holder may be at work."""


def observe(
    before: LeaseObservation | None, lease: Lease | None, now: float, default_duration: float
) -> LeaseObservation:
    """Add a reading of the Lease; ``now`` is the time after the answer.

    A Lease that was deleted or emptied by hand does not end the promise to its last holder. Only a
    holder that gives it back (no holder, and one second) ends that at once.
    """
    if before is not None and _is_same(before.lease, lease):
        return before
    promised = now if before is None else max(before.free_at, now)
    if lease is None:
        return LeaseObservation(None, promised)
    if lease.holder:
        return LeaseObservation(lease, max(promised, now + _duration(lease.spec, default_duration)))
    given_back = lease.spec.lease_duration_seconds == _RELEASED_SECONDS
    return LeaseObservation(lease, now if given_back else promised)


def _is_same(before: Lease | None, lease: Lease | None) -> bool:
    if before is None or lease is None:
        return before is lease
    return before.version == lease.version and before.spec == lease.spec


def _duration(spec: LeaseSpec, default: float) -> float:
    seconds = spec.lease_duration_seconds
    return default if seconds is None or seconds <= 0 else float(seconds)


class Acquire(Struct, frozen=True, gc=False):
    """Write the Lease in our name."""


class Renew(Struct, frozen=True, gc=False):
    """We hold it; renew it."""


class LeaseWait(Struct, frozen=True, gc=False):
    """Wait, because another candidate may be at work until this time of our clock."""

    until: float


class StepDown(Struct, frozen=True, gc=False):
    """We no longer hold it."""

    holder: str


Action: TypeAlias = Acquire | Renew | LeaseWait


def decide(
    observation: LeaseObservation, identity: str, now: float, written: Collection[str] = ()
) -> Action:
    """Decide what a candidate does that does not lead.

    ``written`` are the renewTimes of our latest attempts, whose answers may have been lost. A
    Lease in our name with none of them was created by another client, and its former holder may
    still be at work.
    """
    lease = observation.lease
    if lease is not None and lease.holder == identity and lease.spec.renew_time in written:
        return Renew()
    return Acquire() if now >= observation.free_at else LeaseWait(observation.free_at)


def decide_as_leader(lease: Lease | None, identity: str) -> Acquire | Renew | StepDown:
    """Decide what a leader within its deadline does about the Lease that it reads."""
    if lease is None:
        return Acquire()
    return Renew() if lease.holder == identity else StepDown(lease.holder)


def acquire(spec: LeaseSpec, identity: str, seconds: int, at: str) -> LeaseSpec:
    """Return ``spec`` taken over by ``identity``, if it is not in its name already.

    ``at`` is the time, as the API writes it.
    """
    if spec.holder_identity == identity:
        return renew(spec, seconds, at)
    before = spec.lease_transitions or 0
    is_new = spec == _NO_SPEC
    return msgspec.structs.replace(
        spec,
        holder_identity=identity,
        lease_duration_seconds=seconds,
        acquire_time=at,
        renew_time=at,
        lease_transitions=max(before, 0) + (not is_new),
    )


def renew(spec: LeaseSpec, seconds: int, at: str) -> LeaseSpec:
    """Return ``spec`` renewed for the same holder, at work since the same time."""
    return msgspec.structs.replace(
        spec,
        lease_duration_seconds=seconds,
        acquire_time=spec.acquire_time or at,
        renew_time=at,
        lease_transitions=max(spec.lease_transitions or 0, 0),
    )


def release(spec: LeaseSpec, at: str) -> LeaseSpec:
    """Return ``spec`` given back, so that the next candidate need not wait."""
    return msgspec.structs.replace(
        spec,
        holder_identity="",
        lease_duration_seconds=_RELEASED_SECONDS,
        acquire_time=at,
        renew_time=at,
    )


def mark(lease: Lease, marks: Mapping[str, bool], at: str) -> Lease:
    """Return the Lease with an annotation for each mark that is set, and without any other mark.

    The value is the time since when the mark is set: ``at``, unless it has a time already.
    """
    annotations = {key: value for key, value in lease.annotations.items() if marks.get(key, True)}
    for name, is_set in marks.items():
        if is_set and moment(str(annotations.get(name))) is None:
            annotations[name] = at
    if annotations == lease.annotations:
        return lease
    return msgspec.structs.replace(lease, metadata={**lease.metadata, "annotations": annotations})


def new_lease(name: str, namespace: str, labels: Mapping[str, str]) -> Lease:
    """Create a Lease without a holder, not stored yet."""
    metadata: dict[str, Any] = {"name": name, "namespace": namespace}
    if labels:
        metadata["labels"] = dict(labels)
    return Lease(metadata)
