"""Each test belongs to a stage, and to the gate or to the full run alone."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from math import inf
from pathlib import Path
from types import SimpleNamespace

import pytest
import stages
from hypothesis import given
from hypothesis import strategies as st

from helpers import virtual_time
from helpers.patience import PATIENCE
from helpers.shards import Recorder, Report, divide, find_omissions, split_files
from helpers.stubs import write_program

TESTS = Path(__file__).parents[1]
REASON = "runc not found: apt-get install --yes runc"


def item(path, *marks):
    names = [SimpleNamespace(name=mark) for mark in marks]
    return SimpleNamespace(path=TESTS / path, nodeid=path, iter_markers=lambda: iter(names))


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
    test = item(path, *marks)
    assert divide([test], TESTS) == (([test], []) if is_in_the_gate else ([], [test]))


def test_a_test_that_belongs_to_no_run_is_refused():
    items = [item("cluster/test_a.py", "slow"), item("chaos/test_b.py"), item("unit/test_c.py")]
    with pytest.raises(ValueError, match=r"full: chaos/test_b\.py, cluster/test_a\.py$"):
        divide(items, TESTS)


def test_every_folder_is_in_one_stage_and_every_weight_is_of_a_file():
    folders = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    assert sorted(folders) == sorted(
        folder for stage in stages.STAGES.values() for folder in stage.folders
    )
    files = {file for name in stages.STAGES for file in stages.list_files(name)}
    assert json.loads(stages.WEIGHTS.read_text()).keys() <= files


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
    weights = dict.fromkeys([files[2], *files[4:]], 1.0)
    assert [files[0], files[1], files[3]] in split_files(files, 4, weights, 0.1)


def test_modules_that_share_too_much_for_a_process_are_divided():
    files = [f"tests/cluster/test_flow_{number}.py" for number in range(4)]
    shards = split_files([*files, "tests/cluster/test_chart.py"], 4, dict.fromkeys(files, 1.0), 0.1)
    assert sorted(map(len, shards)) == [1, 1, 1, 2]


def run_process(*files, **outcomes):
    """Return the Report of a process that collected files, and ran tests with these outcomes."""
    return Report(list(files), {f"a.py::{test}": outcome for test, outcome in outcomes.items()})


@pytest.mark.parametrize(
    ("reports", "omissions"),
    [
        ([run_process("a.py", test="failed"), run_process("b.py")], []),
        (
            [run_process("a.py", test="passed")],
            ["b.py: 0 processes collected it, instead of one"],
        ),
        (
            [run_process("a.py", "b.py"), run_process("b.py")],
            ["b.py: 2 processes collected it, instead of one"],
        ),
        (
            [run_process("a.py", test=""), run_process("b.py")],
            ["a.py::test: 0 processes ran it, instead of one"],
        ),
        (
            [run_process("a.py", test="passed"), run_process("b.py", test="passed")],
            ["a.py::test: 2 processes ran it, instead of one"],
        ),
    ],
)
def test_a_test_that_no_process_or_two_ran_is_reported(reports, omissions):
    assert list(find_omissions(["a.py", "b.py"], reports)) == omissions


def test_the_report_of_a_process_has_what_it_collected_and_how_it_ended(tmp_path):
    recorder = Recorder(tmp_path / "report", TESTS)
    items = [item("unit/test_a.py"), item("unit/test_b.py")]
    recorder.pytest_collection_modifyitems(items)
    recorder.pytest_collection_finish(SimpleNamespace(items=items))
    for outcome in ("passed", "failed", "passed"):
        phase = SimpleNamespace(nodeid="unit/test_a.py", outcome=outcome, duration=2)
        recorder.pytest_runtest_logreport(phase)
    recorder.pytest_sessionfinish()
    assert json.loads((tmp_path / "report").read_text()) == {
        "files": ["unit/test_a.py", "unit/test_b.py"],
        "outcomes": {"unit/test_a.py": "failed", "unit/test_b.py": ""},
        "seconds": {"unit/test_a.py": 6},
    }


def job(load, *, needs_binaries=False):
    return stages.Job("job", stages.Stage((), {}, 1, load, needs_binaries), ("true",))


UNIT, CLUSTER, BENCH = job(1.0), job(0.5, needs_binaries=True), job(inf)


@pytest.mark.parametrize(
    ("pending", "running", "is_built", "chosen"),
    [
        ([UNIT, UNIT, UNIT, UNIT, CLUSTER], [], True, [UNIT, UNIT, UNIT]),
        ([UNIT, CLUSTER, CLUSTER], [UNIT, UNIT, CLUSTER], True, [CLUSTER]),
        ([CLUSTER, UNIT], [], False, [UNIT]),
        # It begins as soon as the binaries are built.
        ([*[CLUSTER] * 4, UNIT, UNIT], [], False, [UNIT]),
        # A stage whose tests judge time runs alone, when the others have ended.
        ([BENCH, UNIT], [], True, [BENCH]),
        ([UNIT, BENCH], [], True, [UNIT]),
        ([BENCH, CLUSTER], [UNIT], True, [CLUSTER]),
        ([UNIT], [BENCH], True, []),
    ],
)
def test_jobs_overlap_as_long_as_the_cores_suffice(pending, running, is_built, chosen):
    assert stages.choose_jobs(pending, running, is_built=is_built, cores=2) == chosen


@pytest.fixture
def run_stages(monkeypatch, capsys):
    """Return a function that runs stages as one command each, without a node.

    It returns the exit code and the lines that are printed.
    """

    def run_stages(*names, command="/bin/true"):
        monkeypatch.setattr(stages, "why_not", lambda name: REASON if name == "node" else "")
        monkeypatch.setattr(
            stages, "jobs_of", lambda name, *_: [stages.Job(name, stages.STAGES[name], (command,))]
        )
        monkeypatch.setattr(stages, "LOGS", stages.LOGS / "none")
        monkeypatch.setattr("sys.argv", ["stages.py", "full", *names])
        return stages.main(), capsys.readouterr().out.splitlines()

    return run_stages


def test_a_stage_that_this_machine_cannot_run_is_named_first_and_last(run_stages):
    assert run_stages("node") == (2, [f"node: not run: {REASON}"])
    _, lines = run_stages("security", "node")
    assert lines[0] == lines[-1] == f"node: not run: {REASON}"


@pytest.mark.parametrize("command", ["/bin/true", "/bin/false"])
def test_a_stage_that_ran_no_test_fails_however_its_process_ended(run_stages, command):
    code, lines = run_stages("security", command=command)
    assert code == 1
    assert any(line.startswith("security") and line.endswith("FAILED") for line in lines)
    assert lines[-1] == "0 passed, 0 failed, 0 skipped"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_of_a_stage_outlives_the_run(tmp_path, number):
    waiting = "import time; print('waits', flush=True); time.sleep(1000)"
    script = f"""
