"""Finds modules that import each other in a circle; `make lint` runs it.

Imports inside functions count, imports under TYPE_CHECKING do not: they are not run.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PACKAGE: Final = "harbourmaster"
REMAINING: Final[list[list[str]]] = []
"""Circles that are still to be removed."""


def find_circles(package: str) -> Iterator[list[str]]:
    """Yield groups of modules each of which imports, over others, all modules of its group."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    seen: set[str] = set()
    for module in sorted(graph.modules):
        circle = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if circle and module not in seen:
            seen |= circle | {module}
            yield sorted(name.removeprefix(f"{package}.") for name in circle | {module})


def list_faults(circles: Iterable[list[str]], remaining: Iterable[list[str]]) -> Iterator[str]:
    """Yield circles that are new, and remaining ones that no longer exist."""
    circles, remaining = list(circles), list(remaining)
    for circle in circles:
        if circle not in remaining:
            yield f"modules import each other: {', '.join(circle)}: move what they share"
    for circle in remaining:
        if circle not in circles:
            yield f"circle no longer exists: {circle}: remove it from tests/circles.py"


def main() -> int:
    """Print what differs from the remaining circles; 1 if anything does."""
    faults = list(list_faults(find_circles(PACKAGE), REMAINING))
    print(*faults, sep="\n", end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
