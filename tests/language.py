"""Finds phrases that readers from other countries read twice; `make lint` runs it.

Each phrase stands beside what to write instead. Give files to look at; without any, all that git
tracks are looked at.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
TEXTS: Final = {".css", ".html", ".js", ".md", ".py", ".sh", ".toml", ".yaml", ".yml", ""}
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
    r"\bto (?:be )?(?:begun|bidden)\b": "start",
}
ALLOWED: Final = {"CHANGELOG.md", "LICENSE", "playground/LICENSE"}


def faults(name: str, text: str) -> list[str]:
    """The places in a text that hold one of the phrases: FILE:LINE: phrase: instead."""
    return [
        f"{name}:{number}: {found[0]!r}: write {instead!r}"
        for number, line in enumerate(text.splitlines(), 1)
        for phrase, instead in PHRASES.items()
        if (found := re.search(phrase, line))
    ]


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
