"""Each test belongs to a stage, and to the gate or to the full run alone."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import stages

from helpers.assertions import faults
from helpers.gate import divide
from helpers.workers import group

TESTS = Path(__file__).parents[1]
REASON = "runc not found: apt-get install --yes runc"


def item(path, *marks):
    found = [SimpleNamespace(name=name) for name in marks]
    return SimpleNamespace(path=TESTS / path, iter_markers=lambda: iter(found))


@pytest.mark.parametrize(
    ("path", "marks", "is_in_the_gate"),
    [
        ("unit/test_a.py", (), True),
        ("unit/test_a.py", ("slow", "full"), False),
        ("cluster/test_a.py", ("gate", "cluster"), True),
        ("cluster/test_a.py", ("full",), False),
        # A test's own mark comes before its module's.
        ("cluster/test_a.py", ("gate", "full"), True),
        ("unit/test_a.py", ("full", "gate"), False),
    ],
)
def test_the_closest_mark_says_to_which_run_a_test_belongs(path, marks, is_in_the_gate):
    one = item(path, *marks)
    assert divide([one], TESTS) == (([one], []) if is_in_the_gate else ([], [one]))


def test_a_test_that_belongs_to_no_run_is_refused():
    items = [item("cluster/test_a.py", "slow"), item("chaos/test_b.py"), item("unit/test_c.py")]
    with pytest.raises(ValueError, match=r"full: chaos/test_b\.py, cluster/test_a\.py$"):
        divide(items, TESTS)


def test_every_folder_of_tests_is_in_one_stage():
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    staged = [folder for stage in stages.STAGES.values() for folder in stage.folders]
    assert sorted(folders) == sorted(staged)


def test_the_gate_stays_below_twelve_minutes():
    assert 0 < sum(stage.minutes.get("gate", 0) for stage in stages.STAGES.values()) <= 12


def test_the_gate_tries_the_same_in_each_run_and_the_full_run_prints_its_seed():
    gate = stages.command("unit", "gate", 1)
    assert {"--gate", "--hypothesis-profile=gate", "--randomly-seed=1"} <= set(gate)
    full = stages.command("unit", "full", 7)
    assert {"--hypothesis-profile=full", "--randomly-seed=7", "--hypothesis-seed=7"} <= set(full)
    assert "--gate" not in full


def test_every_test_can_fail():
    found = [
        f"{path.relative_to(TESTS.parent)}:{line} {name}: {fault}"
        for path in sorted(TESTS.glob("*/**/test_*.py"))
        for line, name, fault in faults(path.read_text())
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("check(1)", "no assertion"),
        ("for each in found(): assert each", "asserts only inside a loop over found()"),
        ("for each in NONE: assert each", "asserts only inside a loop over NONE"),
        ("for each in FILES: assert each", "asserts only inside a loop over FILES"),
        ("if found(): assert NONE", "asserts only inside if found()"),
        ("while found(): assert NONE", "asserts only inside a loop while found()"),
        (
            "assert all(each for each in found())",
            "asserts only inside all() over what may be empty",
        ),
        ("def inner(): assert NONE", "asserts only inside inner"),
        (
            "with found() as each:\n  for one in each: assert one",
            "asserts only inside a loop over each",
        ),
        ("assert found()\n for each in found(): assert each", None),
        ("for each in TWO: assert each", None),
        ("for each, one in zip(TWO, range(2)): assert each", None),
        ("for each in given: assert each", None),
        ("assert all(each for each in [1, 2])", None),
        ("if found(): assert 1\n else: assert 2", None),
        ("with pytest.raises(KeyError): found()", None),
        ("assert_right(1)", None),
    ],
)
def test_what_makes_a_test_one_that_cannot_fail(body, fault):
    constants = "NONE = []\nTWO = (1, 2)\nFILES = list(Path().glob('*'))\n"
    test = f"@pytest.mark.parametrize('given', TWO)\ndef test_it(given):\n {body}\n"
    expected = [] if fault is None else [(5, "test_it", fault)]
    assert list(faults(constants + test)) == expected


def test_a_module_stays_on_one_worker_and_flows_share_an_installation():
    groups = {
        group(f"tests/{path}::test_a")
        for path in ("cluster/test_flow_app.py", "cluster/test_flow_names.py")
    }
    assert groups == {"the first installation"}
    assert group("tests/cluster/test_hardened.py::test_a[1]") == "tests/cluster/test_hardened.py"
    assert group("tests/unit/test_flow_app.py::test_a") == "tests/unit/test_flow_app.py"


def test_a_stage_that_this_machine_cannot_run_is_named_and_alone_ends_with_2(monkeypatch, capsys):
    monkeypatch.setattr(stages, "why_not", lambda name: REASON if name == "node" else "")
    monkeypatch.setattr("sys.argv", ["stages.py", "full", "node"])
    assert stages.main() == 2
    assert capsys.readouterr().out == f"node: not run: {REASON}\n"


def test_a_stage_that_did_not_run_is_named_again_after_the_others(monkeypatch, capsys):
    monkeypatch.setattr(stages, "why_not", lambda name: REASON if name == "node" else "")
    monkeypatch.setattr(stages, "command", lambda *_: ["true"])
    monkeypatch.setattr("sys.argv", ["stages.py", "full", "unit", "node"])
    assert stages.main() == 0
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == last == f"node: not run: {REASON}"


@pytest.fixture
def checking(monkeypatch, tmp_path):
    """Return ``checking(code, said)``: the check of the node prints this and ends with this."""

    def checking(code, said):
        program = tmp_path / "python"
        (tmp_path / "said").write_text(said)
        program.write_text(f"#!/bin/sh\ncat {tmp_path}/said >&2\nexit {code}\n")
        program.chmod(0o700)
        monkeypatch.setattr("sys.executable", str(program))

    return checking


@pytest.mark.parametrize(
    ("code", "said", "reason"),
    [
        (0, "", ""),
        (0, "a warning of some library\n", ""),
        (1, f"a warning of some library\nplayground: {REASON}\n", REASON),
    ],
)
def test_the_exit_code_of_the_check_tells_whether_the_node_stage_runs(checking, code, said, reason):
    checking(code, said)
    assert stages.why_not("node") == reason


@pytest.mark.parametrize(("code", "said"), [(1, "Traceback\nValueError: x\n"), (2, ""), (1, "")])
def test_a_check_without_an_answer_ends_the_run(checking, code, said):
    checking(code, said)
    with pytest.raises(SystemExit, match=f"^check of the stage node failed with {code}: {said}"):
        stages.why_not("node")
