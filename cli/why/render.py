"""The report of ``why``: for people, and as JSON."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from harbourmaster.cli.terminal import json_text
from harbourmaster.cli.why.model import Section, State

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.terminal import Terminal, Tone
    from harbourmaster.cli.why.model import Line

_WIDEST_LABEL: Final = 48
_INDENT: Final = 2
_TONES: Final[dict[str, Tone]] = {
    "fine": "good",
    "waits": "waiting",
    "fault": "bad",
    "unknown": "waiting",
    "note": "",
}
_URGENCY: Final[tuple[State, ...]] = ("fault", "waits", "unknown", "note", "fine")


class SectionReport(Struct, frozen=True, kw_only=True, rename="camel"):
    """One subject, as programs read it; ``detail`` depends on the name."""

    name: str
    state: State
    code: str
    summary: str
    detail: Any


class Report(Struct, frozen=True, kw_only=True, rename="camel"):
    """What ``-o json`` prints of one object."""

    api_version: str
    kind: str
    namespace: str
    name: str
    state: State
    """The worst of the sections'."""
    summary: str
    """The first section's, which is the most urgent one."""
    sections: tuple[SectionReport, ...]


class Explained(Struct, frozen=True, kw_only=True):
    """Which object it is, what is seen of it at once, and its sections."""

    api_version: str
    kind: str
    namespace: str
    name: str
    seen: str = ""
    """Such as ``Pending for 4m, of Deployment cart``."""
    sections: tuple[Section, ...] = ()

    @property
    def urgent_first(self) -> list[Section]:
        """The sections, beginning with the one that is the answer."""
        return sorted(self.sections, key=lambda each: _URGENCY.index(each.state))


def report(explained: Explained) -> Report:
    """The report for programs."""
    worst = next(iter(explained.urgent_first), None)
    return Report(
        api_version=explained.api_version,
        kind=explained.kind,
        namespace=explained.namespace,
        name=explained.name,
        state=worst.state if worst else "fine",
        summary=worst.summary if worst else explained.seen,
        sections=tuple(
            SectionReport(
                name=each.name,
                state=each.state,
                code=each.code,
                summary=each.summary,
                detail=each.detail,
            )
            for each in explained.urgent_first
        ),
    )


def print_json(explained: Explained) -> None:
    """The report as one JSON document; several follow each other."""
    sys.stdout.buffer.write(json_text(report(explained)))
    sys.stdout.buffer.flush()


def text(explained: Explained, terminal: Terminal) -> Iterator[str]:
    """The lines for people."""
    name = f"{explained.namespace}/{explained.name}" if explained.namespace else explained.name
    yield terminal.line(f"{explained.kind} {name}", "strong")
    if explained.seen:
        yield terminal.line(explained.seen, indent=_INDENT)
    for each in explained.urgent_first:
        yield ""
        heading = f"{each.title}: {each.summary}"
        yield terminal.line(heading, _TONES[each.state] or "strong", hanging=_INDENT)
        yield from _lines(each.lines, terminal)


def _lines(lines: Sequence[Line], terminal: Terminal) -> Iterator[str]:
    """Neighbours of one depth share a column for their labels."""
    for depth, group in groupby(lines, key=lambda line: line.depth):
        neighbours = list(group)
        widths = [len(line.label) for line in neighbours if line.label]
        width = min(max(widths, default=0), _WIDEST_LABEL)
        for line in neighbours:
            yield _line(line, (depth + 1) * _INDENT, width, terminal)


def _line(line: Line, indent: int, width: int, terminal: Terminal) -> str:
    if not line.label:
        return terminal.line(line.text, line.tone, indent=indent, hanging=_INDENT)
    if len(line.label) > width or (terminal.width and width + indent > terminal.width // 2):
        # A label that leaves no room for its text stands above it.
        label = terminal.line(line.label, line.tone, indent=indent)
        return f"{label}\n{terminal.line(line.text, line.tone, indent=indent + 2 * _INDENT)}"
    shown = f"{line.label.ljust(width)}  {line.text}"
    return terminal.line(shown, line.tone, indent=indent, hanging=width + _INDENT)
