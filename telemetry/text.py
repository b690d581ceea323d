"""Text of strangers, made fit for one line of a log or a terminal; importing it costs nothing."""

from __future__ import annotations

from typing import Final

MAX_TEXT: Final = 1024
"""Characters of one value."""


def clean(text: str) -> str:
    """Cut ``text``, and escape line ends, terminal controls and all else that is not printable."""
    if len(text) > MAX_TEXT:
        text = f"{text[:MAX_TEXT]}… ({len(text)} characters)"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")
