"""Answers with something in them that is nested deeper than can be read.

API servers keep what has thousands of levels, and one such object must not hide all others.
"""

from __future__ import annotations

import re
from typing import Final

DEEPEST: Final = 200
"""Levels of what is left as it is."""
STUB: Final = b'"nested too deeply to be read"'
_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)
_OPENING: Final = frozenset((b"[", b"{"))
_CLOSING: Final = frozenset((b"]", b"}"))


def shallow(body: bytes, level: int) -> bytes:
    """The same JSON with a text in place of each value on ``level`` that has too many levels.

    The whole is on level 1. Where such a text stands no object of that kind can be read, and the
    others can.
    """
    pieces: list[bytes] = []
    depth = deepest = begun = kept = 0
    for token in _TOKENS.finditer(body):
        text = token[0]
        if text in _OPENING:
            depth += 1
            if depth == level:
                begun, deepest = token.start(), depth
            deepest = max(deepest, depth)
        elif text in _CLOSING:
            if depth == level and deepest > DEEPEST:
                pieces += (body[kept:begun], STUB)
                kept = token.end()
            depth -= 1
    return b"".join((*pieces, body[kept:]))
