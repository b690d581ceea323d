"""What somebody probably meant by a name that is unknown."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_NEAR: Final = 0.6
_LONGEST: Final = 253
"""Characters of the longest name; comparing takes the square of it."""


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """A question that names the most similar known name; empty where none is similar."""
    near = get_close_matches(given[:_LONGEST].lower(), known, n=1, cutoff=_NEAR)
    return f'did you mean "{near[0]}"?' if near else ""
