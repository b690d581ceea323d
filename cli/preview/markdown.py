"""A preview as a comment on a pull request, of a length that is taken there.

Names come from strangers: nothing of them is markup, and no fence can be closed by what it holds.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from harbourmaster.cli.batches import many, shown
from harbourmaster.cli.preview.grouping import alike
from harbourmaster.cli.preview.text import summary

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harbourmaster.cli.preview.grouping import Alike
    from harbourmaster.cli.preview.model import Report

LIMIT: Final = 60_000
"""Characters; GitHub takes 65,536."""
_ROWS: Final = 50
_DIFF_LINES: Final = 200
_MARKUP: Final = re.compile(r"([\\`*_{}\[\]()<>#+!|~&@])")
_TICKS: Final = re.compile("`+")


def lines(report: Report) -> Iterator[str]:
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


def _table(report: Report) -> list[str]:
    stranded = [each for each in report.workloads if each.fit is not None and each.fit.lost]
    if not stranded:
        return []
    found = ["", "**Pods that would fit no node any more**", ""]
    found += ["| workload | pods | why |", "|---|---|---|"]
    for each in stranded[:_ROWS]:
        fit = each.fit
        if fit is not None:
            why = "; ".join(f"{many(count, 'node')}: {why}" for why, count in fit.reasons.items())
            found.append(f"| {escaped(each.title)} | {fit.lost} of {fit.pods} | {escaped(why)} |")
    if len(stranded) > _ROWS:
        found += ["", f"{many(len(stranded) - _ROWS, 'more workload')}."]
    return found


def _details(group: Alike) -> Iterator[str]:
    names = escaped(shown([each.title for each in group.workloads]))
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
