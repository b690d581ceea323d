"""What the manual says of targets is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from harbourmaster.evaluation.targets import is_met, parse_number, parse_target

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "evaluations.md"
ROW = re.compile(r"^\| `([<>=!][^`]*)` \| (.*) \| (.*) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
ROWS = ROW.findall(PAGE.read_text())


def test_the_manual_has_all_operators():
    assert {target[:-2] for target, *_ in ROWS[:6]} == {"<", ">", "<=", ">=", "==", "!="}


@pytest.mark.parametrize(("target", "met", "missed"), ROWS, ids=[row[0] for row in ROWS])
def test_the_examples_are_right(target, met, missed):
    conditions = parse_target(target)
    met, missed = ([parse_number(text) for text in CODE.findall(cell)] for cell in (met, missed))
    assert met
    assert missed
    assert all(is_met(conditions, value) for value in met)
    assert not any(is_met(conditions, value) for value in missed)
