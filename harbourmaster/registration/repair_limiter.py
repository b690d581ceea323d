"""Limits how often a field is repaired that another client changes back (pure).

Without a limit, we would write forever against a controller that wants another value. After some
repairs in a minute, a fight is reported and the field is repaired once a minute, so that the API
server and the audit log stay usable.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Hashable

LIMIT: Final = 5
"""Repairs of one field to one value in ``WINDOW`` that are not a fight yet."""
WINDOW: Final = 60.0
"""Seconds; also the pause between two repairs in a fight."""
_PEACE: Final = 2 * WINDOW
"""Seconds without a repair after which a fight is over."""


class _Field:
    __slots__ = ("is_fought", "repairs", "wanted")

    def __init__(self, wanted: object) -> None:
        self.wanted = wanted
        self.repairs: deque[float] = deque(maxlen=LIMIT + 1)
        self.is_fought = False


class RepairLimiter:
    """The repairs of each field. Times are seconds of a clock that never goes backwards."""

    def __init__(self) -> None:
        self._fields: dict[Hashable, _Field] = {}

    def delay(self, field: Hashable, wanted: object, now: float) -> float:
        """Return the seconds until the field may be repaired to ``wanted``; 0 for now."""
        known = self._fields.get(field)
        if known is None or not known.is_fought or known.wanted != wanted:
            return 0.0
        return max(0.0, known.repairs[-1] + WINDOW - now)

    def record(self, field: Hashable, wanted: object, now: float) -> bool:
        """Record a repair, and return whether a fight begins with it, which must be reported."""
        known = self._fields.get(field)
        # The desired value changed, so this repair does not count.
        if known is None or known.wanted != wanted or now - known.repairs[-1] > _PEACE:
            known = self._fields[field] = _Field(wanted)
        elif known.repairs[-1] == now:
            # Several repairs in one write count once.
            return False
        known.repairs.append(now)
        begins = (
            not known.is_fought and len(known.repairs) > LIMIT and now - known.repairs[0] <= WINDOW
        )
        known.is_fought = known.is_fought or begins
        return begins
