"""Runs the tests in stages: ``stages.py gate|full [STAGE...]``, by default all stages.

``gate`` is ``make test``: short, and the same in each run. ``full`` is ``make test-all``: every
test at full depth, with a random seed that is printed. Each stage is one or more pytest processes
on disjoint files, and stages overlap as long as the cores suffice. The exit code is 1 if a test
failed, or did not run exactly once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from math import inf
from pathlib import Path
from typing import NamedTuple

import msgspec

from harbourmaster.playground.processes import ATTACHED, interrupt_on
from helpers.shards import Report, find_omissions, split_files

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
LOGS = ROOT / "build/tests"
WEIGHTS = TESTS / "weights.json"
"""Seconds by file, written by ``--weigh`` after a whole run of the gate."""
UNLISTED = {"gate": 0.1, "full": 10.0}
"""The weight of files that the table lacks: light ones, and those of the full run alone."""
PROGRESS_SECONDS = 20
FAILURES = re.compile(r"^=+ (FAILURES|ERRORS) =+$", re.MULTILINE)
PERCENT = re.compile(r"\[ *(\d+)%\]")


class Budget(NamedTuple):
    """The limits of a stage on two idle cores: minutes from its start to its end, CPU seconds."""

    minutes: float
    cpu_seconds: float


class Stage(NamedTuple):
    """Folders of tests, the processes that run them, and how many cores each process keeps busy.

    A stage with an infinite load runs alone, because its tests judge time.
    """

    folders: tuple[str, ...]
    budgets: dict[str, Budget]
    processes: int = 1
    load: float = 1.0
    needs_binaries: bool = False
    shows: bool = False


TOTAL_MINUTES = {"gate": 8, "full": 90}
STAGES = {
    "cluster": Stage(
        ("cluster",),
        {"gate": Budget(7, 360), "full": Budget(30, 3600)},
        processes=4,
        load=0.5,
        needs_binaries=True,
    ),
    "unit": Stage(
        ("unit", "conformance"), {"gate": Budget(4, 210), "full": Budget(5, 500)}, 2, 0.9
    ),
    "security": Stage(("security",), {"gate": Budget(4, 50), "full": Budget(2, 120)}, 1, 0.5),
    "chaos": Stage(
        ("chaos",), {"gate": Budget(4, 100), "full": Budget(20, 1200)}, 2, 0.5, needs_binaries=True
    ),
    "browser": Stage(
        ("browser",), {"gate": Budget(1, 20), "full": Budget(3, 60)}, 1, 0.5, needs_binaries=True
    ),
    # It never waits, so it fills the time in which the last of the others wait.
    "property": Stage(
        ("property", "simulation"), {"gate": Budget(2, 70), "full": Budget(15, 1800)}, 2, 0.9
    ),
    "bench": Stage(("bench",), {"full": Budget(2, 120)}, load=inf),
    # All tests share a node, and print measurements.
    "node": Stage(("node",), {"full": Budget(10, 900)}, 1, inf, needs_binaries=True, shows=True),
}
BUILD = Stage((), {}, load=0.5, shows=True)
ENVIRONMENT = {
    # Otherwise each process would compile all modules again.
    "PYTHONDONTWRITEBYTECODE": "",
    # Garbage collection would take a sixth of the control plane's time.
    "GOGC": "400",
    "GOMEMLIMIT": "1GiB",
}
DEPTH = {
    "gate": {},
    "full": {"HARBOURMASTER_CHAOS_LONG": "1", "HARBOURMASTER_PROPERTY_CASES": "20000"},
}


class Job(NamedTuple):
    """One process of a stage."""

    name: str
    stage: Stage
    command: tuple[str, ...]

    @property
    def log(self):
        return LOGS / f"{self.name}.log"

    @property
    def report(self):
        return LOGS / f"{self.name}.json"


class Result(NamedTuple):
    """The end of a job: exit code, when it ran, CPU seconds with its children, its report."""

    job: Job
    code: int
    start: float
    end: float
    cpu_seconds: float
    report: Report


def build_job(run, names):
    """Return the job that builds the binaries that are not in the cache."""
    playground = [sys.executable, "-m", "harbourmaster.playground"]
    suites = [["build", "control-plane"]] if run == "gate" or names == ["node"] else [["build"]]
    if names == ["node"]:
        suites.append(["build", "node"])
    elif "browser" in names:
        suites.append(["build-browser"])
    script = " && ".join(shlex.join([*playground, *suite]) for suite in suites)
    return Job("build", BUILD, ("/bin/sh", "-c", script))


def list_files(name):
    """Return the test files of a stage, as paths from the root of the repository."""
    return sorted(
        path.relative_to(ROOT).as_posix()
        for folder in STAGES[name].folders
        for path in (TESTS / folder).rglob("test_*.py")
    )


def jobs_of(name, run, seed):
    """Return the jobs of a stage: pytest on disjoint files."""
    stage = STAGES[name]
    options = [f"--hypothesis-profile={run}", f"--randomly-seed={seed}"]
    options += ["--capture=no"] if stage.shows else []
    options += ["--gate"] if run == "gate" else [f"--hypothesis-seed={seed}"]
    weights = msgspec.json.decode(WEIGHTS.read_bytes())
    jobs = []
    for files in split_files(list_files(name), stage.processes, weights, UNLISTED[run]):
        job = Job(f"{name}-{len(jobs) + 1}", stage, ())
        command = (sys.executable, "-m", "pytest", *options, f"--report={job.report}", *files)
        jobs.append(job._replace(command=command))
    return jobs


def why_not(name):
    """Return why this machine cannot run a stage, in one line, or "" if it can.

    Raises SystemExit with the output of the check if that gave no answer.
    """
    if name != "node":
        return ""
    command = [sys.executable, "-m", "harbourmaster.playground", "check-node"]
    check = subprocess.run(
        [*command, str(ROOT / "build/images")], capture_output=True, text=True, check=False
    )
    reason = check.stderr.strip().rpartition("\n")[2]
    # A traceback ends with 1 too.
    if check.returncode == 1 and reason.startswith("playground: "):
        return reason.removeprefix("playground: ")
    if check.returncode:
        sys.exit(f"check of the stage {name} failed with {check.returncode}: {check.stderr}")
    return ""


def choose_jobs(pending, running, *, is_built, cores):
    """Return the pending jobs to start now, in their order.

    They keep half more cores busy than there are, because tests also wait. Jobs that wait for the
    binaries take longest, so their place is kept.
    """
    load = sum(job.stage.load for job in running)
    chosen = []
    for job in pending:
        fits = load + job.stage.load <= 1.5 * cores or not load
        if fits:
            load += job.stage.load
            if is_built or not job.stage.needs_binaries:
                chosen.append(job)
    return chosen


def start_job(job, environment):
    """Start the process of a job, which ends with this process, however that ends."""
    job.report.unlink(missing_ok=True)
    with job.log.open("wb") as log:
        streams = {} if job.stage.shows else {"stdout": log, "stderr": subprocess.STDOUT}
        return subprocess.Popen(
            [sys.executable, "-IS", str(ATTACHED), str(os.getpid()), *job.command],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            # An interrupt from the terminal comes once, from here.
            start_new_session=True,
            **streams,
        )


def await_job(job, process, start):
    """Wait for the end of a job, and return its Result."""
    # The usage includes children for which the process waited.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = code = os.waitstatus_to_exitcode(status)
    content = job.report.read_bytes() if job.report.exists() else b"{}"
    report = msgspec.json.decode(content, type=Report)
    # pytest returns 5 if the run has no test of the files.
    code = 0 if code == 5 and not report.outcomes else code
    return Result(job, code, start, time.monotonic(), usage.ru_utime + usage.ru_stime, report)


@contextlib.contextmanager
def interrupting(processes):
    """Interrupt the processes that still run when this one is interrupted."""
    try:
        yield
    except KeyboardInterrupt:
        for process in processes:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGINT)
        raise


def run_jobs(jobs, environment, say):
    """Run all jobs, and return their Results; print progress, and the output of failed jobs."""
    pending, futures, results, processes = list(jobs), {}, [], []
    cores = len(os.sched_getaffinity(0))
    with ThreadPoolExecutor(len(jobs)) as pool, interrupting(processes):
        while pending or futures:
            is_built = all(job.stage is not BUILD for job in (*pending, *futures.values()))
            for job in choose_jobs(pending, futures.values(), is_built=is_built, cores=cores):
                pending.remove(job)
                start = time.monotonic()
                processes.append(start_job(job, environment))
                futures[pool.submit(await_job, job, processes[-1], start)] = job
            done, _ = wait(futures, PROGRESS_SECONDS, FIRST_COMPLETED)
            for future in done:
                del futures[future]
                results.append(future.result())
                say(describe(results[-1]))
                if results[-1].code and results[-1].job.stage is BUILD:
                    say("error: the binaries could not be built: see above")
                    pending = [job for job in pending if not job.stage.needs_binaries]
            if not done:
                say(", ".join(f"{job.name} {progress(job)}" for job in futures.values()))
    return results


def progress(job):
    """Return how far a job is, by the last percentage that pytest printed."""
    percentages = PERCENT.findall(job.log.read_text(errors="replace"))
    return f"{percentages[-1]}%" if percentages else "runs"


def describe(result):
    """Return one line on a job that ended, after the failures that pytest printed."""
    job = result.job
    line = f"{job.name} {'FAILED' if result.code else 'passed'}"
    if job.stage is BUILD:
        return line
    text = job.log.read_text(errors="replace")
    if not result.code:
        return f"{line}: {text.strip().rpartition(chr(10))[2].strip('= ')}"
    failures = FAILURES.search(text)
    return f"{text[failures.start() if failures else 0 :]}\n{line}: {job.log.relative_to(ROOT)}"


def summarise(names, run, results, minutes):
    """Return the table of times and budgets of each stage, and the exit code."""
    lines = ["stage     tests  minutes  budget  CPU seconds  budget"]
    outcomes, has_failed, used = Counter(), False, 0.0
    for name in names:
        stage, budget = STAGES[name], STAGES[name].budgets[run]
        ended = [result for result in results if result.job.stage is stage]
        tests = [outcome for result in ended for outcome in result.report.outcomes.values()]
        is_right = len(ended) == stage.processes and not any(result.code for result in ended)
        if is_right:
            omissions = list(find_omissions(list_files(name), [result.report for result in ended]))
            lines[0:0] = omissions[:10]
            is_right = bool(tests) and not omissions
        taken = max((result.end for result in ended), default=0)
        taken -= min((result.start for result in ended), default=0)
        cpu_seconds = sum(result.cpu_seconds for result in ended)
        lines.append(
            f"{name:8} {len(tests):6}  {taken / 60:7.1f}  {budget.minutes:6.1f}"
            f"  {cpu_seconds:11.0f}  {budget.cpu_seconds:6}  {'passed' if is_right else 'FAILED'}"
        )
        outcomes.update(tests)
        has_failed |= not is_right
        used += cpu_seconds
    budget = f"{TOTAL_MINUTES[run]:6.1f}  {used:11.0f}" if len(names) > 1 else ""
    lines.append(f"{'total':8} {outcomes.total():6}  {minutes:7.1f}  {budget}")
    lines.append(
        f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped"
    )
    return lines, int(has_failed)


def main():
    """Run the stages, print what each took, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition(".")[0])
    parser.add_argument("run", choices=tuple(DEPTH))
    parser.add_argument("stages", nargs="*", metavar="STAGE", help=", ".join(STAGES))
    parser.add_argument("--weigh", action="store_true", help="write how long each file takes")
    options = parser.parse_args()
    run = options.run
    known = [name for name, stage in STAGES.items() if run in stage.budgets]
    names = options.stages or known
    if set(names) - set(known):
        parser.error(f"unknown stage in {' '.join(names)}: choose from {', '.join(known)}")
    if options.weigh and (run, names) != ("gate", known):
        parser.error("--weigh writes the whole table: run it as gate, without a STAGE")
    impossible = {name: reason for name in names if (reason := why_not(name))}
    not_run = [f"{name}: not run: {reason}" for name, reason in impossible.items()]
    print(*not_run, sep="\n", end="\n" * bool(not_run), flush=True)
    names = [name for name in names if name not in impossible]
    if not names:
        return 2
    seed = 1 if run == "gate" else random.SystemRandom().getrandbits(32)
    start = time.monotonic()

    def say(text):
        minutes, seconds = divmod(round(time.monotonic() - start), 60)
        print(f"{minutes}:{seconds:02} {text}", flush=True)

    minutes = min(TOTAL_MINUTES[run], sum(STAGES[name].budgets[run].minutes for name in names))
    about = f"about {minutes:g} minutes on two idle cores"
    say(f"{run} run of {', '.join(names)}, seed {seed}, {about}")
    LOGS.mkdir(parents=True, exist_ok=True)
    jobs = [job for name in names for job in jobs_of(name, run, seed)]
    if any(job.stage.needs_binaries for job in jobs):
        jobs.insert(0, build_job(run, names))
    results = run_jobs(jobs, {**os.environ, **ENVIRONMENT, **DEPTH[run]}, say)
    lines, code = summarise(names, run, results, (time.monotonic() - start) / 60)
    print("", *lines, *not_run, sep="\n", flush=True)
    if options.weigh and not code:
        seconds = sum((Counter(result.report.seconds) for result in results), Counter())
        weights = {file: round(total, 1) for file, total in sorted(seconds.items()) if total >= 0.5}
        WEIGHTS.write_bytes(msgspec.json.format(msgspec.json.encode(weights)) + b"\n")
    return code


def command():
    """Do what ``main`` does, until a signal interrupts it."""
    interrupt_on(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    try:
        return main()
    except KeyboardInterrupt:
        return "interrupted: the processes of all stages have ended"


if __name__ == "__main__":
    sys.exit(command())
