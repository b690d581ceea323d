"""Checks that each claim of the pages on security has its tests; `make lint` runs it.

A claim is a row of a table whose first cell is an ID; its last cell names files. Exactly those
files have tests with ``pytest.mark.claim(ID)``. The arguments are IDs whose tests are listed.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT: Final = Path(__file__).parent.parent
PAGES: Final = ("security", "security-objects", "permissions")
ROW: Final = re.compile(r"^\| ([A-Z]\d+) \|.*\|([^|]*)\|$", re.MULTILINE)
PATH: Final = re.compile(r"`(tests/[^`]+)`")
MARK: Final = re.compile(r'\bmark\.claim\("([^"]+)"\)')
NAME: Final = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


def faults(page: str, tests: Mapping[str, str]) -> Iterator[str]:
    """Yield each mismatch between a page and the texts of test files, which are given by path."""
    marked = defaultdict(set)
    for path, text in tests.items():
        for claim in MARK.findall(text):
            marked[claim].add(path)
    claimed = set()
    for claim, last in ROW.findall(page):
        if claim in claimed:
            yield f"{claim}: is the ID of two claims"
        claimed.add(claim)
        named = set(PATH.findall(last))
        if not named:
            yield f"{claim}: names no test"
        for path in sorted(named ^ marked[claim]):
            lack = "has no test with its mark" if path in named else "is not named in its row"
            yield f"{claim}: {path} {lack}"
    for claim in sorted(marked.keys() - claimed):
        yield f"{claim}: is marked in {', '.join(sorted(marked[claim]))} and is not a claim"


def listed(claim: str, tests: Mapping[str, str]) -> Iterator[str]:
    """The tests of a claim, as pytest takes them."""
    for path, text in tests.items():
        for mark in MARK.finditer(text):
            if mark[1] == claim and (match := NAME.search(text, mark.end())):
                yield f"{path}::{match[1]}"


def main(claims: list[str]) -> int:
    """Print what does not fit together, or the tests of claims; 1 where there is a fault."""
    tests = {
        str(path.relative_to(ROOT)): path.read_text()
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
    }
    if claims:
        print(*(line for claim in claims for line in listed(claim, tests)), sep="\n")
        return 0
    texts = ((ROOT / f"docs/operations/{page}.md").read_text() for page in PAGES)
    mismatches = [f"docs/operations: {fault}" for fault in faults("".join(texts), tests)]
    print(*mismatches, sep="\n", end="\n" if mismatches else "")
    return bool(mismatches)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
