"""A preview for people: as text, and as a comment on a pull request, of a length that fits there.

Names come from strangers: nothing of them is markup, and no fence can be closed by what it holds.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.live.files import dump
from harbourmaster.cli.preview.model import ChangedWorkload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harbourmaster.cli.preview.model import Fit, PreviewedPolicies, PreviewReport

LIMIT: Final = 60_000
"""Characters of a comment; GitHub takes 65,536."""
_NAMESPACES: Final = 8
_ROWS: Final = 50
_DIFF_LINES: Final = 200
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]()<>#+!|~&@])")
_TICKS: Final = re.compile("`+")


class Alike(Struct, frozen=True):
    """Workloads with the same changes and warnings."""

    workloads: tuple[ChangedWorkload, ...]

    @property
    def pods(self) -> int:
        """Of all of them."""
        return sum(workload.pods for workload in self.workloads)

    @property
    def warnings(self) -> tuple[str, ...]:
        """That each of them gets."""
        return self.workloads[0].warnings

    def diff(self) -> list[str]:
        """The fields of the pod spec that change, as a unified diff of YAML."""
        changes = self.workloads[0].changes
        now = _side({change.field: change.now for change in changes})
        then = _side({each.field: each.then for each in changes})
        # The first lines name files, of which there are none.
        return list(difflib.unified_diff(now, then, n=2, lineterm=""))[2:]


def alike(workloads: Iterable[ChangedWorkload]) -> list[Alike]:
    """Groups, those of most workloads first."""
    groups: dict[bytes, list[ChangedWorkload]] = {}
    for workload in workloads:
        key = msgspec.json.encode((workload.changes, workload.warnings))
        groups.setdefault(key, []).append(workload)
    found = [Alike(tuple(each)) for each in groups.values()]
    return sorted(found, key=lambda group: -len(group.workloads))


def _side(fields: dict[str, Any]) -> list[str]:
    given = {name: value for name, value in fields.items() if value is not None}
    return dump(given).splitlines() if given else []


def text(report: PreviewReport) -> Iterator[str]:
    """The lines, most important first."""
    yield from summary(report)
    for note in report.notes:
        yield f"note: {note}"
    stranded = _stranded(report)
    if stranded:
        yield ""
        yield "Pods that would no longer fit any node:"
    for title, fit in stranded:
        yield f"  {title}: {fit.lost} of {many(fit.pods, 'pod')}"
        for reason in _reasons(fit):
            yield f"    {reason}"
    for group in alike(report.workloads):
        yield ""
        titles = shown([workload.title for workload in group.workloads])
        yield f"{titles}, with {many(group.pods, 'pod')}:"
        for line in group.diff():
            yield f"  {line}"
        for warning in group.warnings:
            yield f"  warning: {warning}"


def summary(report: PreviewReport) -> Iterator[str]:
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
    yield f"{many(totals.unschedulable, 'pod')} would no longer fit any of {nodes}."
    if totals.already_unschedulable:
        verb = "is" if totals.already_unschedulable == 1 else "are"
        yield f"{many(totals.already_unschedulable, 'pod')} {verb} already unschedulable."
    if totals.unjudged:
        yield f"{many(totals.unjudged, 'pod')}: whether they fit is unknown."


def policies(found: PreviewedPolicies) -> str:
    """What is new about the policies."""
    parts = [
        f"{len(names)} {verb} ({shown(list(names))})"
        for verb in ("added", "changed", "removed")
        if (names := getattr(found, verb))
    ]
    return ", ".join([*parts, f"{found.unchanged} unchanged"])


def namespaces(counts: dict[str, int]) -> str:
    """The namespaces with most, and how many more."""
    return shown([f"{name} {count}" for name, count in counts.items()], _NAMESPACES)


def _stranded(report: PreviewReport) -> list[tuple[str, Fit]]:
    """The workloads whose pods would no longer fit any node."""
    return [
        (workload.title, workload.fit)
        for workload in report.workloads
        if workload.fit and workload.fit.lost
    ]


def _reasons(fit: Fit) -> list[str]:
    return [f"{many(count, 'node')}: {reason}" for reason, count in fit.reasons.items()]


def markdown(report: PreviewReport) -> Iterator[str]:
    """The lines; groups of changes are left out where it gets too long."""
    found = ["### Preview of scheduling policies", ""]
    found += [f"- {escaped(line)}" for line in summary(report)]
    found += [f"- note: {escaped(note)}" for note in report.notes]
    found += _table(report)
    yield from found
    length = sum(map(len, found))
    groups = alike(report.workloads)
    for number, group in enumerate(groups):
        block = list(_details(group))
        length += sum(len(line) + 1 for line in block)
        if length > LIMIT:
            yield ""
            yield f"{many(len(groups) - number, 'more group')} of changes, left out here."
            return
        yield from block


def escaped(text: str) -> str:
    """Text of strangers, on one line, none of which is markup."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def _table(report: PreviewReport) -> list[str]:
    stranded = _stranded(report)
    if not stranded:
        return []
    found = ["", "**Pods that would no longer fit any node**", ""]
    found += ["| workload | pods | why |", "|---|---|---|"]
    for title, fit in stranded[:_ROWS]:
        why = escaped("; ".join(_reasons(fit)))
        found.append(f"| {escaped(title)} | {fit.lost} of {fit.pods} | {why} |")
    if len(stranded) > _ROWS:
        found += ["", f"{many(len(stranded) - _ROWS, 'more workload')}."]
    return found


def _details(group: Alike) -> Iterator[str]:
    names = escaped(shown([workload.title for workload in group.workloads]))
    yield ""
    yield f"<details><summary>{names}, with {many(group.pods, 'pod')}</summary>"
    yield ""
    diff = group.diff()
    cut = diff[:_DIFF_LINES]
    longest = max((len(found) for line in cut for found in _TICKS.findall(line)), default=0)
    fence = "`" * max(longest + 1, 3)
    yield f"{fence}diff"
    yield from cut
    yield fence
    if len(diff) > len(cut):
        yield f"{len(diff) - len(cut)} more lines."
    for warning in group.warnings:
        yield f"- warning: {escaped(warning)}"
    yield ""
    yield "</details>"
