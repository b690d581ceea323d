"""When clients that read ca.crt only at their start get a serving certificate of a new authority.

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
"""The last tenth of its validity, in which the old certificate is not served: clocks differ."""
_MARK_LENGTH: Final = 16


def handover(served: Bundle, found: Bundle, now: datetime) -> datetime | None:
    """When ``found`` replaces ``served``; None for at once."""
    if served.anchor_der is None or served.anchor_der == found.anchor_der:
        return None
    if not found.names <= served.names:
        return None
    trusted = read_authorities(found.files.ca_crt, now, limit=None)
    if served.anchor_der not in {each.public_bytes(Encoding.DER) for each in trusted}:
        return None
    end = served.not_after - (served.not_after - served.not_before) / SPARE
    return end if now < end else None


def mark_of(bundle: Bundle) -> str:
    """A fingerprint of the certificate's authority; empty without ca.crt."""
    if bundle.anchor_der is None:
        return ""
    return hashlib.sha256(bundle.anchor_der).hexdigest()[:_MARK_LENGTH]
