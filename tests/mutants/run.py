"""Breaks one line of the code at a time, and runs the tests of the gate that should notice it.

``make mutants`` tries all faults of faults.toml, ``make mutants ONLY=NAME,...`` those of the names
or levels. Exits with 1 if a fault survived or could not be tried.
"""

from __future__ import annotations

import argparse
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
        # make venv links packages to where Python finds them; git ignores these links.
        others = listed("--others", "--ignored", "--exclude-standard")
        links = [path for path in others if path.is_symlink() and VENV not in path.parents]
        for path in filter(os.path.lexists, (*listed(), *links)):
            copy = folder / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, copy, follow_symlinks=False)
        # The environment shares all but what says where our packages are.
        venv = folder / ".venv"
        packages = venv / PACKAGES.relative_to(VENV)
        packages.mkdir(parents=True)
        (venv / "bin").mkdir()
        shutil.copy2(VENV / "pyvenv.cfg", venv)
        # A path in a .pth file is searched, but the .pth files in it are not read.
        (packages / "shared.pth").write_text(f"{PACKAGES}\n")
        for file in filter(Path.is_file, PACKAGES.glob("__editable__*")):
            (packages / file.name).write_text(file.read_text().replace(f"{ROOT}", f"{folder}"))
        for file in (VENV / "bin").iterdir():
            copy = venv / "bin" / file.name
            if file.is_symlink() or not file.read_bytes().startswith(f"#!{VENV}".encode()):
                copy.symlink_to(file.readlink() if file.is_symlink() else file)
            else:
                shutil.copy2(file, copy)
                copy.write_text(file.read_text().replace(f"{VENV}", f"{venv}"))

    def pytest(self, *arguments, seconds=None):
        """Run pytest in the copy; return its exit code, the tests that failed, and its output."""
        command = [self.folder / ".venv/bin/python", *PYTEST, *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen(command, cwd=self.folder, start_new_session=True, **pipes) as process:
            try:
                output = process.communicate(timeout=seconds)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                return 1, ["no end"], ""
        lines = (line.partition(" ") for line in output.splitlines())
        failed = [rest for word, _, rest in lines if word in {"FAILED", "ERROR"}]
        return process.returncode, failed, output

    def attempt(self, number, fault):
        """Return what became of a fault, and what tells it."""
        path = self.folder / fault.file
        text, stat = path.read_text(), path.stat()
        path.write_text(fault.broken(text))
        # Python takes its compiled file for that of a source of the same second and size.
        os.utime(path, (number, number))
        code, failed, output = self.pytest("-x", *fault.tests, seconds=SECONDS)
        path.write_text(text)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        return OUTCOMES.get(code, "error"), failed[0].partition(" - ")[0] if failed else output


def listed(*options):
    """Return the files that git lists."""
    output = subprocess.check_output(["git", "ls-files", "-z", *options], cwd=ROOT, text=True)
    return [ROOT / path for path in output.split("\0") if path]


def main():
    """Try the faults, print what became of each, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition(".")[0])
    parser.add_argument("--only", default="", help="names or levels, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="how many to try at a time")
    options = parser.parse_args()
    chosen = set(filter(None, options.only.split(",")))
    faults = [one for one in read() if not chosen or {one.name, one.level} & chosen]
    tests = list(dict.fromkeys(test for fault in faults for test in fault.tests))
    print(f"== {len(faults)} faults; first {len(tests)} tests or files without any", flush=True)
    trees, outcomes, left = queue.SimpleQueue(), [], []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(options.jobs):
            trees.put(Tree(Path(folder).resolve() / str(number)))
        code, broken, output = (tree := trees.get()).pytest(*tests)
        trees.put(tree)
        if code not in {0, 1}:
            sys.exit(output)

        def attempt(number):
            fault, begun, tree = faults[number], time.monotonic(), trees.get()
            try:
                if fails := [line for line in broken if line.startswith(tuple(fault.tests))]:
                    return "error", f"fails without the fault: {fails[0]}", 0
                return *tree.attempt(number, fault), time.monotonic() - begun
            except ValueError as error:
                return "error", str(error), 0
            finally:
                trees.put(tree)

        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            for number, result in enumerate(pool.map(attempt, range(len(faults)))):
                fault, (outcome, told, seconds) = faults[number], result
                outcomes.append(outcome)
                by = f" by {told}" if outcome == "killed" else ""
                shown = f"{number + 1}/{len(faults)} {fault.name}: {outcome}{by}"
                print(f"{shown}, {seconds:.0f} s", flush=True)
                if outcome != "killed":
                    left.append(f"{outcome}: {fault.name}: {fault.file}: {fault.why}")
                    left += [told] if outcome == "error" else []
    counts = {each: outcomes.count(each) for each in ("killed", "survived", "error")}
    print("\n" + ", ".join(f"{count} {each}" for each, count in counts.items()), *left, sep="\n")
    return int(bool(left))


if __name__ == "__main__":
    sys.exit(main())
