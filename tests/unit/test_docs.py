"""What the manual lists is what the code has, no more and no less."""

from __future__ import annotations

import argparse
import ast
import re
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path

import pytest

from cli.options import add_settings
from policies.merge import Note
from policies.model import POLICY
from telemetry.metrics import (
    CERTIFICATE_ROLES,
    OUTCOMES,
    SHED_REASONS,
    create_metrics,
    set_certificate_expiry,
)
from webhook import handlers, review
from webhook.settings import Settings

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
SERVER = ROOT / "docs" / "server.md"

LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`]+)`")
SETTING = re.compile(r"^ +(--[a-z-]+) \S+.*?\[([A-Za-z.]+): ([^]]*)\]$", re.MULTILINE)


def without_blocks(page):
    """The text of a page, its code blocks left out."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def rows(page, first_column):
    """The rows of the one table whose first column has that title; cells as written."""
    tables = re.findall(r"(?:^\|.*\|\n)+", without_blocks(page), re.MULTILINE)
    lines = [[cells(line) for line in table.splitlines()] for table in tables]
    (found,) = [table for table in lines if table[0][0] == first_column]
    return found[2:]


def cells(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code(cell):
    (found,) = CODE.findall(cell)
    return found


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def calls():
    """Every call in the rooms that answer: the function's name and the call."""
    for room in ("policies", "serving", "webhook"):
        for file in (ROOT / room).glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Call):
                    name = node.func
                    yield getattr(name, "attr", None) or getattr(name, "id", ""), node


def constants(call, kind):
    return [
        arg.value for arg in call.args if isinstance(arg, ast.Constant) and type(arg.value) is kind
    ]


@pytest.fixture
def settings(monkeypatch):
    """The flag, key and default of each setting, as ``--help`` shows them."""
    monkeypatch.setenv("COLUMNS", "1000")
    parser = argparse.ArgumentParser(formatter_class=wide)
    add_settings(parser, Settings)
    return {(key, flag, default) for flag, key, default in SETTING.findall(parser.format_help())}


def wide(prog):
    return argparse.HelpFormatter(prog, max_help_position=200)


@pytest.fixture
def families():
    metrics = create_metrics("1", handlers.OUTCOMES)
    # Those with a label show nothing before its first value.
    metrics.admission_skipped.labels("deadline").inc()
    metrics.policies.labels(POLICY).set(1)
    set_certificate_expiry(metrics, "leaf", datetime.now(UTC))
    found = [
        family
        for family in metrics.registry.collect()
        if not family.name.startswith(("python_", "process_"))
    ]
    assert all(family.samples for family in found)
    return found


def test_the_manual_lists_every_setting_with_its_flag_and_default(settings):
    listed = {(code(row[0]), code(row[1]), code(row[2])) for row in rows(SERVER, "key")}
    assert listed == settings


def test_the_manual_lists_every_audit_code():
    given = set()
    for name, call in calls():
        # The code comes before the text, and both may be constants.
        if name in {Note.__name__, "_skip", "answer_unchanged"} and (texts := constants(call, str)):
            given.add(texts[0])
    assert {code(row[0]) for row in rows(SERVER, "code")} == given


def test_the_manual_lists_every_metric_with_its_type(families):
    suffix = {"counter": "_total"}
    exposed = {(family.name + suffix.get(family.type, ""), family.type) for family in families}
    assert {(code(row[0]), row[1]) for row in rows(SERVER, "metric")} == exposed


def test_the_manual_lists_every_label_of_the_metrics(families):
    listed = {code(row[0]): set(CODE.findall(row[2])) for row in rows(SERVER, "metric")}
    for family in families:
        for sample in family.samples:
            name = re.sub("_(bucket|count|sum)$", "", sample.name)
            assert set(sample.labels) - {"le"} == listed[name]


def test_the_manual_names_every_value_of_a_label(families):
    meanings = {code(row[0]): set(CODE.findall(row[3])) for row in rows(SERVER, "metric")}
    named = set().union(*meanings.values())
    kupid = {
        sample.labels["type"]
        for family in families
        for sample in family.samples
        if sample.name.startswith("kupid_")
    }
    assert {*OUTCOMES, *handlers.OUTCOMES, *SHED_REASONS, *CERTIFICATE_ROLES, *kupid} <= named


def test_the_manual_lists_every_http_status():
    given = {HTTPStatus.OK}
    for name, call in calls():
        if name == "Refusal":
            given.update(constants(call, int))
        given.update(
            keyword.value.value
            for keyword in call.keywords
            if keyword.arg == "status" and isinstance(keyword.value, ast.Constant)
        )
    for file in (ROOT / "serving").glob("*.py"):
        given.update(
            HTTPStatus[name] for name in re.findall(r"HTTPStatus\.([A-Z_]+)", file.read_text())
        )
    assert {int(row[0]) for row in rows(SERVER, "status")} == given


def test_the_manual_names_every_code_inside_a_review():
    text = without_blocks(SERVER)
    assert set(re.findall(r"code (\d{3})", text)) == {
        str(review.BAD_REQUEST),
        str(review.FORBIDDEN),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_to_a_file_and_a_heading(page):
    for link in LINK.findall(without_blocks(page)):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not anchor or anchor in anchors(target), link
