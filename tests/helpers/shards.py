"""Selects tests for a run, splits their files over processes, and proves that each ran once."""

from __future__ import annotations

from collections import Counter, defaultdict

import msgspec
import pytest

SHARED = {
    "what local up started": ("test_local", "test_mistakes"),
    "the installation with all guards": ("test_hardened", "test_webhook_outage"),
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


IN_THE_GATE = {"unit", "conformance", "property", "security"}
"""The folders whose tests belong to the gate unless they are marked ``full``."""


class Report(msgspec.Struct):
    """The results of one pytest process.

    ``files`` are those that it collected, ``outcomes`` has by test ID how the test ended, "" for
    one that did not run, and ``seconds`` the duration of the tests of each file.
    """

    files: list[str] = []
    outcomes: dict[str, str] = {}
    seconds: dict[str, float] = {}


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
        self._report.outcomes = dict.fromkeys((item.nodeid for item in session.items), "")

    def pytest_runtest_logreport(self, report):
        """Record the worst outcome of a test's phases, and add up their durations."""
        test, file = report.nodeid, report.nodeid.partition("::")[0]
        self._report.seconds[file] = self._report.seconds.get(file, 0) + report.duration
        if self._report.outcomes.get(test) in {"", "passed"}:
            self._report.outcomes[test] = report.outcome

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

    ``weights`` has seconds by file, ``unlisted`` is the weight of a file that it lacks. A bundle
    much heavier than a list is divided: what its files share is started more than once then.
    """
    bundles = defaultdict(list)
    for file in sorted(files):
        bundles[bundle_of(file)].append(file)
    seconds = {file: weights.get(file, unlisted) for file in files}
    share = sum(seconds.values()) / count
    parts = {}
    for members in bundles.values():
        pieces = round(sum(map(seconds.get, members)) / share) if share else 0
        for part in _spread({(file,): seconds[file] for file in members}, max(pieces, 1)):
            parts[tuple(part)] = sum(map(seconds.get, part))
    return _spread(parts, count)


def _spread(seconds_by_files, count):
    """Return ``count`` lists of files of about the same duration."""
    lists, loads = [[] for _ in range(count)], [0.0] * count
    for files in sorted(seconds_by_files, key=lambda files: (-seconds_by_files[files], files)):
        lightest = loads.index(min(loads))
        lists[lightest] += files
        loads[lightest] += seconds_by_files[files]
    return lists


def find_omissions(files, reports):
    """Yield a line for each file or test that not exactly one of the processes ran."""
    collected = Counter(file for report in reports for file in report.files)
    for file in sorted(collected.keys() | set(files)):
        if collected[file] != 1:
            yield f"{file}: {collected[file]} processes collected it, instead of one"
    outcomes = defaultdict(list)
    for report in reports:
        for test, outcome in report.outcomes.items():
            outcomes[test].append(outcome)
    for test, ends in sorted(outcomes.items()):
        if len(ends) != 1 or not ends[0]:
            yield f"{test}: {sum(map(bool, ends))} processes ran it, instead of one"


def divide(items, root):
    """Return the items of the gate and the others. Raises ValueError with files that say neither.

    The closest mark counts: a test's own before its module's.
    """
    gate, full, neither = [], [], set()
    for item in items:
        path = item.path.relative_to(root)
        names = [mark.name for mark in item.iter_markers() if mark.name in {"gate", "full"}]
        if not names and path.parts[0] not in IN_THE_GATE:
            neither.add(str(path))
        (full if names[:1] == ["full"] else gate).append(item)
    if neither:
        raise ValueError(f"mark as gate or full: {', '.join(sorted(neither))}")
    return gate, full
