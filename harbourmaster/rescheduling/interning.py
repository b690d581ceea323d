"""One object for equal values: thousands of pods share their labels, requests and texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from harbourmaster.rescheduling.model import Requests

if TYPE_CHECKING:
    from collections.abc import Hashable

_Value = TypeVar("_Value")
_MOST: Final = 65_536
"""Maximum shared values of a kind; then all are dropped, so that unused ones are freed."""


class Shared(Generic[_Value]):
    """Values by what they are equal by."""

    def __init__(self, most: int = _MOST) -> None:
        self._values: dict[Hashable, _Value] = {}
        self._most = most

    def __call__(self, key: Hashable, value: _Value) -> _Value:
        """The first one that was given with this key."""
        shared = self._values.get(key)
        if shared is None:
            if len(self._values) >= self._most:
                self._values.clear()
            self._values[key] = shared = value
        return shared


_labels: Final = Shared[dict[str, str]]()
_requests: Final = Shared[Requests]()
_texts: Final = Shared[str]()
_NO_LABELS: Final[dict[str, str]] = {}


def shared_labels(labels: dict[str, str] | None) -> dict[str, str]:
    """Return the shared copy of these labels, which must not be changed."""
    return _labels(frozenset(labels.items()), labels) if labels else _NO_LABELS


def shared_requests(requests: Requests) -> Requests:
    """Return the shared copy of these requests."""
    return _requests(requests, requests) if requests else ()


def shared_text(text: str) -> str:
    """Return the shared copy of this text."""
    return _texts(text, text)
