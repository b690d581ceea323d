"""Recovery of a reflector after a fault, and the metrics that it reports."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from harbourmaster.kube.errors import ForbiddenError, GoneError, NotFoundError, UnauthorizedError

if TYPE_CHECKING:
    from harbourmaster.kube.errors import ApiError

RELIST_AFTER: Final = 8
"""Failed attempts after which a watch is not resumed: its resource version may be the cause."""
_PASSING: Final = frozenset(
    (
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.FORBIDDEN,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    )
)
"""Refusals that say nothing against the resource version of a watch."""


class WatchRecovery(Struct, frozen=True, gc=False):
    """The next step after a fault. ``quiet``: not logged, as watches often end this way."""

    relist: bool
    at_once: bool = False
    quiet: bool = False


def after_fault(
    error: ApiError, *, listing: bool, failures: int, relisted: bool = False
) -> WatchRecovery:
    """Decide from the fault and the number of those before it since the last contact.

    ``relisted``: an immediate list was tried since then and did not help.
    """
    first = failures == 0
    # If the resource is missing, the list says so.
    if isinstance(error, GoneError) or (isinstance(error, NotFoundError) and not listing):
        # The server is back: what was missed is listed at once.
        return WatchRecovery(relist=True, at_once=not relisted, quiet=first)
    refused = HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    hopeless = refused and error.status not in _PASSING
    return WatchRecovery(
        relist=listing or hopeless or failures + 1 >= RELIST_AFTER,
        # Permissions need a person; broken streams usually recover by themselves.
        quiet=first and not listing and not isinstance(error, (UnauthorizedError, ForbiddenError)),
    )


class WatchMetrics(Protocol):
    """The metrics of a reflector; ``resource`` is its name."""

    def count_list(self, resource: str, objects: int, seconds: float) -> None:
        """Record a complete list with its number of readable objects."""

    def count_events(self, resource: str, count: int) -> None:
        """Count received events, including bookmarks."""

    def count_failure(self, resource: str, kind: str) -> None:
        """Count a failed list or watch; ``kind`` is the class of the error."""

    def count_undecodable(self, resource: str) -> None:
        """Count an object that could not be decoded."""


class NoWatchMetrics:
    """Counts nothing."""

    def count_list(self, resource: str, objects: int, seconds: float) -> None:
        """Do nothing."""

    def count_events(self, resource: str, count: int) -> None:
        """Do nothing."""

    def count_failure(self, resource: str, kind: str) -> None:
        """Do nothing."""

    def count_undecodable(self, resource: str) -> None:
        """Do nothing."""
