"""Text of strangers as it may stand on a page: nothing in it is invisible or turns other text.

HTML is escaped where it is rendered; this is about what is left then.
"""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup

_TROUBLE: Final = re.compile(
    # Controls but for line ends and tabs, marks that order text, line separators, byte order mark.
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """The text with a visible escape for each character that would not be seen as itself."""
    return _TROUBLE.sub(_escape, text)


def finalize(value: object) -> object:
    """What a template puts out: no text but ours passes unseen, and nothing is ``None``."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return visible(value)
    return "" if value is None else value


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}"  # noqa: PLR2004 - one byte
