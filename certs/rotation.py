"""Decides which certificates to renew, from the time, the files and the wanted names.

The functions are pure. See decision D15.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeAlias

from cryptography.hazmat.primitives.serialization import Encoding
from msgspec import Struct

from harbourmaster.certs.bundle import (
    check_authority,
    check_permitted,
    parse_bundle,
    verify_bundle,
)
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.secret import read_authorities

if TYPE_CHECKING:
    from collections.abc import Collection

    from harbourmaster.certs.bundle import Bundle, BundleFiles


class Keep(Struct, frozen=True):
    """Nothing to do before ``until``."""

    until: datetime


class RenewServingCertificate(Struct, frozen=True):
    """Issue a new serving certificate by the current authority."""

    reason: str


class RenewAuthority(Struct, frozen=True):
    """Create a new authority and a new serving certificate."""

    reason: str


Action: TypeAlias = Keep | RenewServingCertificate | RenewAuthority


def decide(now: datetime, files: BundleFiles, names: Collection[str]) -> Action:
    """Decide what to do with our own certificates; each is renewed after 2/3 of its lifetime.

    A serving certificate whose validity ends with its authority is not renewed by that authority,
    which is then past its own 2/3.
    """
    try:
        authority = check_authority(files, now)
    except CertificateError as error:
        return RenewAuthority(str(error))
    authority_due = renewal_time(authority.not_valid_before_utc, authority.not_valid_after_utc)
    if now >= authority_due:
        return RenewAuthority(overdue("ca.crt", authority_due))
    wanted = {canonical_name(name) for name in names}
    try:
        check_permitted(authority, wanted)
    except CertificateError as error:
        return RenewAuthority(str(error))
    try:
        bundle = parse_bundle(files)
        verify_bundle(bundle, now, wanted)
    except CertificateError as error:
        return RenewServingCertificate(str(error))
    if bundle.names != wanted:
        return RenewServingCertificate(too_many_names(wanted))
    serving_due = serving_renewal_time(bundle)
    if now >= serving_due:
        return RenewServingCertificate(overdue("tls.crt", serving_due))
    return Keep(min(serving_due, authority_due))


def renewal_time(not_before: datetime, not_after: datetime) -> datetime:
    """Return the time at which two thirds of a lifetime are over."""
    return not_before + (not_after - not_before) * 2 / 3


def serving_renewal_time(bundle: Bundle) -> datetime:
    """Return the time at which the serving certificate of ``bundle`` is due for renewal."""
    return renewal_time(bundle.not_before, bundle.not_after)


def overdue(file: str, due: datetime) -> str:
    """Return the reason for renewing a certificate past its renewal time."""
    return f"{file} is due for renewal since {due.isoformat()}"


def too_many_names(wanted: Collection[str]) -> str:
    """Return the reason for renewing a certificate with other names than the wanted ones."""
    return f"tls.crt is for more names than {', '.join(sorted(wanted))}"


def canonical_name(name: str) -> str:
    """Return a name as certificates show it: two spellings of an IPv6 address are one name."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name


SPARE: Final = 10
"""Divisor of the validity for its last part, in which the old certificate is not served."""
_MARK_LENGTH: Final = 16


def handover(served: Bundle, offered: Bundle, now: datetime) -> datetime | None:
    """Return the time at which ``offered`` replaces ``served``; None for now.

    It is later for clients that read ca.crt only at their start, such as a kube-scheduler: while
    the old certificate is served they can be restarted, and who starts meanwhile trusts the old
    authority too.
    """
    if served.anchor_der is None or served.anchor_der == offered.anchor_der:
        return None
    if not offered.names <= served.names:
        return None
    trusted = read_authorities(offered.files.ca_crt, now, limit=None)
    if served.anchor_der not in {authority.public_bytes(Encoding.DER) for authority in trusted}:
        return None
    end = served.not_after - (served.not_after - served.not_before) / SPARE
    return end if now < end else None


def mark_of(bundle: Bundle) -> str:
    """Return a fingerprint of the authority of a certificate; empty without ca.crt."""
    if bundle.anchor_der is None:
        return ""
    return hashlib.sha256(bundle.anchor_der).hexdigest()[:_MARK_LENGTH]
