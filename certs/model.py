"""Certificates and what is to be done with them, as data.

Only the modules that parse or issue certificates load their library (see ``child``).
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import Struct

from harbourmaster.certs.errors import MissingNamesError, ValidityError

if TYPE_CHECKING:
    from collections.abc import Collection

CA_CERTIFICATE: Final = "ca.crt"
CA_KEY: Final = "ca.key"
TLS_CERTIFICATE: Final = "tls.crt"
TLS_KEY: Final = "tls.key"

AUTHORITY_LIFETIME: Final = timedelta(days=365)
SERVING_LIFETIME: Final = timedelta(days=7)


class BundleFiles(Struct, frozen=True, kw_only=True):
    """The contents of the files in PEM; None for a missing file."""

    ca_crt: bytes | None = None
    ca_key: bytes | None = None
    tls_crt: bytes | None = None
    tls_key: bytes | None = None

    def __repr__(self) -> str:
        # Keys must never reach a log or a traceback.
        present = [name for name in self.__struct_fields__ if getattr(self, name) is not None]
        return f"BundleFiles({', '.join(present)})"


class Bundle(Struct, frozen=True, kw_only=True):
    """A certificate that can be served, and what is known about it. Times are UTC."""

    files: BundleFiles
    serving_der: bytes
    not_before: datetime
    not_after: datetime
    names: frozenset[str]
    """DNS names and IP addresses of the serving certificate."""
    authority_not_before: datetime | None = None
    authority_not_after: datetime | None = None
    """End of the first certificate of ca.crt; None without that file."""
    anchor_der: bytes | None = None
    """The certificate of ca.crt to which the serving certificate leads; None without that file."""

    @property
    def pair(self) -> bytes:
        """Certificate chain and key in one PEM."""
        return (self.files.tls_crt or b"") + b"\n" + (self.files.tls_key or b"")

    def __repr__(self) -> str:
        return f"Bundle(names={sorted(self.names)}, not_after={self.not_after.isoformat()})"


def verify_bundle(bundle: Bundle, now: datetime, names: Collection[str] = ()) -> None:
    """Check the validity window and the names. Raises ValidityError or MissingNamesError."""
    check_window("tls.crt", bundle.not_before, bundle.not_after, now)
    if bundle.authority_not_before is not None and bundle.authority_not_after is not None:
        check_window("ca.crt", bundle.authority_not_before, bundle.authority_not_after, now)
    missing = sorted(set(names) - bundle.names)
    if missing:
        raise MissingNamesError(
            f"tls.crt is not for {', '.join(missing)}; it is for "
            f"{', '.join(sorted(bundle.names)) or 'no name'}"
        )


def check_window(file: str, not_before: datetime, not_after: datetime, now: datetime) -> None:
    """Check a certificate's validity. Raises ValidityError."""
    if now < not_before:
        raise ValidityError(f"{file} is not valid before {not_before.isoformat()}")
    if now >= not_after:
        raise ValidityError(f"{file} expired at {not_after.isoformat()}")


class Keep(Struct, frozen=True, tag=True):
    """Nothing to do before ``until``."""

    until: datetime


class Lifetimes(Struct, frozen=True, kw_only=True):
    """Validity of certificates, and how long a new authority is published before it is used."""

    authority: timedelta = AUTHORITY_LIFETIME
    serving: timedelta = SERVING_LIFETIME
    publish: timedelta = timedelta(seconds=30)
    """Time for which every caBundle must have a new authority before one of its certificates is
    served.
    """


class Await(Struct, frozen=True, tag=True):
    """A new authority is being published; check again at ``until`` or when a caBundle changes."""

    until: datetime


class Write(Struct, frozen=True, tag=True):
    """Replace the data, and drop the time since when the next authority was known."""

    data: dict[str, bytes]
    reason: str
    until: datetime
    """Time of the next check after the write."""

    def __repr__(self) -> str:
        # Keys must never reach a log or a traceback.
        return f"Write({sorted(self.data)}, {self.reason!r}, until={self.until.isoformat()})"


Action: TypeAlias = Keep | Await | Write
