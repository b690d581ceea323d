"""A preview for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.preview.grouping import alike

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.cli.preview.model import Policies, Report, Workload

_NAMESPACES: Final = 8


def lines(report: Report) -> Iterator[str]:
    """The lines, most important first."""
    yield from summary(report)
    for note in report.notes:
        yield f"note: {note}"
    stranded = [each for each in report.workloads if each.fit is not None and each.fit.lost]
    if stranded:
        yield ""
        yield "Pods that would fit no node any more:"
        for each in stranded:
            yield from _stranded(each)
    for group in alike(report.workloads):
        yield ""
        yield f"{shown([each.title for each in group.workloads])}, with {many(group.pods, 'pod')}:"
        for line in group.diff():
            yield f"  {line}"
        for warning in group.warnings:
            yield f"  warning: {warning}"


def summary(report: Report) -> Iterator[str]:
    """What is said in any form of the text."""
    totals = report.totals
    yield f"Policies: {policies(report.policies)}."
    if not totals.changed:
        yield f"None of {many(totals.workloads, 'workload')} would change."
        return
    yield (
        f"{totals.changed} of {many(totals.workloads, 'workload')} would change, with "
        f"{many(totals.pods, 'pod')}, in {many(len(report.namespaces), 'namespace')}: "
        f"{namespaces(report.namespaces)}."
    )
    if not totals.nodes:
        return
    nodes = many(totals.nodes, "node")
    yield f"{many(totals.unschedulable, 'pod')} would fit none of {nodes} any more."
    if totals.already_unschedulable:
        yield f"{many(totals.already_unschedulable, 'pod')} fit none as it is."
    if totals.unjudged:
        yield f"{many(totals.unjudged, 'pod')}: nobody here can tell."


def policies(found: Policies) -> str:
    """What is new about the policies."""
    parts = [
        f"{len(names)} {verb} ({shown(list(names))})"
        for verb, names in (
            ("added", found.added),
            ("changed", found.changed),
            ("removed", found.removed),
        )
        if names
    ]
    return ", ".join([*parts, f"{found.unchanged} unchanged"])


def namespaces(counts: dict[str, int]) -> str:
    """The namespaces with most, and how many more."""
    found = [f"{name} {count}" for name, count in counts.items()]
    more = len(found) - _NAMESPACES
    return ", ".join(found[:_NAMESPACES]) + (f" and {more} more" if more > 0 else "")


def _stranded(workload: Workload) -> Iterator[str]:
    fit = workload.fit
    if fit is not None:
        yield f"  {workload.title}: {fit.lost} of {many(fit.pods, 'pod')}"
        for reason, count in fit.reasons.items():
            yield f"    {many(count, 'node')}: {reason}"
