"""The delays within which the renewal of certificates causes no failed handshake."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from harbourmaster.certs.authority import backdating
from harbourmaster.certs.overlap import ROUNDING

if TYPE_CHECKING:
    from datetime import timedelta


class Margins(NamedTuple):
    """Delays that cause no failed handshake."""

    copies: timedelta
    """The time after a write for which a client can still use the previous caBundle."""
    serving: timedelta
    """Delay until the controller renews the serving certificate and every replica reads it."""
    authority: timedelta
    """Delay until the controller creates a new authority, writes it into every caBundle, sees it
    there and uses it, and every replica reads the serving certificate."""


def margins(lifetimes):
    """The margins for these lifetimes."""
    serving = lifetimes.serving + backdating(lifetimes.serving)
    authority = lifetimes.authority + backdating(lifetimes.authority)
    return Margins(
        copies=lifetimes.publish,
        serving=serving / 3 - ROUNDING,
        authority=authority / 3 - ROUNDING - lifetimes.publish,
    )
