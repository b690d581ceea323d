"""Who else writes our fields: a value repaired again and again belongs to a fight (pure).

Against another controller that wants another value we would write without end. After some repairs
in a minute we repair once a minute and report it, so the API server and the audit log stay usable.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

LIMIT: Final = 5
"""Repairs of one field to one value in ``WINDOW`` that are still no fight."""
WINDOW: Final = 60.0
"""Seconds; also the pause between two repairs in a fight."""
_PEACE: Final = 2 * WINDOW
"""Seconds without a repair after which a fight is over."""


class _Field:
    __slots__ = ("fighting", "repairs", "wanted")

    def __init__(self, wanted: object) -> None:
        self.wanted = wanted
        self.repairs: deque[float] = deque(maxlen=LIMIT + 1)
        self.fighting = False


class Fights:
    """Repairs by field. Times are seconds of any clock that only goes forward."""

    def __init__(self) -> None:
        self._fields: dict[Hashable, _Field] = {}

    def hold(self, field: Hashable, wanted: object, now: float) -> float:
        """Seconds until the field may be repaired to ``wanted``, 0 for now."""
        found = self._fields.get(field)
        if found is None or not found.fighting or found.wanted != wanted:
            return 0.0
        return max(0.0, found.repairs[-1] + WINDOW - now)

    def record(self, field: Hashable, wanted: object, now: float) -> bool:
        """Note a repair; True if a fight begins with it, which is to be reported."""
        found = self._fields.get(field)
        # A value that we want since now is our own change, and no answer to another's.
        if found is None or found.wanted != wanted or now - found.repairs[-1] > _PEACE:
            found = self._fields[field] = _Field(wanted)
        elif found.repairs[-1] == now:
            # Several in one write are one repair.
            return False
        found.repairs.append(now)
        begins = (
            not found.fighting and len(found.repairs) > LIMIT and now - found.repairs[0] <= WINDOW
        )
        found.fighting = found.fighting or begins
        return begins
