"""The report of ``why``: for people, and as JSON."""

from __future__ import annotations

import sys
from itertools import groupby
from typing import TYPE_CHECKING, Final, get_args

from harbourmaster.cli.terminal import FORMATS, Terminal
from harbourmaster.cli.why.model import Line, State
from harbourmaster.cli.why.steps import NOTHING, step_of

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterator, Sequence

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.cli.why.model import Report, Section

_WIDEST_LABEL: Final = 48
_INDENT: Final = 2
_TONES: Final[dict[State, Tone]] = {
    "fault": "bad",
    "waits": "waiting",
    "unknown": "waiting",
    "note": "strong",
    "fine": "good",
}
_STATES: Final = get_args(State)
_FOR_PROGRAMS: Final = ("name", "state", "code", "summary", "detail")
"""The fields of a section that are printed for programs."""


def show(arguments: Arguments, report: Report) -> None:
    """Print one report; several JSON documents follow each other."""
    sections = sorted(report.sections, key=lambda section: _STATES.index(section.state))
    if arguments.output in FORMATS:
        begin = b"---\n" if arguments.output == "yaml" else b""
        subject = report.subject
        # State and summary are the most urgent section's.
        document = {
            "apiVersion": subject.api_version,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "state": sections[0].state,
            "summary": sections[0].summary,
            "sections": [
                {key: getattr(section, key) for key in _FOR_PROGRAMS}
                | {"next": step_of(section, report)}
                for section in sections
            ],
        }
        sys.stdout.buffer.write(begin + FORMATS[arguments.output](document))
        sys.stdout.buffer.flush()
        return
    for line in _text(report, sections, Terminal.of(sys.stdout)):
        print(line)
    print(flush=True)


def _text(report: Report, sections: Sequence[Section], terminal: Terminal) -> Iterator[str]:
    """The lines for people."""
    yield terminal.line(report.subject.reference, "strong")
    if report.summary:
        yield terminal.line(report.summary, indent=_INDENT)
    for section in sections:
        yield ""
        heading = f"{section.name.capitalize()}: {section.summary}"
        yield terminal.line(heading, _TONES[section.state], hanging=_INDENT)
        step = NOTHING if section.state == "fine" else step_of(section, report)
        steps = [Line(step, label="next", tone="strong")] if step not in {"", NOTHING} else []
        yield from _lines([*section.lines, *steps], terminal)


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
