"""Each test belongs to a stage, and to the gate or to the full run alone."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
import stages
from hypothesis import given
from hypothesis import strategies as st

from helpers.assertions import faults
from helpers.gate import divide
from helpers.shards import Recorder, Report, find_omissions, split_files

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


def test_the_gate_stays_within_eight_minutes_of_two_cores():
    budgets = [stage.budgets["gate"] for stage in stages.STAGES.values() if "gate" in stage.budgets]
    assert stages.TOTAL_MINUTES["gate"] <= 8
    assert 0 < sum(budget.cpu_seconds for budget in budgets) <= 2 * 60 * 8
    assert all(0 < budget.minutes <= 8 for budget in budgets)


def test_the_gate_tries_the_same_in_each_run_and_the_full_run_prints_its_seed():
    gate, *_ = stages.jobs_of("unit", "gate", 1)
    assert {"--gate", "--hypothesis-profile=gate", "--randomly-seed=1"} <= set(gate.command)
    full, *_ = stages.jobs_of("unit", "full", 7)
    seeds = {"--hypothesis-profile=full", "--randomly-seed=7", "--hypothesis-seed=7"}
    assert seeds <= set(full.command)
    assert "--gate" not in full.command


def test_the_table_of_weights_names_files_that_exist():
    weights = json.loads(stages.WEIGHTS.read_text())
    files = {file for name in stages.STAGES for file in stages.list_files(name)}
    assert weights.keys() <= files


@given(st.dictionaries(st.text("ab", min_size=1), st.floats(0, 100), min_size=1), st.integers(1, 4))
def test_each_file_goes_to_one_process_and_all_have_about_the_same_to_do(weights, count):
    shards = split_files(weights, count, weights, 0)
    assert len(shards) == count
    assert sorted(file for shard in shards for file in shard) == sorted(weights)
    loads = [sum(map(weights.get, shard)) for shard in shards]
    assert max(loads) - min(loads) <= max(weights.values()) + 1e-6


def test_modules_that_share_an_installation_stay_together():
    names = ["flow_app", "flow_names", "hardened", "sizes", "client", "chart"]
    files = [f"tests/cluster/test_{name}.py" for name in names]
    weights = dict.fromkeys(files[:2], 1.0)
    together = [files[0], files[1], files[3]]
    assert together in split_files(files, 4, weights, 0.1)
    assert [file.replace("cluster", "unit") for file in together] not in split_files(
        [file.replace("cluster", "unit") for file in files], 4, {}, 0.1
    )


def report(*files, selected=("a.py::test_1",), ran=("a.py::test_1",)):
    return Report(list(files), list(selected), {}, dict.fromkeys(ran, "passed"))


NOTHING = {"selected": (), "ran": ()}


@pytest.mark.parametrize(
    ("reports", "omissions"),
    [
        ([report("a.py"), report("b.py", **NOTHING)], []),
        ([report("a.py")], ["b.py: 0 processes collected it, instead of one"]),
        (
            [report("a.py", "b.py"), report("b.py", **NOTHING)],
            ["b.py: 2 processes collected it, instead of one"],
        ),
        (
            [report("a.py", ran=()), report("b.py", **NOTHING)],
            ["a.py::test_1: 0 processes ran it, instead of one"],
        ),
        (
            [report("a.py"), report("b.py")],
            ["a.py::test_1: 2 processes ran it, instead of one"],
        ),
    ],
)
def test_a_test_that_no_process_or_two_ran_is_reported(reports, omissions):
    assert list(find_omissions(["a.py", "b.py"], reports)) == omissions


def test_the_report_of_a_process_has_what_it_collected_and_how_it_ended(tmp_path):
    recorder = Recorder(tmp_path / "report", TESTS)
    recorder.pytest_collection_modifyitems([item("unit/test_a.py"), item("unit/test_b.py")])
    recorder.pytest_collection_finish(SimpleNamespace(items=[SimpleNamespace(nodeid="test_1")]))
    for outcome in ("passed", "failed", "passed"):
        phase = SimpleNamespace(nodeid="test_1", outcome=outcome, duration=2)
        recorder.pytest_runtest_logreport(phase)
    recorder.pytest_sessionfinish()
    assert json.loads((tmp_path / "report").read_text()) == {
        "files": ["unit/test_a.py", "unit/test_b.py"],
        "selected": ["test_1"],
        "seconds": {"test_1": 6},
        "outcomes": {"test_1": "failed"},
    }


def job(name, load=1.0, *, needs_binaries=False):
    return stages.Job(name, name, ("true",), load, needs_binaries)


UNIT, CLUSTER, BENCH = job("unit"), job("cluster", 0.5, needs_binaries=True), job("bench", inf)


@pytest.mark.parametrize(
    ("pending", "running", "is_built", "chosen"),
    [
        ([UNIT, UNIT, UNIT, UNIT, CLUSTER], [], True, [UNIT, UNIT, UNIT]),
        ([UNIT, CLUSTER, CLUSTER], [UNIT, UNIT, CLUSTER], True, [CLUSTER]),
        ([CLUSTER, UNIT], [], False, [UNIT]),
        # A stage whose tests judge time runs alone, when the others have ended.
        ([BENCH, UNIT], [], True, [BENCH]),
        ([UNIT, BENCH], [], True, [UNIT]),
        ([BENCH, CLUSTER], [UNIT], True, [CLUSTER]),
        ([UNIT], [BENCH], True, []),
    ],
)
def test_jobs_overlap_as_long_as_the_cores_suffice(pending, running, is_built, chosen):
    assert stages.choose_jobs(pending, running, is_built=is_built, cores=2) == chosen


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


@pytest.fixture
def run_stages(monkeypatch, capsys):
    """Return a function that runs stages as one command each, without a node.

    It returns the exit code and the lines that are printed.
    """

    def run_stages(*names, command="true"):
        monkeypatch.setattr(stages, "why_not", lambda name: REASON if name == "node" else "")
        monkeypatch.setattr(
            stages, "jobs_of", lambda name, *_: [stages.Job(name, name, (command,), 1)]
        )
        monkeypatch.setattr(stages, "LOGS", stages.LOGS / "none")
        monkeypatch.setattr("sys.argv", ["stages.py", "full", *names])
        return stages.main(), capsys.readouterr().out.splitlines()

    return run_stages


def test_a_stage_that_this_machine_cannot_run_is_named_and_alone_ends_with_2(run_stages):
    assert run_stages("node") == (2, [f"node: not run: {REASON}"])


def test_a_stage_that_did_not_run_is_named_again_after_the_others(run_stages):
    _, lines = run_stages("security", "node")
    assert lines[0] == lines[-1] == f"node: not run: {REASON}"


@pytest.mark.parametrize("command", ["true", "false"])
def test_a_stage_that_ran_no_test_fails_however_its_process_ended(run_stages, command):
    code, lines = run_stages("security", command=command)
    assert code == 1
    assert any(line.startswith("security") and line.endswith("FAILED") for line in lines)
    assert lines[-1] == "0 passed, 0 failed, 0 skipped"


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
