"""Every citation leads to a numbered section of docs/internals, and tests cite every section."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INTERNALS = ROOT / "docs/internals"
NUMBER = r"\d+(?:\.\d+)?"
JOINED = r"(?:,? and|,| to|-)"
SECTIONS = re.compile(
    rf"\b(?P<page>[a-z]+-spec)\b(?:\s+(?P<numbers>{NUMBER}(?:{JOINED}\s*{NUMBER})*))?"
    rf"(?:,\s(?:items?|rule)\s(?P<items>\d+(?:(?: and |-)\d+)*))?(?:,\scase\s(?P<case>\w+))?"
)
RANGE = re.compile(rf"({NUMBER})(?:(?: to|-)\s*({NUMBER}))?")
UNTESTED = {
    ("krake-spec", "0"): "a summary of later sections, which have tests",
    ("kupid-spec", "6.8"): "permissions of kupid, on which nothing here depends",
}
"""Sections that no test cites, with the reason."""
LISTED = re.compile(r"\b([DRS][1-9]\d?)\b")
GONE = re.compile(r'(?<![\w/"-])(?:kupid|keptn|krake|rescheduler|platform|ecosystem|design)\.md')
BUILT = {"build", "dist", "docs"}
SOURCES = {
    str(file.relative_to(ROOT)): file.read_text()
    for folder in ROOT.iterdir()
    if folder.is_dir() and folder.name not in BUILT and not folder.name.startswith(".")
    for suffix in ("py", "yaml")
    for file in folder.rglob(f"*.{suffix}")
    if file != Path(__file__)
}


@cache
def sections(page):
    """The text below each numbered heading of a page, by number; nothing where there is no page."""
    file = INTERNALS / f"{page}.md"
    text = file.read_text() if file.exists() else ""
    parts = re.split(rf"^#+ ({NUMBER}) .+$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@cache
def spec_sections():
    """The numbers of decisions, goals and security tests."""
    decisions = re.findall(r"^## (D\d+)$", (INTERNALS / "decisions.md").read_text(), re.MULTILINE)
    goals = re.findall(r"^\| ([RS]\d+) \|", (INTERNALS / "goals.md").read_text(), re.MULTILINE)
    return {*decisions, *goals}


def find_unresolved(text):
    """The citations of a text that lead nowhere."""
    yield from GONE.findall(text)
    yield from (number for number in LISTED.findall(text) if number not in spec_sections())
    for cited in SECTIONS.finditer(text):
        known = sections(cited["page"])
        numbers = re.findall(NUMBER, cited["numbers"] or "")
        below = known.get(numbers[-1], "") if numbers else ""
        items = re.findall(r"\d+", cited["items"] or "")
        if (
            not known
            or not set(numbers) <= set(known)
            or any(f"\n{item}. " not in below for item in items)
            or (cited["case"] and not re.search(rf"^\|.*\b{cited['case']}\b", below, re.MULTILINE))
        ):
            yield cited[0]


def test_every_citation_leads_to_a_section():
    problems = {name: list(find_unresolved(text)) for name, text in SOURCES.items()}
    assert {name: bad for name, bad in problems.items() if bad} == {}


def test_the_sources_cite_each_page():
    cited = {
        match["page"] for name in SOURCES for match in SECTIONS.finditer((ROOT / name).read_text())
    }
    assert cited == {page.stem for page in INTERNALS.glob("*-spec.md")}


def cited_sections(text):
    """Yield the page and the number of each section that a text cites, those of ranges too."""
    for cited in SECTIONS.finditer(text):
        known = list(sections(cited["page"]))
        for first, last in RANGE.findall(cited["numbers"] or ""):
            end = known.index(last or first) + 1
            yield from ((cited["page"], number) for number in known[known.index(first) : end])


def test_each_rule_has_a_test_or_a_reason():
    """A section is a rule if it has text, and a test proves it if its text cites the section."""
    rules = {
        (page.stem, number)
        for page in INTERNALS.glob("*-spec.md")
        for number, text in sections(page.stem).items()
        if text.strip()
    }
    tested = {
        section
        for name, text in SOURCES.items()
        if name.startswith("tests/")
        for section in cited_sections(text)
    }
    assert sorted(rules - tested - UNTESTED.keys()) == []
    assert sorted(UNTESTED.keys() & tested) == []
    assert sorted(UNTESTED.keys() - rules) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("krake-spec 3.3 to 3.5 and others", ["3.3", "3.4", "3.5"]),
        ("krake-spec 2.1-2.3, 7.6", ["2.1", "2.2", "2.3", "7.6"]),
        ("krake-spec 1.1 and 8, case S8", ["1.1", "8"]),
        ("krake-spec", []),
    ],
)
def test_a_citation_names_these_sections(text, expected):
    assert [number for _, number in cited_sections(text)] == expected


@pytest.mark.parametrize(
    "citation",
    [
        "keptn-spec 99.1",
        "keptn-spec 2.3, 2.99",
        "kupid-spec 5.2, item 70",
        "rescheduler-spec 3.8, rule 9",
        "krake-spec 8, case S99",
        "kueue-spec 1",
        "decision D99",
        "goal R99",
        "S99",
        "keptn.md 2.3",
    ],
)
def test_a_citation_that_leads_nowhere_is_found(citation):
    assert list(find_unresolved(f'"""Does something ({citation})."""'))


@pytest.mark.parametrize(
    "citation",
    [
        "keptn-spec 2.3, 2.4 and decision D7",
        "krake-spec 3.3 to 3.6",
        "kupid-spec 6.6-6.8, 8 and 9",
        "rescheduler-spec 4.2, items 5 and 6",
        "krake-spec 8, case S8",
        "goal R10, S22",
    ],
)
def test_a_citation_of_a_section_is_accepted(citation):
    assert list(find_unresolved(f'"""Does something ({citation})."""')) == []
