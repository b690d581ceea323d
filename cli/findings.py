"""What is found in files, and how it is printed: as lines, as JSON or YAML, and as JUnit XML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from xml.etree import ElementTree as ET

from msgspec import Struct

from harbourmaster.cli.batches import many
from harbourmaster.cli.live.cluster import DONE, LEFT, print_out
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections.abc import Iterator

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.serving.documents import Document, Problem

    Results: TypeAlias = dict[tuple[str, str], list["Finding"]]
    """By file and object, each that was checked; without an object, of the file as a whole."""
Severity: TypeAlias = Literal["error", "warning"]
_FIELD: Final = re.compile(r"(?:(.*?): )?((?:apiVersion|kind|metadata|spec|status)\b[^\s:]*): (.*)")

_TOLD: Final = re.compile(r'(\w+ value: (?:"(?:\\.|[^"\\])*"|[^":]*)|.*?): (.*)')
"""What is wrong, with the value, and what to do."""


class Finding(Struct, frozen=True):
    """What is wrong with an object, or with a file whose objects cannot be read."""

    severity: Severity
    file: str
    line: int
    """Where the object begins."""
    object: str
    """``Kind namespace/name``; empty for a file."""
    field: str
    """Its path, where one field is to blame."""
    message: str
    remedy: str = ""
    diff: tuple[str, ...] = ()
    """Lines of a unified diff, from what is expected to what was found."""

    def __str__(self) -> str:
        parts = (self.severity, self.object, self.field, self.message, self.remedy)
        return f"{self.file}:{self.line}: {': '.join(filter(None, parts))}"


def finding(severity: Severity, place: Document | Problem, subject: str, text: str) -> Finding:
    """A finding from a line of ours, in which a field stands first, or before what to do."""
    parts = _FIELD.fullmatch(text)
    before, field, rest = parts.groups() if parts else ("", "", text)
    message, remedy = (before, rest) if before else (rest, "")
    if not before and (told := _TOLD.fullmatch(rest)) and subject:
        message, remedy = told.groups()
    return Finding(severity, place.file, place.line, subject, field, message, remedy)


def conclude(arguments: Arguments, results: Results, program: str) -> int:
    """Print all that was found as the arguments say; returns the exit code."""
    found = [each for those in results.values() for each in those]
    errors = sum(each.severity == "error" for each in found)
    objects = sum(bool(subject) for _, subject in results)
    counts = {"objects": objects, "errors": errors, "warnings": len(found) - errors}
    if arguments.junit is not None:
        ET.ElementTree(_junit(results, program)).write(arguments.junit, "utf-8", True)
    total = ", ".join(many(number, noun[:-1]) for noun, number in counts.items())
    print_out(arguments, {**counts, "findings": found}, [*_lines(found), total])
    return LEFT if errors else DONE


def _lines(found: list[Finding]) -> Iterator[str | tuple[str, Tone]]:
    for each in found:
        yield str(each), "bad" if each.severity == "error" else "waiting"
        yield from (f"  {line}" for line in each.diff)


def _junit(results: Results, program: str) -> ET.Element:
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", name=program, tests=str(len(results)))
    for (file, subject), found in results.items():
        names = {"classname": clean(file), "name": clean(subject or file)}
        case = ET.SubElement(suite, "testcase", names)
        for severity, tag in (("error", "failure"), ("warning", "system-out")):
            those = [each for each in found if each.severity == severity]
            texts = [clean(text) for each in those for text in (str(each), *each.diff)]
            if texts:
                ET.SubElement(case, tag).text = "\n".join(texts)
    suite.set("failures", str(len(suite.findall("testcase[failure]"))))
    return suites
