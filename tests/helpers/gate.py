"""Which tests belong to the gate for changes, and which to the full run alone."""

from __future__ import annotations

IN_THE_GATE = {"unit", "conformance", "property", "security"}
"""The folders whose tests belong to the gate unless they are marked ``full``."""


def divide(items, root):
    """Return the items of the gate and the others. Raises ValueError with files that say neither.

    The closest mark counts: a test's own before its module's.
    """
    gate, full, neither = [], [], set()
    for item in items:
        path = item.path.relative_to(root)
        names = [mark.name for mark in item.iter_markers() if mark.name in {"gate", "full"}]
        if not names and path.parts[0] not in IN_THE_GATE:
            neither.add(str(path))
        (full if names[:1] == ["full"] else gate).append(item)
    if neither:
        raise ValueError(f"mark as gate or full: {', '.join(sorted(neither))}")
    return gate, full
