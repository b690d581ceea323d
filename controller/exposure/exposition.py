"""Metric values as Prometheus text, in the shape in which Keptn gives them (keptn-spec 4.4): pure.

A gauge has the metric's name and no labels. Where several metrics have one name, be it in two
namespaces, each gets the labels ``namespace`` and ``name``: two samples alike are no valid text.
"""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from harbourmaster.controller.exposure.values import Measured
    from harbourmaster.evaluation.model import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_FOREIGN: Final = re.compile(r"[^a-zA-Z0-9_]")


def gauge_name(name: str) -> str:
    """The gauge of a metric; Prometheus knows no name that begins with a digit."""
    found = _FOREIGN.sub("_", name)
    return f"_{found}" if found[:1].isdigit() else found


def render(metrics: Iterable[tuple[Metric, Measured | None]]) -> bytes:
    """The text of all values. Metrics without one count only for whether a name is unique."""
    families: dict[str, list[tuple[Metric, Measured | None]]] = defaultdict(list)
    for each in metrics:
        families[gauge_name(each[0].metadata.name)].append(each)
    lines: list[str] = []
    for name in sorted(families):
        lines += _family(name, families[name])
    return "".join(f"{line}\n" for line in lines).encode()


def _family(name: str, members: list[tuple[Metric, Measured | None]]) -> list[str]:
    is_shared = len(members) > 1
    samples = sorted(
        f"{name}{_labels(metric) if is_shared else ''} {_shown(float(found.quantity))}"
        for metric, found in members
        if found is not None
    )
    if not samples:
        return []
    originals = {metric.metadata.name for metric, _ in members}
    title = originals.pop() if len(originals) == 1 else name
    return [f"# HELP {name} {title}", f"# TYPE {name} gauge", *samples]


def _labels(metric: Metric) -> str:
    # Names of objects have no character that would have to be escaped.
    return f'{{namespace="{metric.metadata.namespace}",name="{metric.metadata.name}"}}'


def _shown(number: float) -> str:
    return repr(number).removesuffix(".0")
