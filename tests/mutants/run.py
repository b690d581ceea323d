"""Breaks one line of the code at a time, and runs the tests of the gate that should notice it.

``make mutants`` tries all faults of faults.toml, ``make mutants ONLY=NAME,...`` those of the names
or levels. Exits with 1 if a fault survived or could not be tried.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import os
import queue
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
VENV = Path(sys.prefix)
PACKAGES = Path(sysconfig.get_path("purelib"))
PYTEST = ("-m", "pytest", "-q", "-p", "no:randomly", "--gate", "--tb=no", "-rfE")
SECONDS = 600
"""A fault that keeps its tests from ending for so long was noticed."""
OUTCOMES = {0: "survived", 1: "killed", 2: "killed"}
LEVELS = ("unit", "conformance", "property", "security", "cluster", "chaos", "browser")


class Fault(NamedTuple):
    """One change of one line; ``tests`` are what pytest is given."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]
    why: str

    @property
    def level(self):
        """The folder of the costliest of its tests."""
        return max((test.split("/")[1] for test in self.tests), key=LEVELS.index)

    def broken(self, text):
        """Return the text with the fault. Raises ValueError if its place is not found once."""
        if text.count(self.old) != 1:
            raise ValueError(f"old occurs {text.count(self.old)} times: {self.file}: {self.name}")
        return text.replace(self.old, self.new)


def read():
    """Return the faults of the table, cheap ones first, those of the same tests together."""
    table = tomllib.loads((HERE / "faults.toml").read_text())
    faults = [Fault(name, **fields) for name, fields in table.items()]
    return sorted(faults, key=lambda fault: (LEVELS.index(fault.level), fault.tests))


class Tree:
    """A copy of the tracked files, with an environment that imports the copy's packages."""

    def __init__(self, folder):
        self.folder = folder
        tracked = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        ignored = ("git", "ls-files", "-z", "--others", "--ignored", "--exclude-standard")
        others = subprocess.check_output(ignored, cwd=ROOT, text=True)
        # make venv links packages to where Python finds them.
        links = [path for path in others.split("\0") if (ROOT / path).is_symlink()]
        for path in (*tracked.split("\0"), *links):
            if (ROOT / path).is_relative_to(VENV) or not os.path.lexists(ROOT / path) or not path:
                continue
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / path, folder / path, follow_symlinks=False)
        self._copy_environment(folder / ".venv")
        self.python = folder / ".venv/bin/python"

    def _copy_environment(self, venv):
        """All is shared but what says where our packages are."""
        packages = venv / PACKAGES.relative_to(VENV)
        packages.mkdir(parents=True)
        (venv / "bin").mkdir()
        shutil.copy2(VENV / "pyvenv.cfg", venv)
        # A path in a .pth file is searched, but the .pth files in it are not read.
        (packages / "shared.pth").write_text(f"{PACKAGES}\n")
        for file in PACKAGES.glob("__editable__*"):
            if file.is_file():
                ours = file.read_text().replace(str(ROOT), str(self.folder))
                (packages / file.name).write_text(ours)
        for file in (VENV / "bin").iterdir():
            copy = venv / "bin" / file.name
            if file.is_symlink():
                copy.symlink_to(file.readlink())
            elif (head := f"#!{VENV}".encode()) == file.read_bytes()[: len(head)]:
                shutil.copy2(file, copy)
                copy.write_text(file.read_text().replace(str(VENV), str(venv)))
            else:
                copy.symlink_to(file)

    def pytest(self, *arguments, seconds=None):
        """Run pytest in the copy; return its exit code, the tests that failed, and its output."""
        command = [self.python, *PYTEST, *arguments]
        with subprocess.Popen(
            command,
            cwd=self.folder,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            try:
                output = process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return 1, ["no end"], ""
        lines = (line.partition(" ") for line in output.splitlines())
        failed = [rest for word, _, rest in lines if word in {"FAILED", "ERROR"}]
        return process.returncode, failed, output

    def attempt(self, number, fault):
        """Return the outcome with the fault in the copy, and the test that noticed it."""
        path = self.folder / fault.file
        text, times = path.read_text(), path.stat()
        path.write_text(fault.broken(text))
        # Python takes its compiled file for that of a source of the same second and size.
        os.utime(path, (number, number))
        try:
            code, failed, output = self.pytest("-x", *fault.tests, seconds=SECONDS)
        finally:
            path.write_text(text)
            os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        return OUTCOMES.get(code, "error"), failed[0] if failed else output


def main():
    """Try the faults, print what became of each, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition(".")[0])
    parser.add_argument("--only", default="", help="names or levels, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="how many to try at a time")
    options = parser.parse_args()
    chosen = set(filter(None, options.only.split(",")))
    faults = [one for one in read() if not chosen or {one.name, one.level} & chosen]
    trees, counts, left = queue.SimpleQueue(), collections.Counter(), []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(options.jobs):
            trees.put(Tree(Path(folder).resolve() / str(number)))
        tree = trees.get()
        tests = list(dict.fromkeys(test for fault in faults for test in fault.tests))
        print(f"== {len(faults)} faults; first {len(tests)} tests or files without any", flush=True)
        code, broken, output = tree.pytest(*tests)
        trees.put(tree)
        if code not in {0, 1}:
            sys.exit(output)

        def attempt(number):
            fault, begun, tree = faults[number], time.monotonic(), trees.get()
            if fails := [line for line in broken if line.startswith(tuple(fault.tests))]:
                result = "error", f"fails without the fault: {fails[0]}"
            else:
                try:
                    result = tree.attempt(number, fault)
                except ValueError as error:
                    result = "error", str(error)
            trees.put(tree)
            return (*result, time.monotonic() - begun)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            results = pool.map(attempt, range(len(faults)))
            for number, (fault, result) in enumerate(zip(faults, results, strict=True), 1):
                outcome, told, seconds = result
                by = f" by {told.partition(' - ')[0]}" if outcome == "killed" else ""
                print(f"{number}/{len(faults)} {fault.name}: {outcome}{by}, {seconds:.0f} s", flush=True)
                counts[outcome] += 1
                if outcome != "killed":
                    left.append(f"{outcome}: {fault.name}: {fault.file}: {fault.why}")
                if outcome == "error":
                    left.append(told)
    print(f"\n{counts['killed']} killed, {counts['survived']} survived, {counts['error']} errors")
    print(*left, sep="\n")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
