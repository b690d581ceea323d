"""Finds phrases that readers from other countries read twice; `make lint` runs it.

Each phrase has its replacement beside it. The arguments are files to check, by default
all files that git tracks. Documents, manifests and Python strings are checked more strictly than
comments and docstrings.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT: Final = Path(__file__).parent.parent
TEXTS: Final = {".css", ".html", ".js", ".md", ".py", ".sh", ".toml", ".yaml", ".yml", ""}
SHOWN: Final = {".html", ".md", ".yaml", ".yml"}
PHRASES: Final = {
    r"(?<![Tt]here )\b(?:is|was) no (?!longer\b|more\b)[\w{]+": "is not a ...",
    r"\bin vain\b": "without success, or what did not happen",
    r"\bof now\b": "current",
    r"\bof old\b": "former",
    r"\bfor ever\b": "forever, or without end",
    r"\bnobody else's\b": "of no other ...",
    r"\bmay not\b": "must not, or cannot",
    r"\bthere is to\b": "to ...",
    r"\bat no time\b": "never",
    r"\bnone at all\b": "none",
    r"\bas good as\b": "nearly",
    r"\blest\b": "so that ... not",
    r"\bwhoever\b": "who, or the user that ...",
    r"\b[Ll]et no\b": "do not ..., or ... must not",
    r"\bno news\b": "unchanged",
    r"\bbroken glass|glass is (?:broken|whole)|new glass\b": "break-glass mode",
    r"\b(?:comes|came) of\b": "follows from",
    r"\b(?:am|is|are|was|were|be|been|being|to) (?:begun|bidden)\b": "start",
    r"\bbroke the glass\b|\bGlass(?:Broken|Mended)\b": "break-glass mode",
    r"\bnone of ours\b": "not ours",
    r"\bof one's own\b": "of your own",
    r"\bthat there (?:is|are) not\b": "missing",
    r"\bwithout a word\b": "silently",
    r"\b(?:knows?|knew) no\b": "does not know, or has no ...",
    r"\b[Ll]ikewise\b": "also, or the same",
    r"\bfare[sd]?\b": "result",
    r"\b[Ww]hat there is\b": "what exists, or name it",
    r"\bfor want of\b": "because ... is missing",
    r"\bnot to be had\b": "not available",
    r"\b(?:give|gave|gives) way\b": "is removed",
    r"\blives? on in\b": "is kept in",
}
"""Not in any text."""
STRICT: Final = {
    r"\banew\b": "again, or recreated",
    r"\bsomebody\b": "a user, or another client",
    r"\bnobody\b": "no client, or no user",
    r"\bwithout end\b": "forever, or without a limit",
    r"\bof theirs\b": "name it",
    r"\bbut for\b": "except",
    r"\b(?:become|becomes|became) of\b": "the result of",
    r"(?:^|[.;:,(] ?)[Ww]ho (?:may|is|has|can)\b": "users that ...",
    r", for (?:it|they|there|no|nothing|that)\b": "because",
    r"\b(?:is|are) none of\b": "is not one of",
    r"\bgo(?:es)? over to\b": "migrate",
    r"\bonce more\b": "again",
    r"\bit asks for\b": "it requests, or it sets",
    r"\bto be made\b": "to be created",
    r"\bmakes? up for\b": "replaces",
    r"\bhas (?:its|a) place\b": "has a node",
    r"\bstands in\b": "is in",
    r"\bwhat (?:it|they) (?:says?|tells?)\b": "its message, or name it",
    r"\bbelong into\b": "belong in",
    r"\bin order to go\b|\bthe way over\b": "migrate",
}
"""Not where users read it: documents, manifests, pages, and strings that are not docstrings."""
ALLOWED: Final = {"LICENSE", "playground/LICENSE"}


def faults(name: str, text: str) -> list[str]:
    """The places in a text that hold one of the phrases: FILE:LINE: phrase: instead."""
    suffix = Path(name).suffix
    lines = list(enumerate(text.splitlines(), 1))
    found = list(_found(name, lines, PHRASES))
    if suffix in SHOWN:
        found += _found(name, lines, STRICT)
    if suffix == ".py":
        found += _found(name, _strings(text), STRICT)
    return found


def _found(
    name: str, lines: Iterable[tuple[int, str]], phrases: Mapping[str, str]
) -> Iterator[str]:
    for number, line in lines:
        for phrase, instead in phrases.items():
            if match := re.search(phrase, line):
                yield f"{name}:{number}: {match[0]!r}: write {instead!r}"


def _strings(text: str) -> Iterator[tuple[int, str]]:
    """The strings of a module that are no docstrings, each with its line."""
    tree = ast.parse(text)
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def main(names: list[str]) -> int:
    """Print what is found; 1 if there is any."""
    if not names:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        names = listed.stdout.splitlines()
    found = [
        fault
        for name in names
        if Path(name).suffix in TEXTS
        and name not in ALLOWED
        and not name.startswith("tests/")
        and (ROOT / name).is_file()
        for fault in faults(name, (ROOT / name).read_text())
    ]
    print(*found, sep="\n", end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
