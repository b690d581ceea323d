"""The table of faults that the gate must notice fits the code as it is now."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from mutants.run import LEVELS, ROOT, Fault, read

from helpers.compiler_faults import FAULTS as COMPILER_FAULTS

FAULTS = read()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_its_place_and_its_tests(fault):
    before = (ROOT / fault.file).read_text()
    after = fault.break_text(before)
    assert "\n" not in fault.old + fault.new
    assert after != before
    if fault.file.endswith(".py"):
        ast.parse(after)
    for test in fault.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        assert not name or f"def {name}(" in (ROOT / path).read_text(), test
    assert fault.why


def test_a_fault_whose_place_is_gone_or_ambiguous_is_refused():
    fault = Fault("one", "a.py", "b", "c", [], "why")
    assert fault.break_text("abc") == "acc"
    for text in ("", "bb"):
        with pytest.raises(ValueError, match=r"^old occurs \d times: a\.py: one$"):
            fault.break_text(text)


def test_there_are_faults_of_every_package_and_for_the_real_api_server():
    levels = Counter(fault.level for fault in FAULTS)
    assert len(FAULTS) >= 80
    assert levels["cluster"] + levels["chaos"] + levels["security"] >= 25
    packages = {path.parent.name for path in ROOT.glob("harbourmaster/*/__init__.py")}
    files = {fault.file.removeprefix("harbourmaster/") for fault in FAULTS}
    assert packages | {"deploy"} <= {file.partition("/")[0] for file in files}


def test_cheap_faults_come_first():
    ranks = [LEVELS.index(fault.level) for fault in FAULTS]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("name", COMPILER_FAULTS)
def test_a_fault_of_the_compiler_has_its_place(name):
    assert COMPILER_FAULTS[name].places == 1
