"""Finds modules that import each other in a circle; `make lint` runs it.

Imports inside functions count, imports under TYPE_CHECKING do not: they are not run.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

import grimp

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = "harbourmaster"


def find_circles(package: str) -> Iterator[list[str]]:
    """Yield groups of modules each of which imports, over others, all modules of its group."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=True, cache_dir=None)
    seen: set[str] = set()
    for module in sorted(graph.modules):
        circle = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if circle and module not in seen:
            seen |= circle | {module}
            yield sorted(name.removeprefix(f"{package}.") for name in circle | {module})


def main() -> int:
    """Print the circles, and return 1 if there is any."""
    circles = list(find_circles(PACKAGE))
    for circle in circles:
        print(f"modules import each other: {', '.join(circle)}: move what they share")
    return bool(circles)


if __name__ == "__main__":
    sys.exit(main())
