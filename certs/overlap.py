"""Renewal of the Secret that replicas share, so that no handshake fails (decision D15).

Every client gets a new authority before a certificate that it issued is served, and the old one
stays trusted: its key is deleted, and none of its certificates outlives it. No handshake fails
while no delay exceeds the margins that the tests compute. If ca.key is lost, all steps to a new
authority must fit into the remaining validity of the serving certificate, at least a third, because
nothing can renew that certificate.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from harbourmaster.certs.authority import (
    AUTHORITY_LIFETIME,
    SERVING_LIFETIME,
    create_authority,
    issue_serving_certificate,
)
from harbourmaster.certs.bundle import (
    CA_CERTIFICATE,
    CA_KEY,
    TLS_CERTIFICATE,
    TLS_KEY,
    parse_certificates,
    verify_bundle,
)
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.inventory import Inventory, take_inventory, unlike_ours
from harbourmaster.certs.rotation import (
    Keep,
    canonical_name,
    overdue,
    renewal_time,
    serving_renewal_time,
    too_many_names,
)
from harbourmaster.certs.secret import (
    MAX_AUTHORITIES,
    NEXT_CERTIFICATE,
    NEXT_KEY,
    encode,
    next_authority,
)

if TYPE_CHECKING:
    from collections.abc import Collection

    from harbourmaster.certs.authority import KeyPair


class Lifetimes(Struct, frozen=True, kw_only=True):
    """Validity of certificates, and how long a new authority is published before it is used."""

    authority: timedelta = AUTHORITY_LIFETIME
    serving: timedelta = SERVING_LIFETIME
    publish: timedelta = timedelta(seconds=30)
    """Time for which every caBundle must have a new authority before one of its certificates is
    served.
    """


class Await(Struct, frozen=True):
    """A new authority is being published; check again at ``until`` or when a caBundle changes."""

    until: datetime


class Write(Struct, frozen=True):
    """Replace the data, and drop the time since when the next authority was known."""

    data: dict[str, bytes]
    reason: str
    until: datetime
    """Time of the next check after the write."""

    def __repr__(self) -> str:
        # Keys must never reach a log or a traceback.
        return f"Write({sorted(self.data)}, {self.reason!r}, until={self.until.isoformat()})"


Action: TypeAlias = Keep | Await | Write

_DEFAULTS: Final = Lifetimes()


class _Case(Struct, frozen=True):
    """The input of a decision."""

    now: datetime
    data: Mapping[str, bytes]
    wanted: frozenset[str]
    permitted: frozenset[str]
    lifetimes: Lifetimes
    held: Inventory

    def __repr__(self) -> str:
        return f"_Case({self.held!r})"

    @property
    def is_rotating(self) -> bool:
        """Whether the issuing authority is being replaced, or must be."""
        begun = NEXT_CERTIFICATE in self.data or NEXT_KEY in self.data
        return begun or bool(self.held.authority_fault)


def decide(
    now: datetime,
    data: Mapping[str, bytes],
    names: Collection[str],
    published_since: datetime | None = None,
    lifetimes: Lifetimes = _DEFAULTS,
    permitted: Collection[str] = (),
) -> Action:
    """Decide what to do with the Secret's data; any data has an answer.

    An authority is limited to ``names`` and ``permitted``, names that may be wanted later.
    ``published_since`` is the result of ``authority_publication``. The presence of next-ca.crt or
    next-ca.key, even empty, asks for a new authority. Raises MissingNamesError for a wanted name
    that no certificate can have.
    """
    wanted = frozenset(map(canonical_name, names))
    case = _case(now, data, wanted, wanted.union(map(canonical_name, permitted)), lifetimes)
    held = case.held
    if held.serving is None and held.signer is None:
        # Clients accept nothing that is served now, so waiting would help no client.
        authority = held.upcoming or create_authority(
            now, case.permitted, lifetime=lifetimes.authority
        )
        reason = f"{held.serving_fault}; {held.authority_fault}: a new authority is used at once"
        return _write(case, _use_authority(case, authority), reason)
    if held.upcoming is not None and _is_known(case, held.upcoming, published_since):
        reason = "every caBundle holds the new authority: it is used from now on"
        return _write(case, _use_authority(case, held.upcoming), reason)
    changes, reasons = _renewals(case)
    if changes:
        return _write(case, {**data, **changes}, "; ".join(reasons))
    until = _next_check(case, published_since)
    return Await(until) if case.is_rotating else Keep(until)


def _case(
    now: datetime,
    data: Mapping[str, bytes],
    wanted: frozenset[str],
    permitted: frozenset[str],
    lifetimes: Lifetimes,
) -> _Case:
    held = take_inventory(now, data, wanted, lifetimes.authority, permitted)
    return _Case(now, data, wanted, permitted, lifetimes, held)


def _is_known(case: _Case, upcoming: KeyPair, since: datetime | None) -> bool:
    created = parse_certificates(upcoming.certificate, NEXT_CERTIFICATE)[0].not_valid_before_utc
    # An earlier time is that of another authority.
    return since is not None and since >= created and case.now - since >= case.lifetimes.publish


def _use_authority(case: _Case, authority: KeyPair) -> dict[str, bytes]:
    serving = issue_serving_certificate(
        case.now, authority, sorted(case.wanted), lifetime=case.lifetimes.serving
    )
    first = parse_certificates(authority.certificate, CA_CERTIFICATE)[0]
    # Keep the previous CA for slow replicas; drop an adopted CA before it expires.
    trusted = dict.fromkeys((first, *case.held.trusted[:1]))
    trusted |= dict.fromkeys(
        certificate
        for certificate in case.held.trusted[1:]
        if not unlike_ours(certificate, CA_CERTIFICATE, case.lifetimes.authority)
    )
    kept = {key: case.data[key] for key in case.data if key not in {NEXT_CERTIFICATE, NEXT_KEY}}
    return {
        **kept,
        CA_CERTIFICATE: encode(islice(trusted, MAX_AUTHORITIES)),
        CA_KEY: authority.key,
        TLS_CERTIFICATE: serving.certificate,
        TLS_KEY: serving.key,
    }


def _renewals(case: _Case) -> tuple[dict[str, bytes], list[str]]:
    """Return the keys that change and the reasons, while the issuing authority stays."""
    now, held, lifetimes = case.now, case.held, case.lifetimes
    changes: dict[str, bytes] = {}
    reasons = []
    serving_fault = _serving_fault(case)
    if serving_fault and held.signer is not None:
        serving = issue_serving_certificate(
            now, held.signer, sorted(case.wanted), lifetime=lifetimes.serving
        )
        changes |= {TLS_CERTIFICATE: serving.certificate, TLS_KEY: serving.key}
        reasons.append(serving_fault)
    if case.is_rotating and held.upcoming is None:
        upcoming = create_authority(now, case.permitted, lifetime=lifetimes.authority)
        changes |= {NEXT_CERTIFICATE: upcoming.certificate, NEXT_KEY: upcoming.key}
        fault = held.authority_fault or held.upcoming_fault
        reasons.append(f"{fault}: a new authority is published")
    trusted = encode(held.trusted)
    if trusted != case.data.get(CA_CERTIFICATE):
        changes[CA_CERTIFICATE] = trusted
        reasons.append("ca.crt held more than authorities to trust, or in another order")
    return changes, reasons


def _serving_fault(case: _Case) -> str:
    serving = case.held.serving
    if serving is None:
        return case.held.serving_fault
    try:
        verify_bundle(serving.bundle, case.now, case.wanted)
    except CertificateError as error:
        return str(error)
    if not case.is_rotating:
        # Otherwise it soon gets a successor anyway.
        if serving.bundle.names != case.wanted:
            return too_many_names(case.wanted)
        fault = unlike_ours(serving.certificate, TLS_CERTIFICATE, case.lifetimes.serving)
        if fault:
            return fault
    due = serving_renewal_time(serving.bundle)
    end = min(case.now + case.lifetimes.serving, serving.issuer.not_valid_after_utc)
    # An authority issues no successor of a certificate that ends with it.
    return (
        overdue(TLS_CERTIFICATE, due) if case.now >= due and end > serving.bundle.not_after else ""
    )


def _write(case: _Case, data: dict[str, bytes], reason: str) -> Write:
    after = _case(case.now, data, case.wanted, case.permitted, case.lifetimes)
    return Write(data, reason, _next_check(after, None))


def _next_check(case: _Case, since: datetime | None) -> datetime:
    held = case.held
    instants = [authority.not_valid_after_utc for authority in held.trusted]
    instants += [
        renewal_time(authority.not_valid_before_utc, authority.not_valid_after_utc)
        for authority in (*held.trusted[:1], *next_authority(case.data, case.now))
    ]
    if held.serving is not None:
        instants += [held.serving.bundle.not_after, serving_renewal_time(held.serving.bundle)]
    if since is not None and held.upcoming is not None:
        # A time ahead of the clock starts again.
        instants.append(case.lifetimes.publish + min(since, case.now))
    return min(instant for instant in instants if instant > case.now)
