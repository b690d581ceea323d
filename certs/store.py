"""A directory of certificates: ``ca.crt ca.key tls.crt tls.key``.

A directory with ca.key, or without any of the files, is ours: missing and due certificates are
created. One with foreign tls.crt and tls.key (a mounted Secret) is only read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from harbourmaster.certs.authority import KeyPair, create_authority, issue_serving_certificate
from harbourmaster.certs.bundle import check_authority, check_permitted, parse_bundle
from harbourmaster.certs.directory import is_foreign, read_files, write_files
from harbourmaster.certs.errors import CertificateError
from harbourmaster.certs.model import BundleFiles, Keep, verify_bundle
from harbourmaster.certs.rotation import (
    canonical_name,
    overdue,
    renewal_time,
    serving_renewal_time,
    too_many_names,
)

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime
    from pathlib import Path

    from harbourmaster.certs.model import Bundle


class RenewServingCertificate(Struct, frozen=True):
    """Issue a new serving certificate by the current authority."""

    reason: str


class RenewAuthority(Struct, frozen=True):
    """Create a new authority and a new serving certificate."""

    reason: str


Action: TypeAlias = Keep | RenewServingCertificate | RenewAuthority


def ensure(directory: Path, names: Collection[str], now: datetime) -> Bundle:
    """Return the bundle to serve: our own is kept, renewed or created, a foreign one is only read.

    ``names`` are DNS names and IP addresses; those of a foreign certificate are not checked, as
    clients may reach it by another name. Raises CertificateError.
    """
    files = read_files(directory)
    if is_foreign(files):
        return _check(directory, files, now)
    wanted = sorted({canonical_name(name) for name in names})
    match decide(now, files, wanted):
        case Keep():
            return parse_bundle(files)
        case RenewServingCertificate() if files.ca_crt is not None and files.ca_key is not None:
            authority = KeyPair(files.ca_crt, files.ca_key)
        case _:
            authority = create_authority(now, wanted)
    serving = issue_serving_certificate(now, authority, wanted)
    files = BundleFiles(
        ca_crt=authority.certificate,
        ca_key=authority.key,
        tls_crt=serving.certificate,
        tls_key=serving.key,
    )
    write_files(directory, files)
    return parse_bundle(files)


def load(directory: Path, now: datetime) -> Bundle:
    """Read foreign certificates; create none. Raises CertificateError."""
    return _check(directory, read_files(directory), now)


def _check(directory: Path, files: BundleFiles, now: datetime) -> Bundle:
    try:
        bundle = parse_bundle(files)
        verify_bundle(bundle, now)
    except CertificateError as error:
        raise type(error)(f"{directory}: {error}") from error
    return bundle


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
