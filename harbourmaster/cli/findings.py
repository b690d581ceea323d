"""Findings of checks, printed as lines, as JSON or YAML, and as JUnit XML."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from xml.etree import ElementTree as ET

from msgspec import Struct

from harbourmaster.cli.batches import plural
from harbourmaster.cli.terminal import print_out
from harbourmaster.telemetry.text import clean

if TYPE_CHECKING:
    from argparse import Namespace as Arguments
    from collections import Counter
    from collections.abc import Iterator

    from harbourmaster.cli.terminal import Tone
    from harbourmaster.serving.documents import Document, Problem

    Results: TypeAlias = dict[tuple[str, str], list["Finding"]]
    "Findings by file and object, for all that were checked; the object is '' for a whole file."

Severity: TypeAlias = Literal["error", "warning"]
_FIELD: Final = re.compile(r"(?:(.*?): )?((?:apiVersion|kind|metadata|spec|status)\b[^\s:]*): (.*)")

_TOLD: Final = re.compile(r'(\w+ value: (?:"(?:\\.|[^"\\])*"|[^":]*)|.*?): (.*)')
"""Matches a fault with its value, and what to do."""


class Finding(Struct, frozen=True):
    """A fault of an object, or of a file whose objects cannot be read."""

    severity: Severity
    file: str
    line: int
    """The line at which the object begins."""
    object: str
    """``Kind namespace/name``; empty for a file."""
    field: str
    """The path of the field at fault, or ""."""
    message: str
    remedy: str = ""
    diff: tuple[str, ...] = ()
    """Lines of a unified diff, from what is expected to what was found."""

    def __str__(self) -> str:
        parts = (self.severity, self.object, self.field, self.message, self.remedy)
        return f"{self.file}:{self.line}: {': '.join(filter(None, parts))}"


def finding_of(severity: Severity, place: Document | Problem, subject: str, text: str) -> Finding:
    """A finding from a line of ours, in which a field stands first, or before what to do."""
    parts = _FIELD.fullmatch(text)
    before, field, rest = parts.groups() if parts else ("", "", text)
    message, remedy = (before, rest) if before else (rest, "")
    if not before and (told := _TOLD.fullmatch(rest)) and subject:
        message, remedy = told.groups()
    return Finding(severity, place.file, place.line, subject, field, message, remedy)


def conclude(arguments: Arguments, results: Results, matches: Counter[str], program: str) -> int:
    """Print all that was found as the arguments say; return the exit code.

    ``matches`` are the objects that each policy selects.
    """
    findings = [finding for of_object in results.values() for finding in of_object]
    errors = sum(finding.severity == "error" for finding in findings)
    objects = sum(bool(subject) for _, subject in results)
    counts = {"objects": objects, "errors": errors, "warnings": len(findings) - errors}
    failures = ("error", arguments.fail_on)
    if arguments.junit is not None:
        junit = _junit(results, matches, program, failures)
        ET.ElementTree(junit).write(arguments.junit, "utf-8", True)
    total = ", ".join(plural(number, noun[:-1]) for noun, number in counts.items())
    report = {**counts, "policies": matches, "findings": findings}
    print_out(arguments, report, [*_lines(findings, matches), total])
    return int(any(finding.severity in failures for finding in findings))


def _lines(findings: list[Finding], matches: Counter[str]) -> Iterator[str | tuple[str, Tone]]:
    for finding in findings:
        yield str(finding), "bad" if finding.severity == "error" else "waiting"
        yield from (f"  {line}" for line in finding.diff)
    for policy, count in matches.items():
        text = plural(count, "object") if count else "no object"
        yield f"{policy}: matches {text}", "" if count else "waiting"


def _junit(
    results: Results, matches: Counter[str], program: str, failures: tuple[str, ...]
) -> ET.Element:
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", name=program, tests=str(len(results)))
    if matches:
        properties = ET.SubElement(suite, "properties")
        for policy, count in matches.items():
            name = f"objects matched by {clean(policy)}"
            ET.SubElement(properties, "property", name=name, value=str(count))
    for (file, subject), findings in results.items():
        names = {"classname": clean(file), "name": clean(subject or file)}
        case = ET.SubElement(suite, "testcase", names)
        for severity in ("error", "warning"):
            tag = "failure" if severity in failures else "system-out"
            of_severity = [finding for finding in findings if finding.severity == severity]
            texts = [
                clean(text) for finding in of_severity for text in (str(finding), *finding.diff)
            ]
            if texts:
                ET.SubElement(case, tag).text = "\n".join(texts)
    suite.set("failures", str(len(suite.findall("testcase[failure]"))))
    return suites
