"""Runs simulations, as ``python -m simulation --seed=7``; exits with 1 if an invariant breaks."""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

cpu_time = time.process_time


def main():
    """Run the seeds, and print the outcome of each."""
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", default="1", help="a number, or a range as 1-20")
    parser.add_argument("--steps", type=int, default=60, help="what users do, one after the other")
    parser.add_argument("--trace", help="write the whole trace to this file")
    parser.add_argument("--applications", type=int, help="place so many on --clusters, instead")
    parser.add_argument("--clusters", type=int, default=6)
    parser.add_argument("--checks", action="store_true", help="check each of the applications")
    parser.add_argument("--pods", type=int, help="simulate a large cluster with so many, instead")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--apps", type=int, default=2000)
    parser.add_argument("--releases-per-minute", type=float, default=200)
    parser.add_argument("--hours", type=float, default=1)
    parser.add_argument("--plant", action="store_true", help="break an invariant of that cluster")
    parser.add_argument("--minutes", type=float, help="begin no further seed after that CPU time")
    options = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of names is a part of the trace.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "simulation", *sys.argv[1:]], environment)  # noqa: S606 - ourselves
    from simulation.clock import install  # noqa: PLC0415 - before the product

    install()
    from simulation.run import run  # noqa: PLC0415

    first, _, last = options.seed.partition("-")
    if options.applications:
        return place(range(int(first), int(last or first) + 1), options)
    gc.disable()
    if options.pods:
        return scale(int(first), options)
    with Path(options.trace).open("w") if options.trace else nullcontext() as trace:
        for seed in range(int(first), int(last or first) + 1):
            start = cpu_time()
            outcome = run(seed, options.steps, trace)
            gc.collect()
            print(
                f"seed {seed}: {outcome.requests} requests, {outcome.released} pods released, "
                f"{outcome.staged} of them in stages, "
                f"{outcome.seconds:.0f} s simulated in {cpu_time() - start:.1f} s, "
                f"trace {outcome.digest}",
                flush=True,
            )
            if outcome.violation:
                print("\n".join(outcome.tail))
                print(f"\nseed {seed} breaks an invariant: {outcome.violation}")
                print(f"again: make simulate SEED={seed} STEPS={options.steps}")
                return 1
            if options.minutes is not None and cpu_time() > 60 * options.minutes:
                break
    return 0


def place(seeds, options):
    """Run the seeds of a simulation of placement, and print the counts of writes."""
    from simulation.placement import UncausedWriteError, run  # noqa: PLC0415 - after the clock

    for seed in seeds:
        start = cpu_time()
        try:
            text = run(seed, options.applications, options.clusters, checks=options.checks)
        except UncausedWriteError as error:
            print(f"seed {seed}: {error}")
            return 1
        print(f"seed {seed}: {text}, in {cpu_time() - start:.1f} s", flush=True)
    return 0


def scale(seed, options):
    """Run a large cluster, and print the figures as JSON."""
    from simulation.scale import Size, run  # noqa: PLC0415 - after the clock

    size = Size(
        nodes=options.nodes,
        pods=options.pods,
        apps=options.apps,
        releases_per_minute=options.releases_per_minute,
        hours=options.hours,
    )
    figures, outcome = run(seed, size, planted=options.plant)
    if outcome.violation:
        print("\n".join(outcome.tail))
        print(f"\nseed {seed} breaks an invariant: {outcome.violation}")
        return 1
    print(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
