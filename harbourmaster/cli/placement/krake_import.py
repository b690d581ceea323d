"""``harbourmaster migrate krake``: Krake's objects from files as placement objects, on stdout."""

from __future__ import annotations

import sys
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.cli.live.files import read_paths
from harbourmaster.cli.placement.krake import (
    KrakeConversion,
    RefusedError,
    convert_object,
    source_of,
)
from harbourmaster.serving.documents import Problem
from harbourmaster.serving.kubectl_yaml import dump
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterable

    from harbourmaster.serving.documents import Document

_WEIGHTED: Final = (
    "metric constraints compare the provider's value; Krake compares the normalised value times "
    "its weight: --placement-constraint-value=Weighted restores that"
)


class Outcome(Struct, frozen=True):
    """The objects in the order of their sources, and the lines of the report."""

    converted: tuple[KrakeConversion, ...]
    notes: tuple[str, ...]
    refused: tuple[str, ...]


def import_krake(arguments: Arguments) -> int:
    """Print the converted objects; return 1 if some cannot be converted."""
    # Krake's command line prints lists as arrays.
    documents = read_paths(arguments.files, arrays=True)
    outcome = convert_documents(documents, arguments.namespace, drop_hooks=arguments.drop_hooks)
    separator = ""
    for conversion in outcome.converted:
        for obj in conversion.objects:
            sys.stdout.write(separator + dump(obj))
            separator = "---\n"
    for line in outcome.notes:
        print(clean(line), file=sys.stderr)
    for line in outcome.refused:
        print(f"refused: {clean(line)}", file=sys.stderr)
    return 1 if outcome.refused else 0


def convert_documents(
    documents: Iterable[Document | Problem], default_namespace: str, *, drop_hooks: bool = False
) -> Outcome:
    """Convert the objects; objects that would get the same name are refused."""
    conversions: list[KrakeConversion] = []
    refused: list[str] = []
    for document in documents:
        if isinstance(document, Problem):
            refused.append(str(document))
            continue
        try:
            source = source_of(document.value)
        except RefusedError as error:
            refused.append(str(document.problem(str(error))))
            continue
        try:
            conversions.append(convert_object(source, default_namespace, drop_hooks=drop_hooks))
        except RefusedError as error:
            refused.append(str(document.problem(f"{source}: {error}")))
    kept, collided = _split_by_name(conversions)
    refused += collided
    notes = [note for conversion in kept for note in conversion.notes]
    if _has_metric_constraint(conversion.objects[-1] for conversion in kept):
        notes.append(_WEIGHTED)
    namespaces = sorted({conversion.key[1] for conversion in kept} - {"", "default"})
    if namespaces:
        notes.append(f"create these namespaces first: {', '.join(namespaces)}")
    return Outcome(tuple(kept), tuple(notes), tuple(refused))


def _split_by_name(conversions: list[KrakeConversion]) -> tuple[list[KrakeConversion], list[str]]:
    """Return the objects whose new names are unique, and why the others are refused."""
    of_key: dict[tuple[str, str, str], list[KrakeConversion]] = defaultdict(list)
    of_namespace: dict[str, set[str]] = defaultdict(set)
    for conversion in conversions:
        of_key[conversion.key].append(conversion)
        namespace = conversion.key[1]
        if namespace:
            of_namespace[namespace].add(conversion.source.namespace or namespace)
    refused = []
    for namespace, olds in sorted(of_namespace.items()):
        if len(olds) > 1:
            listed = " and ".join(sorted(olds))
            refused.append(f"namespaces {listed} would both be {namespace}: rename one first")
    for (kind, namespace, name), same in of_key.items():
        if len(same) > 1:
            place = f"{kind} {namespace}/{name}".replace(" /", " ")
            listed = " and ".join(str(conversion.source) for conversion in same)
            refused.append(f"{listed} would both be {place}: rename one or leave one out")
    kept = [
        conversion
        for conversion in conversions
        if len(of_key[conversion.key]) == 1 and len(of_namespace[conversion.key[1]]) <= 1
    ]
    return kept, refused


def _has_metric_constraint(objects: Iterable[dict[str, Any]]) -> bool:
    return any(
        isinstance(target, dict) and target.get("metrics")
        for obj in objects
        for target in obj.get("spec", {}).get("constraints", {}).values()
    )
