"""Clients that read ca.crt once, at their start: when they get a leaf of a new authority.

A kube-scheduler is such a client. Whoever it asks goes on with the old leaf, so that there is time
to start it anew, as long as one that starts meanwhile trusts the old authority too.
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
"""The last part of its life in which the old leaf is served no more: clocks differ."""
_MARK_LENGTH: Final = 16


def handover(served: Bundle, found: Bundle, now: datetime) -> datetime | None:
    """When ``found`` is to be served in place of ``served``; None for now."""
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
    """What tells the authority of the leaf from others; empty without ca.crt."""
    if bundle.anchor_der is None:
        return ""
    return hashlib.sha256(bundle.anchor_der).hexdigest()[:_MARK_LENGTH]
