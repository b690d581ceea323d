"""A claim of the page on security without its test is found."""

from __future__ import annotations

import claims
import pytest

PAGE = """\
| ID | claim | how | tested in |
|---|---|---|---|
| A1 | one | so | `tests/a.py`, `tests/b.py` |
"""
MARK = '@pytest.mark.{}("A1")\ndef test_it():'.format("claim")
FITTING = {"tests/a.py": MARK, "tests/b.py": MARK}


def test_claims_and_tests_that_fit_have_no_fault():
    assert not list(claims.faults(PAGE, FITTING))
    assert list(claims.listed("A1", FITTING)) == ["tests/a.py::test_it", "tests/b.py::test_it"]


@pytest.mark.parametrize(
    ("page", "tests", "fault"),
    [
        (PAGE, {"tests/a.py": MARK}, "A1: tests/b.py has no test with its mark"),
        (PAGE, {**FITTING, "tests/c.py": MARK}, "A1: tests/c.py is not named in its row"),
        (PAGE.replace("A1", "A2"), FITTING, "A1: is marked in tests/a.py, tests/b.py and is not"),
        (PAGE * 2, FITTING, "A1: is the ID of two claims"),
        ("| A1 | one | so | by eye |\n", {}, "A1: names no test"),
    ],
)
def test_what_does_not_fit_is_told(page, tests, fault):
    assert any(problem.startswith(fault) for problem in claims.faults(page, tests))
