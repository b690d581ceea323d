"""Decides when certificates are renewed, and when clients get another one.

The functions are pure. See decision D15.
"""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

from harbourmaster.certs.secret import read_authorities

if TYPE_CHECKING:
    from collections.abc import Collection
    from datetime import datetime

    from harbourmaster.certs.model import Bundle


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
    if served.anchor_der not in {authority.der for authority in trusted}:
        return None
    end = served.not_after - (served.not_after - served.not_before) / SPARE
    return end if now < end else None


def mark_of(bundle: Bundle) -> str:
    """Return a fingerprint of the authority of a certificate; empty without ca.crt."""
    if bundle.anchor_der is None:
        return ""
    return hashlib.sha256(bundle.anchor_der).hexdigest()[:_MARK_LENGTH]
