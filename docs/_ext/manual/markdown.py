"""Tables and code in Markdown, whatever stands in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are Markdown already, but for bars and line ends."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines) + "\n"


def definitions(entries: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Terms with paragraphs below each: for what is too long for a table, on a phone too."""
    parts = []
    for term, told in entries:
        first, *others = filter(None, told)
        parts.append("\n\n".join([f"{term}\n: {first}", *(f"  {each}" for each in others)]))
    return "\n\n".join(parts) + "\n"


def code(text: object) -> str:
    """Text in code font."""
    fence = "``" if "`" in str(text) else "`"
    return f"{fence}{text}{fence}" if str(text) else ""


def plain(text: str) -> str:
    """Text that means nothing to Markdown, in one line."""
    escaped = "".join(f"\\{each}" if each in r"\`*_[]<>#" else each for each in text)
    return " ".join(escaped.split())


def block(text: str, language: str = "text") -> str:
    """Lines as they are."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def _cell(text: str) -> str:
    return " ".join(text.split("\n")).replace("|", "\\|")
