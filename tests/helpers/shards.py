"""Splits the test files of a stage over processes, and proves that each test ran exactly once."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import pytest

SHARED = {
    "the installation": (
        "test_flow_",
        "test_gates_security",
        "test_generated_guards",
        "test_references",
        "test_repair",
        "test_scenarios_",
        "test_scheduler_ext",
        "test_sizes",
        "test_wait",
        "test_why_gates",
    ),
    "the control plane without Harbourmaster": (
        "test_account_guard",
        "test_admission",
        "test_api_script",
        "test_authority",
        "test_client",
        "test_compile",
        "test_election",
        "test_events",
        "test_gate_guard",
        "test_placement_",
        "test_registration",
        "test_scheduler_admission",
    ),
}
"""Beginnings of the names of modules that share what takes up to a minute to start."""


class Report(msgspec.Struct):
    """What one pytest process did: the files and tests that it collected, and those that ran.

    ``seconds`` has the duration of each test that ran, ``outcomes`` how it ended, by its id.
    """

    files: list[str] = []
    selected: list[str] = []
    seconds: dict[str, float] = {}
    outcomes: dict[str, str] = {}


class Recorder:
    """A plugin of pytest that writes the Report of its process into a file."""

    def __init__(self, path, root):
        self._path = path
        self._root = root
        self._report = Report()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        files = {item.path.relative_to(self._root).as_posix() for item in items}
        self._report.files = sorted(files)

    def pytest_collection_finish(self, session):
        self._report.selected = [item.nodeid for item in session.items]

    def pytest_runtest_logreport(self, report):
        test, seconds, outcomes = report.nodeid, self._report.seconds, self._report.outcomes
        seconds[test] = seconds.get(test, 0) + report.duration
        if outcomes.get(test, "passed") == "passed":
            outcomes[test] = report.outcome

    def pytest_sessionfinish(self):
        self._path.write_bytes(msgspec.json.encode(self._report))


def bundle_of(file):
    """Return the name of the bundle of a test file: files of one bundle go to one process."""
    folder, _, name = file.rpartition("/")
    if folder.endswith("tests/cluster"):
        for bundle, beginnings in SHARED.items():
            if name.startswith(beginnings):
                return bundle
    return file


def split_files(files, count, weights, unlisted):
    """Return the files as ``count`` lists of about the same weight.

    ``weights`` has seconds by file, ``unlisted`` is the weight of a file that it lacks.
    """
    bundles = defaultdict(list)
    for file in sorted(files):
        bundles[bundle_of(file)].append(file)
    totals = {
        name: sum(weights.get(file, unlisted) for file in members)
        for name, members in bundles.items()
    }
    shards, loads = [[] for _ in range(count)], [0.0] * count
    for name in sorted(bundles, key=lambda name: (-totals[name], name)):
        lightest = loads.index(min(loads))
        shards[lightest] += bundles[name]
        loads[lightest] += totals[name]
    return shards


def find_omissions(files, reports):
    """Yield a line for each file or test that not exactly one of the processes ran."""
    collected = Counter(file for report in reports for file in report.files)
    for file in sorted(collected.keys() | set(files)):
        if collected[file] != 1:
            yield f"{file}: {collected[file]} processes collected it, instead of one"
    selected = Counter(test for report in reports for test in report.selected)
    ran = Counter(test for report in reports for test in report.outcomes)
    for test in sorted(selected.keys() | ran.keys()):
        if not selected[test] == ran[test] == 1:
            yield f"{test}: {ran[test]} processes ran it, instead of one"


def weigh_files(reports):
    """Return the seconds of each file by the durations of its tests, without light files."""
    seconds = Counter()
    for report in reports:
        for test, duration in report.seconds.items():
            seconds[test.partition("::")[0]] += duration
    return {file: round(total, 1) for file, total in sorted(seconds.items()) if total >= 0.5}
