"""The checks of imports, of claims and of language find what they are for."""

from __future__ import annotations

import claims
import pytest
from circles import find_circles, main
from language import faults

MODULES = {
    "__init__": "",
    "types": "import typing\nif typing.TYPE_CHECKING:\n    from sample import upper\n",
    "lower": "def run():\n    from sample.upper import run\n",
    "middle": "import sample.lower\nimport sample.types\n",
    "upper": "from sample import middle\n\ndef run():\n    from sample import types\n",
    "top": "from sample import upper\n",
}


@pytest.fixture
def sample(tmp_path, monkeypatch):
    (tmp_path / "sample").mkdir()
    for name, text in MODULES.items():
        (tmp_path / "sample" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return "sample"


def test_imports_inside_functions_close_a_circle_and_type_imports_do_not(sample):
    assert list(find_circles(sample)) == [["lower", "middle", "upper"]]


def test_the_product_has_no_circles(capsys):
    assert main() == 0, capsys.readouterr().out


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


@pytest.mark.parametrize(
    "text",
    [
        "a map is no list",
        "the value of now",
        "tried in vain",
        "users who may not",
        "whoever asks",
        "nothing is begun",
        "pods are made anew",
    ],
)
def test_a_phrase_that_must_not_return_is_found(text):
    (fault,) = faults("a.md", f"fine\n{text}")
    assert fault.startswith("a.md:2: ")


@pytest.mark.parametrize(
    "text",
    [
        '"""Made anew."""',
        "# made anew",
        'fail("made anew")',
        '"""Tried in vain."""',
        '"""Of a pod."""',
        "found = 1",
        "def pods(one): pass",
        "[\n    each for each in pods\n]",
    ],
)
def test_python_is_checked_for_phrases_fragments_and_vague_names(text):
    (fault,) = faults("a.py", text)
    assert fault.startswith("a.py:")


@pytest.mark.parametrize("text", ["pods = [each for each in names]", '"""Office hours."""'])
def test_short_comprehensions_and_sentences_pass(text):
    assert faults("a.py", text) == []


@pytest.mark.parametrize(
    "text", ["there is no list", "There is no list", "it is no longer there", "a map is not a list"]
)
def test_plain_words_pass(text):
    assert faults("a.md", text) == []
