"""What one process remembers of an application's objects: only to do less, never to know more.

Without it everything is applied once again, which changes nothing where nothing has changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.placement.readiness import summary

if TYPE_CHECKING:
    from harbourmaster.controller.placement.applying import Applied
    from harbourmaster.controller.placement.session import Session
    from harbourmaster.placement.inventory import Inventory, Key
    from harbourmaster.placement.manifests import Prepared
    from harbourmaster.placement.readiness import Readiness

RESYNC: Final = 600.0
"""Seconds after which everything is applied again, as a safety net."""


class Known:
    """The objects of one application on one cluster, as they were applied."""

    def __init__(self, session: Session, prepared: Prepared, now: float) -> None:
        self.session = session
        self.prepared = prepared
        self.at = now
        self._applied: dict[Key, Applied] = {}
        self._settled: set[Key] = set()

    def note(self, applied: tuple[Applied, ...]) -> None:
        """All were applied, and were so then."""
        self._applied = {each.ref.key: each for each in applied}

    @property
    def refs(self) -> Inventory:
        """What was applied, with uids and origins."""
        return tuple(each.ref for each in self._applied.values())

    @property
    def is_complete(self) -> bool:
        """Whether everything was applied."""
        return len(self._applied) == len(self.prepared.items)

    def drift(self) -> str:
        """What of it is not as it was applied, in words; empty where all is, or is yet to be seen.

        A watch that has not brought our own change yet says nothing.
        """
        for key, each in self._applied.items():
            found = self.session.watches.get(each.resource, each.ref)
            if key not in self._settled and found == each.before:
                continue
            self._settled.add(key)
            if found is None:
                return f"{each.ref.text} was deleted"
            if found.uid != each.ref.uid:
                return f"{each.ref.text} was replaced"
            if found.fields != each.state.fields:
                return f"{each.ref.text} was changed"
        return ""

    @property
    def is_blind(self) -> bool:
        """Whether some of it may change without our being told."""
        return any(self.session.watches.is_blind(each.resource) for each in self._applied.values())

    def unready(self) -> str:
        """What is not ready, in one line; empty where all is."""
        return summary((each.ref.text, self._readiness(each)) for each in self._applied.values())

    def _readiness(self, each: Applied) -> Readiness:
        found = self.session.watches.get(each.resource, each.ref)
        if found is None or (each.ref.key not in self._settled and found == each.before):
            return each.state.readiness
        return found.readiness
