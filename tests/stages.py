"""Runs the tests in stages: ``stages.py gate|full [STAGE...]``, all stages where none is named.

``gate`` is ``make test``: short, and the same in each run. ``full`` is ``make test-all``: every
test at full depth, with a random seed that is printed. Exits with 1 if a stage failed.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
CONTROL_PLANE = ("build", "control-plane")
NODE = ("build", "node")
EVERYTHING = ("build",)
BROWSER = ("build-browser",)


class Stage(NamedTuple):
    """Folders of tests, with the minutes that they may take on two idle cores, by run."""

    folders: tuple[str, ...]
    minutes: dict[str, float]
    workers: int = 2
    needs_binaries: bool = False
    shows: bool = False


STAGES = {
    "unit": Stage(("unit", "conformance"), {"gate": 3, "full": 5}),
    "security": Stage(("security",), {"gate": 1, "full": 2}),
    "property": Stage(("property", "simulation"), {"gate": 1, "full": 15}),
    "bench": Stage(("bench",), {"full": 2}, workers=0),
    "cluster": Stage(("cluster",), {"gate": 5, "full": 30}, workers=4, needs_binaries=True),
    "chaos": Stage(("chaos",), {"gate": 1.5, "full": 20}, needs_binaries=True),
    # One node for all of its tests, which show what they count.
    "node": Stage(("node",), {"full": 10}, workers=0, needs_binaries=True, shows=True),
    "browser": Stage(("browser",), {"gate": 0.5, "full": 3}, needs_binaries=True),
}
# Otherwise each worker and each process of a test would compile all modules again.
COMPILED = {"PYTHONDONTWRITEBYTECODE": ""}
ENVIRONMENT = {
    "gate": COMPILED,
    "full": COMPILED | {"HARBOURMASTER_CHAOS_LONG": "1", "HARBOURMASTER_PROPERTY_CASES": "20000"},
}


def build(run, names):
    """Start to build what is not in the cache, one after the other; return the process."""
    playground = [sys.executable, "-m", "harbourmaster.playground"]
    wanted = [CONTROL_PLANE, BROWSER] if run == "gate" else [EVERYTHING, BROWSER]
    if names == ["node"]:
        wanted = [CONTROL_PLANE, NODE]
    commands = [shlex.join([*playground, *one]) for one in wanted]
    return subprocess.Popen(["sh", "-c", " && ".join(commands)])


def why_not(name):
    """Return why this machine cannot run a stage, in one line, or nothing.

    Raises SystemExit with what the check printed where it gave no answer.
    """
    if name != "node":
        return ""
    images = HERE.parent / "build/images"
    asked = [sys.executable, "-m", "harbourmaster.playground", "check-node", str(images)]
    checked = subprocess.run(asked, capture_output=True, text=True, check=False)
    if not checked.returncode:
        return ""
    reason = checked.stderr.strip().rpartition("\n")[2]
    # A traceback ends with 1 too.
    if checked.returncode != 1 or not reason.startswith("playground: "):
        sys.exit(f"check of the stage {name} failed with {checked.returncode}: {checked.stderr}")
    return reason.removeprefix("playground: ")


def command(name, run, seed):
    """Return pytest's command for a stage."""
    stage = STAGES[name]
    found = [sys.executable, "-m", "pytest", f"--numprocesses={stage.workers}"]
    found += [f"--hypothesis-profile={run}", f"--randomly-seed={seed}"]
    found += ["--capture=no"] if stage.shows else []
    found += ["--gate"] if run == "gate" else [f"--hypothesis-seed={seed}"]
    return [*found, *(str(HERE / folder) for folder in stage.folders)]


def main():
    """Run the stages, print what each took, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition(".")[0])
    parser.add_argument("run", choices=tuple(ENVIRONMENT))
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    chosen = parser.parse_args()
    run = chosen.run
    known = [name for name in STAGES if run in STAGES[name].minutes]
    names = chosen.stages or known
    if set(names) - set(known):
        parser.error(f"unknown stage in {' '.join(names)}: choose from {', '.join(known)}")
    impossible = {name: reason for name in names if (reason := why_not(name))}
    not_run = "".join(f"{name}: not run: {reason}\n" for name, reason in impossible.items())
    print(not_run, end="", flush=True)
    names = [name for name in names if name not in impossible]
    if not names:
        return 2
    seed = 1 if run == "gate" else random.SystemRandom().getrandbits(32)
    print(f"== {run} run, seed {seed}, load {os.getloadavg()[0]:.1f}", flush=True)
    builder = build(run, names) if any(STAGES[name].needs_binaries for name in names) else None
    rows = []
    for number, name in enumerate(names, 1):
        budget = STAGES[name].minutes[run]
        print(f"== {number} of {len(names)}: {name}, about {budget:g} minutes", flush=True)
        begun = time.monotonic()
        if STAGES[name].needs_binaries and builder.wait():
            print("the binaries could not be built: see above", file=sys.stderr)
            return 1
        waited = time.monotonic() - begun
        code = subprocess.run(
            command(name, run, seed), env={**os.environ, **ENVIRONMENT[run]}, check=False
        ).returncode
        minutes = (time.monotonic() - begun) / 60
        rows.append((name, minutes, waited / 60, budget, "passed" if code == 0 else "FAILED"))
    print("\nstage      minutes  of which building  budget")
    for name, minutes, waited, budget, outcome in rows:
        print(f"{name:10} {minutes:7.1f}  {waited:17.1f}  {budget:6.1f}  {outcome}")
    total, budget = (sum(row[column] for row in rows) for column in (1, 3))
    print(f"{'total':10} {total:7.1f}  {'':17}  {budget:6.1f}")
    print(not_run, end="")
    return int(any(row[-1] != "passed" for row in rows))


if __name__ == "__main__":
    sys.exit(main())