import stages, sys
stage = stages.STAGES["security"]._replace(shows=True)
stages.LOGS = stages.Path({str(tmp_path)!r})
stages.STAGES["security"] = stage
stages.jobs_of = lambda *_: [stages.Job("a", stage, (sys.executable, "-c", {waiting!r}))]
sys.argv[1:] = ["gate", "security"]
sys.exit(stages.command())
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=TESTS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as run:
        while run.stdout.readline() != b"waits\n":
            pass
        run.send_signal(number)
        # The output ends with the last process that could write to it.
        rest, _ = run.communicate(timeout=PATIENCE)
    assert (b"KeyboardInterrupt" in rest and b"interrupted" in rest) == (number == signal.SIGTERM)


@pytest.mark.parametrize(
    ("code", "output", "reason"),
    [
        (0, "a warning of some library\n", ""),
        (1, f"a warning of some library\nplayground: {REASON}\n", REASON),
        (1, "Traceback\nValueError: x\n", None),
        (2, "", None),
    ],
)
def test_the_check_of_the_node_tells_whether_its_stage_runs(
    monkeypatch, tmp_path, code, output, reason
):
    program = write_program(tmp_path / "python", f"printf '{output}' >&2\nexit {code}")
    monkeypatch.setattr("sys.executable", str(program))
    if reason is None:
        failure = f"^check of the stage node failed with {code}: {output}"
        with pytest.raises(SystemExit, match=failure):
            stages.why_not("node")
    else:
        assert stages.why_not("node") == reason


def test_a_test_in_virtual_time_that_never_ends_fails(monkeypatch):
    async def wait():
        while True:  # noqa: ASYNC110 - only time passes
            await asyncio.sleep(1)

    monkeypatch.setattr(virtual_time, "LONGEST", 0.3)
    with pytest.raises(TimeoutError, match=r"^the test still runs after 0\.3 seconds$"):
        virtual_time.run_virtually(wait())
