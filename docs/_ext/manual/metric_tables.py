"""All metrics with their labels and what they mean, as the processes show them."""

from __future__ import annotations

from manual.families import FAMILIES, labels_of, shown_name
from manual.markdown import code, definitions, plain


def metric_table() -> str:
    """By name; one that several parts have is told once, with all who have it."""
    owners: dict[str, list[str]] = {}
    families = {}
    for owner, collect in FAMILIES.items():
        for family in collect():
            families[shown_name(family)] = family
            owners.setdefault(shown_name(family), []).append(owner)
    return definitions(
        (
            code(name),
            [
                plain(family.documentation),
                f"A {family.type} of {'; '.join(owners[name])}"
                + (f", by {', '.join(map(code, labels))}" if labels else ""),
            ],
        )
        for name, family in sorted(families.items())
        for labels in [sorted(labels_of(family))]
    )
