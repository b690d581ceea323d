"""Finds phrases and names that readers from other countries read twice; `make lint` runs it.

Each phrase has its replacement beside it. The arguments are files to check, by default all files
that git tracks. In Python files, a docstring must be a sentence that can be read alone, and no
variable has a name that does not say what it is.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
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
"""Not in documents, manifests, pages, and in the strings, docstrings and comments of Python."""
FRAGMENT: Final = re.compile(
    r"(?:Also|As|By|How|In|Its|Of|Ours|The same|Theirs?|What|When|Where|Which|Who|Whose)\b"
)
"""The first words of docstrings that only continue the name above them."""
VAGUE: Final = {"each", "found", "one", "other"}
"""Names that do not say what a variable is."""
ALLOWED: Final = {"LICENSE", "playground/LICENSE"}


def faults(name: str, text: str) -> list[str]:
    """Return the faults of a text, each as FILE:LINE: what is wrong: what to write."""
    suffix, is_test = Path(name).suffix, name.startswith("tests/")
    problems: list[str] = []
    if not is_test:
        lines = list(enumerate(text.splitlines(), 1))
        problems += _matches(name, lines, PHRASES)
        if suffix in SHOWN:
            problems += _matches(name, lines, STRICT)
    if suffix == ".py":
        tree = ast.parse(text)
        docstrings = list(_docstrings(tree))
        problems += _matches(name, [*docstrings, *_comments(text)], STRICT)
        problems += _fragments(name, docstrings)
        problems += _vague_names(name, tree)
        if not is_test:
            problems += _matches(name, _strings(tree), STRICT)
    return problems


def _matches(
    name: str, lines: Iterable[tuple[int, str]], phrases: Mapping[str, str]
) -> Iterator[str]:
    for number, line in lines:
        for phrase, instead in phrases.items():
            if match := re.search(phrase, line):
                yield f"{name}:{number}: {match[0]!r}: write {instead!r}"


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the strings of a module that are not docstrings, each with its line."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)


def _comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def _fragments(name: str, docstrings: Iterable[tuple[int, str]]) -> Iterator[str]:
    for number, docstring in docstrings:
        if start := FRAGMENT.match(docstring):
            yield f"{name}:{number}: docstring begins with {start[0]!r}: write a sentence"


def _vague_names(name: str, tree: ast.Module) -> Iterator[str]:
    """Yield variables and parameters with a vague name, except in a comprehension of one line."""
    short = {
        id(node)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp)
        and outer.lineno == outer.end_lineno
        for node in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            variable = node.arg
        elif (
            isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in short
        ):
            variable = node.id
        else:
            continue
        if variable in VAGUE:
            yield f"{name}:{node.lineno}: variable {variable!r}: name the thing"


def main(names: list[str]) -> int:
    """Print the faults, and return 1 if there is any."""
    if not names:
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
        )
        names = listed.stdout.splitlines()
    problems = [
        fault
        for name in names
        if Path(name).suffix in TEXTS and name not in ALLOWED and (ROOT / name).is_file()
        for fault in faults(name, (ROOT / name).read_text())
    ]
    print(*problems, sep="\n", end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
