"""The figures of ``make bench``: those of this machine, or else those that were kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[3]
_MEASURED: Final = _ROOT / "build" / "bench" / "bench.md"
_KEPT: Final = _ROOT / "docs" / "_ext" / "figures.md"
"""A copy of ``_MEASURED``, of a quiet machine."""


def figures() -> str:
    """The tables, one level below the page's own titles."""
    for file in (_MEASURED, _KEPT):
        if file.exists():
            return "#" + re.sub("^##", "###", file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return "No figures are kept in this copy: `make bench` measures them in ten minutes.\n"
