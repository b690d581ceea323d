"""When to renew what: a pure function of the time, the files and the wanted names.

See decision D15.
"""

from __future__ import annotations

from datetime import datetime
from ipaddress import ip_address
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from harbourmaster.certs.bundle import (
    check_authority,
    parse_bundle,
    parse_certificates,
    verify_bundle,
)
from harbourmaster.certs.errors import CertificateError

if TYPE_CHECKING:
    from collections.abc import Collection

    from harbourmaster.certs.bundle import Bundle, BundleFiles


class Keep(Struct, frozen=True):
    """Nothing to do before ``until``."""

    until: datetime


class RenewLeaf(Struct, frozen=True):
    """Issue a new leaf from the present authority."""

    reason: str


class RenewAuthority(Struct, frozen=True):
    """Make a new authority and a new leaf."""

    reason: str


Action: TypeAlias = Keep | RenewLeaf | RenewAuthority


def decide(now: datetime, files: BundleFiles, names: Collection[str]) -> Action:
    """Decide what to do with our own certificates; both kinds are renewed after 2/3 of their life.

    A leaf whose end was cut to its authority's gets no successor from it: by then the authority
    is past its own 2/3.
    """
    try:
        check_authority(files.ca_crt, files.ca_key, now)
    except CertificateError as error:
        return RenewAuthority(str(error))
    authority = parse_certificates(files.ca_crt, "ca.crt")[0]
    authority_due = renewal_time(authority.not_valid_before_utc, authority.not_valid_after_utc)
    if now >= authority_due:
        return RenewAuthority(overdue("ca.crt", authority_due))
    wanted = {canonical_name(name) for name in names}
    try:
        bundle = parse_bundle(files)
        verify_bundle(bundle, now, wanted)
    except CertificateError as error:
        return RenewLeaf(str(error))
    if bundle.names != wanted:
        return RenewLeaf(too_many_names(wanted))
    leaf_due = leaf_renewal_time(bundle)
    if now >= leaf_due:
        return RenewLeaf(overdue("tls.crt", leaf_due))
    return Keep(min(leaf_due, authority_due))


def renewal_time(not_before: datetime, not_after: datetime) -> datetime:
    """The instant at which two thirds of a life are over."""
    return not_before + (not_after - not_before) * 2 / 3


def leaf_renewal_time(bundle: Bundle) -> datetime:
    """The instant at which the leaf of ``bundle`` is due."""
    return renewal_time(bundle.not_before, bundle.not_after)


def overdue(file: str, due: datetime) -> str:
    """Why a certificate past its renewal time is renewed."""
    return f"{file} is due for renewal since {due.isoformat()}"


def too_many_names(wanted: Collection[str]) -> str:
    """Why a leaf for other names besides the wanted ones is renewed."""
    return f"tls.crt is for more names than {', '.join(sorted(wanted))}"


def canonical_name(name: str) -> str:
    """A name as certificates show it, so that two spellings of an IPv6 address are one name."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name
