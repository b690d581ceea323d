"""Suggestions for names that are unknown."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

NEAR: Final = 0.6
"""Similarity from 0 to 1 from which a name is proposed."""
VERY_NEAR: Final = 0.7
"""Similarity from which a name is proposed if many names are alike."""
_LONGEST: Final = 253
"""Maximum number of compared characters: a comparison takes the square of it."""


def nearest(given: str, known: Iterable[str], cutoff: float = NEAR) -> str:
    """Return the most similar known name; empty if none is similar."""
    near = get_close_matches(given[:_LONGEST].lower(), known, n=1, cutoff=cutoff)
    return near[0] if near else ""


def did_you_mean(given: str, known: Iterable[str], cutoff: float = NEAR) -> str:
    """Return a question that names the most similar known name; empty if none is similar."""
    near = nearest(given, known, cutoff)
    return f'did you mean "{near}"?' if near else ""
