"""``make bench``: measures speed and memory, and compares ratios with those of the record.

The figures are in build/bench/bench.json. A ratio that is worse than in ``record.json``, also when
its part is measured again, is a line and the exit code 1. Without arguments, all parts are measured
but those of ``CLUSTER``: a real control plane, or a large one that is fake, for half an hour.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime as dt
import json
import os
import platform
import re
import sys
import tempfile
import time
from pathlib import Path

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]

import blocking  # noqa: E402
import draining  # noqa: E402
import enforcing  # noqa: E402
import engine  # noqa: E402
import explaining  # noqa: E402
import extending  # noqa: E402
import memory  # noqa: E402
import placing  # noqa: E402
import planning  # noqa: E402
import policy_events  # noqa: E402
import review_cost  # noqa: E402
import scale  # noqa: E402
import staging  # noqa: E402
from figures import (  # noqa: E402
    PAGE,
    RECORD,
    ROUNDS,
    list_figures,
    medians,
    ratio,
    read_page,
    read_record,
    update_record,
    worse_ratios,
)
from servers import (  # noqa: E402
    compare_with,
    harbourmaster,
    serve_constant,
    wait_until_ready,
    write_policies,
)

from harbourmaster.playground.control_plane import ControlPlane  # noqa: E402
from helpers.load.gates import (  # noqa: E402
    BOUND_BY,
    measure_apps,
    measure_availability,
    measure_jobs,
    measure_release,
)
from helpers.objects import body  # noqa: E402

RESULT = ROOT / "build/bench/bench.json"
VERSIONS = 1000
"""That wait for a task, each with five gated pods."""
APPS = 500
WAITING = 1000
"""Pods that wait for a Job each, while those end for which SINGLE further ones wait."""
SINGLE = 100
WAITING_FOR_ONE = 5000
QUIET = 10.0


def compare_gates(folder):
    """A 5 kB pod and one matching policy, in a namespace with gates and in one without."""
    policies = write_policies(folder / "gated", [engine.matching(0)])
    parents = folder / "parents.yaml"
    parents.write_text(yaml.dump_all(engine.family(engine.TRACKED), Dumper=yaml.CSafeDumper))
    payload, inherited = folder / "pod.json", folder / "pod-inherited.json"
    payload.write_bytes(body(engine.large_pod(engine.TRACKED)))
    inherited.write_bytes(body(engine.large_pod()))
    servers = {}
    for has_gates, namespace in engine.NAMESPACES.items():
        file = folder / f"namespace-{has_gates}.yaml"
        file.write_text(yaml.safe_dump(namespace))
        servers[has_gates] = harbourmaster(
            folder, policies, "--namespaces", str(file), "--parents", str(parents)
        )
    asked = {
        "pod": (servers[False], payload),
        "pod, gate": (servers[True], payload),
        "pod, gate inherited": (servers[True], inherited),
    }
    return compare_with("pod", asked, folder)


def compare_recording(folder):
    """Review the same pod by servers that record nothing, some reviews, and all."""
    policies = write_policies(folder / "recorded", [engine.matching(0)])
    payload = folder / "recorded.json"
    payload.write_bytes(body(engine.large_pod()))
    servers = {"not recorded": harbourmaster(folder, policies)}
    for share in ("0.01", "1"):
        options = ("--record", str(folder / f"records-{share}"), "--record-sample", share)
        servers[f"recorded, {share}"] = harbourmaster(folder, policies, *options)
    asked = {name: (server, payload) for name, server in servers.items()}
    return compare_with("not recorded", asked, folder)


def measure_start(folder):
    """Return the time and CPU from exec until ready, with ten policies."""
    policies = write_policies(folder / "few", [engine.matching(index) for index in range(10)])
    answer = folder / "answer.json"
    answer.write_text("{}")
    rounds = []
    for _ in range(ROUNDS):
        ours = harbourmaster(folder, policies)
        ready, spent = wait_until_ready(ours), ours.cpu_seconds()
        ours.stop()
        constant = serve_constant("constant", folder, answer)
        rounds.append({"ready": ready, "CPU": spent, "CPU, constant": constant.cpu_seconds()})
        constant.stop()
    ratios = {"CPU / constant": ratio(rounds, "CPU", "CPU, constant")}
    return {"seconds": medians(rounds), "ratios": ratios}


def on_control_plane(measure, optional=()):
    """Return the part that a coroutine measures once on a control plane of its own."""

    def part(folder):
        with ControlPlane(folder, optional=optional) as plane:
            return asyncio.run(measure(plane))._asdict()

    return part


PARTS = {
    "engine": engine.measure,
    "extender": extending.measure,
    "policy-events": policy_events.measure,
    "rescheduler": planning.measure,
    "placement": placing.measure,
    "review": review_cost.measure,
    "gates": compare_gates,
    "recording": compare_recording,
    "blocking": blocking.measure,
    "memory": memory.measure,
    "start": measure_start,
}
"""A part gets an empty folder and returns figures; its ``ratios`` are compared with the record."""
CLUSTER = {
    "release": on_control_plane(lambda plane: measure_release(plane, VERSIONS, QUIET)),
    "apps": on_control_plane(lambda plane: measure_apps(plane, APPS)),
    "jobs": on_control_plane(lambda plane: measure_jobs(plane, WAITING, SINGLE), BOUND_BY),
    "availability": on_control_plane(lambda plane: measure_availability(plane, WAITING_FOR_ONE)),
    "draining": draining.measure,
    "explaining": explaining.measure,
    "scale": scale.measure,
    "staging": staging.measure,
    "enforcing": lambda folder: asyncio.run(enforcing.measure(folder)),
}


def describe_machine():
    names = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def measure(names):
    """Return the figures of these parts, and print each with the seconds that it took."""
    parts = {}
    for name in names:
        print(f"{name} ...", flush=True)  # noqa: T201
        begun = time.monotonic()
        date = dt.datetime.now(dt.UTC).date().isoformat()
        with tempfile.TemporaryDirectory() as folder:
            parts[name] = {"date": date, **(PARTS | CLUSTER)[name](Path(folder))}
        print(*list_figures(parts[name], f"  {name}"), sep="\n")  # noqa: T201
        print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)  # noqa: T201
    return parts


def write_json(path, figures):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition(".")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS | CLUSTER))
    parser.add_argument("--cluster", action="store_true", help=f"also {', '.join(CLUSTER)}")
    parser.add_argument("--record", action="store_true", help="keep the figures in record.json")
    parser.add_argument("--page", action="store_true", help="only write the page of the manual")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(PARTS | CLUSTER):
        parser.error(
            f"unknown part: {', '.join(unknown)}: choose from {', '.join(PARTS | CLUSTER)}"
        )
    if options.page:
        PAGE.write_text(read_page())
        return 0
    names = options.parts or [*PARTS, *(CLUSTER if options.cluster else ())]
    machine, record = describe_machine(), read_record()
    if options.record and options.parts and record["machine"] not in ({}, machine):
        parser.error("the record is from another machine: record all parts: make bench RECORD=1")
    parts = measure(names)
    write_json(RESULT, {"machine": machine, "parts": parts})
    if record["machine"] != machine:
        print(f"the record is from another machine: {record['machine']}")  # noqa: T201
    worse = worse_ratios(record["parts"], parts)
    print(*worse.values(), sep="\n")  # noqa: T201
    if options.record:
        write_json(RECORD, update_record(read_record(), machine, parts))
        PAGE.write_text(read_page())
        return 0
    # One of tens of ratios may be worse by chance, but hardly the same one twice.
    again = worse_ratios(record["parts"], measure(dict.fromkeys(part for part, _ in worse)))
    lasting = [sentence for key, sentence in again.items() if key in worse]
    if worse:
        print("", "Worse in both measurements:", *lasting or ["none"], sep="\n")  # noqa: T201
    return int(bool(lasting))


if __name__ == "__main__":
    sys.exit(main())
