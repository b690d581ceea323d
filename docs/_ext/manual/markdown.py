"""Tables and code in Markdown, with any content."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown, but their bars and line ends are replaced."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def definitions(entries: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Return terms with paragraphs below each, for texts that are too long for a table."""
    parts = []
    for term, paragraphs in entries:
        first, *further = filter(None, paragraphs)
        parts.append(
            "\n\n".join([f"{term}\n: {first}", *(f"  {paragraph}" for paragraph in further)])
        )
    return "\n\n".join(parts) + "\n"


def code(text: object) -> str:
    """Return text in code font."""
    fence = "``" if "`" in str(text) else "`"
    return f"{fence}{text}{fence}" if str(text) else ""


def plain(text: str) -> str:
    """Escape text for Markdown, in one line."""
    escaped = "".join(
        f"\\{character}" if character in r"\`*_[]<>#" else character for character in text
    )
    return " ".join(escaped.split())


def block(text: str, language: str = "text") -> str:
    """Return lines as a code block."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def _cell(text: str) -> str:
    return " ".join(text.split("\n")).replace("|", "\\|")
