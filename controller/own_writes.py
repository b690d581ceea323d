"""What we have just written, until the watch shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from harbourmaster.api.metadata import Metadata


class OwnWrites:
    """The versions that our writes have replaced, by key.

    Children wake a parent before the watch brings what was written on it. Who decides by the old
    version then does twice what was done.
    """

    def __init__(self) -> None:
        self._replaced: dict[str, str] = {}

    def note(self, metadata: Metadata) -> None:
        """The object with these metadata has been replaced."""
        self._replaced[metadata.key] = metadata.resource_version

    def hide(self, metadata: Metadata) -> bool:
        """Whether these are of before our write, whose event is still to come."""
        if self._replaced.get(metadata.key) == metadata.resource_version:
            return True
        self._replaced.pop(metadata.key, None)
        return False

    def forget(self, key: str) -> None:
        """The object is gone."""
        self._replaced.pop(key, None)
