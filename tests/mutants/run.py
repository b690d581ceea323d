"""Breaks one line of the code at a time, and runs the tests of the gate that should notice it."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import queue
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
VENV = Path(sys.prefix)
PACKAGES = Path(sysconfig.get_path("purelib"))
# make venv links packages to where Python finds them; git knows nothing of these links.
FILES = "{ git ls-files -z; find . -path ./.venv -prune -o -type l -printf '%P\\0'; }"
COPY = f'{FILES} | sort -zu | xargs -0 cp --parents --no-dereference --preserve -t "$1"'
PYTEST = ("-m", "pytest", "-q", "-p", "no:randomly", "--gate", "--tb=no", "-rfE")
TOLD = {"capture_output": True, "text": True}
SIMULATED = {"HARBOURMASTER_SIMULATION_SEEDS": "1-60"}
"""The seeds of the simulation; which one finds a fault changes with the code."""
LEVELS = (
    "unit",
    "conformance",
    "property",
    "security",
    "simulation",
    "cluster",
    "chaos",
    "browser",
)


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

    def break_text(self, text):
        """Return the text with the fault. Raises ValueError if its place is not found once."""
        if text.count(self.old) != 1:
            raise ValueError(f"old occurs {text.count(self.old)} times: {self.file}: {self.name}")
        return text.replace(self.old, self.new)


def read():
    """Return the faults of the table, cheap ones first, those of the same tests together."""
    table = tomllib.loads((ROOT / "tests/mutants/faults.toml").read_text())
    faults = (Fault(name, **fields) for name, fields in table.items())
    return sorted(faults, key=lambda fault: (LEVELS.index(fault.level), fault.tests))


class Tree:
    """A copy of the tracked files, with an environment that imports the copy's packages."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        subprocess.run(["sh", "-c", COPY, "sh", folder], cwd=ROOT, check=True)
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
            if file.read_bytes().startswith(f"#!{VENV}".encode()):
                copy.write_text(file.read_text().replace(f"{VENV}", f"{venv}"))
                copy.chmod(0o755)
            else:
                copy.symlink_to(file)

    def pytest(self, *arguments):
        """Run pytest in the copy; return its exit code, its output, and the tests that failed."""
        command = [self.folder / ".venv/bin/python", *PYTEST, *arguments]
        environment = {**os.environ, **SIMULATED}
        done = subprocess.run(command, cwd=self.folder, check=False, env=environment, **TOLD)
        results = (line.partition(" - ")[0].partition(" ") for line in done.stdout.splitlines())
        failed = [test for word, _, test in results if word in {"FAILED", "ERROR"}]
        return done.returncode, done.stdout + done.stderr, failed

    def attempt(self, number, fault):
        """Return the outcome for a fault, and the test that noticed it."""
        path = self.folder / fault.file
        text, stat = path.read_text(), path.stat()
        path.write_text(fault.break_text(text))
        # Python takes its compiled file for that of a source of the same second and size.
        os.utime(path, (number, number))
        code, output, failed = self.pytest("-x", *fault.tests)
        path.write_text(text)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        if code == 0:
            return "survived", fault.why
        return ("killed", f"by {failed[0]}") if failed else ("error", output)


def main():
    """Try the faults, print their outcomes, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition(".")[0])
    parser.add_argument("--only", default="", help="names or levels, separated by commas")
    parser.add_argument("--jobs", type=int, default=2, help="how many to try at a time")
    options = parser.parse_args()
    chosen = set(filter(None, options.only.split(",")))
    faults = [fault for fault in read() if not chosen or {fault.name, fault.level} & chosen]
    if unknown := chosen - {name for fault in faults for name in (fault.name, fault.level)}:
        parser.error(f"unknown fault or level: {', '.join(sorted(unknown))}")
    tests = list(dict.fromkeys(test for fault in faults for test in fault.tests))
    print(f"== {len(faults)} faults; first {len(tests)} tests or files without any", flush=True)
    trees, lines = queue.SimpleQueue(), {"killed": [], "survived": [], "error": []}

    def attempt(number):
        fault, begun, tree = faults[number], time.monotonic(), trees.get()
        try:
            outcome, told = tree.attempt(number, fault)
        except ValueError as error:
            outcome, told = "error", str(error)
        if any(test.startswith(tuple(fault.tests)) for test in failed):
            outcome, told = "error", "its tests fail without the fault"
        trees.put(tree)
        line = f"{outcome}: {fault.name}: {fault.file}: {told}, {time.monotonic() - begun:.0f} s"
        lines[outcome].append(line)
        print(f"{sum(map(len, lines.values()))}/{len(faults)} {line}", flush=True)

    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        for number in range(options.jobs):
            trees.put(Tree(Path(folder).resolve() / str(number)))
        trees.put(tree := trees.get())
        code, output, failed = tree.pytest(*tests)
        if code not in {0, 1}:
            sys.exit(output)
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(attempt, range(len(faults))))
    print("\n" + ", ".join(f"{len(names)} {outcome}" for outcome, names in lines.items()))
    print(*lines["survived"], *lines["error"], sep="\n")
    return int(bool(lines["survived"] or lines["error"]))


if __name__ == "__main__":
    sys.exit(main())
