"""What a reflector does after a fault, and the metrics that it reports."""

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


class Plan(Struct, frozen=True, gc=False):
    """How to go on. ``quiet``: nothing to speak of, for watches do end this way."""

    relist: bool
    at_once: bool = False
    quiet: bool = False


def after_fault(error: ApiError, *, listing: bool, failures: int, relisted: bool = False) -> Plan:
    """Decide from the fault and the number of those before it since the last contact.

    ``relisted``: a list at once was tried since then, and did not help.
    """
    first = failures == 0
    # A watch of what is not there is settled by the list.
    if isinstance(error, GoneError) or (isinstance(error, NotFoundError) and not listing):
        # However long the server was away, it is there now: what was missed waits no longer.
        return Plan(relist=True, at_once=not relisted, quiet=first)
    refused = HTTPStatus.BAD_REQUEST <= error.status < HTTPStatus.INTERNAL_SERVER_ERROR
    hopeless = refused and error.status not in _PASSING
    return Plan(
        relist=listing or hopeless or failures + 1 >= RELIST_AFTER,
        # Permissions are for a person to mend; a stream that breaks mends itself as a rule.
        quiet=first and not listing and not isinstance(error, (UnauthorizedError, ForbiddenError)),
    )


class WatchMetrics(Protocol):
    """What a reflector tells; ``resource`` is its name."""

    def listed(self, resource: str, objects: int, seconds: float) -> None:
        """A list of so many readable objects was taken whole."""

    def events(self, resource: str, count: int) -> None:
        """So many events came, bookmarks included."""

    def failed(self, resource: str, kind: str) -> None:
        """A list or a watch ended in a fault; ``kind`` is the error's class."""

    def undecodable(self, resource: str) -> None:
        """An object could not be read."""


class NoWatchMetrics:
    """Counts nothing."""

    def listed(self, resource: str, objects: int, seconds: float) -> None:
        """Do nothing."""

    def events(self, resource: str, count: int) -> None:
        """Do nothing."""

    def failed(self, resource: str, kind: str) -> None:
        """Do nothing."""

    def undecodable(self, resource: str) -> None:
        """Do nothing."""
