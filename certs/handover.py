"""Late replacement of a serving certificate, for clients that read ca.crt only at their start.

A kube-scheduler is such a client. Its server keeps the old serving certificate, so that there is
time to restart the client, as long as a client that starts meanwhile trusts the old authority too.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from cryptography.hazmat.primitives.serialization import Encoding

from harbourmaster.certs.secret import read_authorities

if TYPE_CHECKING:
    from datetime import datetime

    from harbourmaster.certs.bundle import Bundle

SPARE: Final = 10
"""Divisor of the validity for its last part, in which the old certificate is not served."""
_MARK_LENGTH: Final = 16


def handover(served: Bundle, offered: Bundle, now: datetime) -> datetime | None:
    """Return the time at which ``offered`` replaces ``served``; None for now."""
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
