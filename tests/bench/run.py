"""``make bench``: speed and memory, as a table for people and JSON for programs, in build/bench.

Each figure is the median of five runs; ``servers`` says how those are compared that are.
With ``--cluster`` a real control plane and our controller share both cores for some twenty minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
from pathlib import Path

import yaml

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]

import blocking  # noqa: E402
import enforcing  # noqa: E402
import engine  # noqa: E402
import extending  # noqa: E402
import placing  # noqa: E402
import planning  # noqa: E402
import policy_events  # noqa: E402
from review_cost import compare_with_constant, ratio_lines  # noqa: E402
from servers import (  # noqa: E402
    CONNECTIONS,
    harbourmaster,
    in_turn,
    load,
    medians,
    ratio,
    wait_until_ready,
    write_policies,
)

from harbourmaster.playground.control_plane import ControlPlane  # noqa: E402
from helpers.load.gates import (  # noqa: E402  # noqa: E402
    BOUND_BY,
    measure_apps,
    measure_availability,
    measure_jobs,
    measure_release,
)
from helpers.objects import body, cluster_policy, large_deployment, policy  # noqa: E402

RUNS = 5
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
    try:
        runs = in_turn(asked, folder)
    finally:
        for server in servers.values():
            server.stop()
    return {
        "closed": {name: medians(latencies) for name, latencies in runs.items()},
        "ratio": ratio(runs["pod, gate inherited"], runs["pod"]),
    }


def compare_recording(folder):
    """Review the same pod by servers that record nothing, some reviews, and all."""
    policies = write_policies(folder / "recorded", [engine.matching(0)])
    payload = folder / "recorded.json"
    payload.write_bytes(body(engine.large_pod()))
    servers = {"not recorded": harbourmaster(folder, policies)}
    for share in ("0.01", "1"):
        options = ("--record", str(folder / f"records-{share}"), "--record-sample", share)
        servers[f"recorded, {share}"] = harbourmaster(folder, policies, *options)
    try:
        runs = in_turn({name: (server, payload) for name, server in servers.items()}, folder)
    finally:
        for server in servers.values():
            server.stop()
    plain = runs["not recorded"]
    return {
        "closed": {name: medians(latencies) for name, latencies in runs.items()},
        "ratios": {
            name: {
                figure: ratio(latencies, plain, figure)["median"]
                for figure in ("cpu_us", "p50_ms", "p99_ms")
            }
            for name, latencies in runs.items()
            if latencies is not plain
        },
    }


def memory_and_start(folder):
    """1,000 policies and 10,000 namespaces; then the time from exec to ready on few."""
    many = [
        cluster_policy(
            f"c-{i}", pods={"app": f"a-{i}"}, namespaces={"team": f"t-{i}"}, nodeSelector={"a": "b"}
        )
        for i in range(500)
    ]
    many += [
        policy(
            f"p-{i}",
            f"ns-{i}",
            tolerations=[engine.TOLERATION],
            affinity=engine.required({"a": "b"}),
        )
        for i in range(500)
    ]
    namespaces = folder / "namespaces.yaml"
    namespaces_yaml = [
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": f"ns-{i}", "labels": {"team": f"t-{i % 50}", "env": "prod"}},
        }
        for i in range(10_000)
    ]
    namespaces.write_text(yaml.dump_all(namespaces_yaml, Dumper=yaml.CSafeDumper))
    policies = write_policies(folder / "many", many)
    payload = folder / "review-many.json"
    payload.write_bytes(body(large_deployment(), namespace="ns-1"))
    resident = []
    for _ in range(RUNS):
        server = harbourmaster(folder, policies, "--namespaces", str(namespaces))
        load(server, folder, payload, 5000)
        resident.append(server.resident_bytes())
        server.stop()
    few = write_policies(folder / "few", [engine.matching(index) for index in range(10)])
    starts = []
    for _ in range(RUNS):
        server = harbourmaster(folder, few)
        starts.append(wait_until_ready(server))
        server.stop()
    return {
        "resident_mb": statistics.median(resident) / 1e6,
        "ready_seconds": statistics.median(starts),
    }


def on_control_planes(folder):
    """Measure once each, because they take minutes: releases of pods, and applications."""
    figures = {}
    measures = {
        "release": ((), lambda plane: measure_release(plane, VERSIONS, QUIET)),
        "apps": ((), lambda plane: measure_apps(plane, APPS)),
        "jobs": (BOUND_BY, lambda plane: measure_jobs(plane, WAITING, SINGLE)),
        "availability": ((), lambda plane: measure_availability(plane, WAITING_FOR_ONE)),
    }
    for name, (optional, measure) in measures.items():
        place = folder / name
        place.mkdir()
        with ControlPlane(place, optional=optional) as plane:
            figures[name] = asyncio.run(measure(plane))._asdict()
    place = folder / "enforcing"
    place.mkdir()
    figures["enforcing"] = asyncio.run(enforcing.measure(place))
    return figures


def table(rows):
    widths = [max(len(str(row[column])) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = [str(cell).ljust(width) for cell, width in zip(row, widths, strict=True)]
        yield "| " + " | ".join(cells) + " |"
        if number == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"


def report(figures):
    yield f"# Benchmark on {figures['machine']}"
    yield ""
    yield f"Medians of {RUNS} runs."
    yield ""
    yield "## Engine alone"
    yield ""
    rows = [("case", "us, merged anew", "us, merge remembered")]
    rows += [
        (name, *(f"{value:.1f}" for value in both.values()))
        for name, both in figures["engine"].items()
    ]
    yield from table(rows)
    few = figures["engine"]["five matches of 10 policies"]["first"]
    many = figures["engine"]["five matches of 10,000 policies"]["first"]
    yield ""
    yield f"10,000 policies cost {many / few:.2f} times 10 policies (asked: at most 2)."
    server = figures["server"]
    yield ""
    size = server["review_bytes"]
    yield f"## Server, TLS, {CONNECTIONS} kept connections, review of {size} bytes"
    yield ""
    rows = [("load", "CPU us", "requests/s", "p50 ms", "p99 ms", "failed")]
    named = [(f"closed, {name}", run) for name, run in server["closed"].items()]
    for part in ("gates", "recording"):
        named += [(f"closed, {name}", run) for name, run in figures[part]["closed"].items()]
    named += [(f"open, {rate}/s, one policy", run) for rate, run in server["open"].items()]
    rows += [
        (
            name,
            f"{run['cpu_us']:.1f}",
            f"{run['per_second']:.0f}",
            f"{run['p50_ms']:.2f}",
            f"{run['p99_ms']:.2f}",
            int(run["failed"]),
        )
        for name, run in named
    ]
    yield from table(rows)
    yield ""
    yield from ratio_lines(server)
    yield ""
    yield "Asked: at most 1.2 times the constant."
    gates = figures["gates"]["ratio"]
    yield ""
    yield (
        f"With an inherited gate a pod costs {gates['median']:.2f} times the policy alone "
        f"({gates['min']:.2f} to {gates['max']:.2f}; asked: at most 1.2)."
    )
    for name, ratios in figures["recording"]["ratios"].items():
        yield ""
        yield (
            f"{name.capitalize()} of the reviews: {ratios['cpu_us']:.2f} times the CPU of none, "
            f"{ratios['p50_ms']:.2f} times the p50, {ratios['p99_ms']:.2f} times the p99."
        )
    process = figures["process"]
    yield ""
    yield "## Process"
    yield ""
    yield from table(
        [
            ("what", "measured", "asked"),
            (
                "resident, 1,000 policies, 10,000 namespaces",
                f"{process['resident_mb']:.1f} MB",
                "90 MB",
            ),
            ("from exec to ready", f"{process['ready_seconds']:.2f} s", "1.5 s"),
        ]
    )
    yield ""
    yield "## Extender, a question about 5,000 nodes"
    yield ""
    rows = [(name, f"{value:.2f}") for name, value in figures["extender"].items()]
    yield from table([("case", "CPU ms (asked: 1)"), *rows])
    yield from report_policy_events(figures["policy_events"])
    yield from report_blocking(figures["blocking"])
    yield from report_planning(figures["planning"])
    yield from report_placing(figures["placing"])
    if "cluster" in figures:
        yield from report_cluster(figures["cluster"])


def report_policy_events(figures):
    yield ""
    yield f"## One event of {policy_events.POLICIES:,} policies, on the event loop"
    yield ""
    rows = [
        (name, f"{run['median_ms']:.2f}", f"{run['max_ms']:.2f}") for name, run in figures.items()
    ]
    yield from table([("policies", "CPU ms, median", "max (asked: 2)"), *rows])


def report_blocking(figures):
    yield ""
    yield "## Longest block of an event loop by one body, as large as is read"
    yield ""
    rows = [(where, f"{figure['ms']:.0f}", figure["body"]) for where, figure in figures.items()]
    yield from table([("where", "ms (aim: 250)", "the worst body"), *rows])


def report_planning(figures):
    yield ""
    yield f"## Rescheduler, {planning.NODES:,} full nodes of {planning.PODS} pods"
    yield ""
    rows = [
        (name, f"{run['ms']:.0f}", f"{run['slice_ms']:.0f}")
        for name, run in figures["plans"].items()
    ]
    yield from table([("critical pod", "CPU ms (asked: 2,000)", "longest slice, ms"), *rows])
    yield ""
    yield from table(
        [
            ("what", "measured", "asked"),
            (f"resident, {figures['pods']:,} pods", f"{figures['resident_mb']:.0f} MB", "400 MB"),
            ("cores at 50 changes/s", f"{figures['cores']:.4f}", "0.1"),
        ]
    )


def report_placing(figures):
    yield ""
    yield (
        f"## Placement, a pass over {placing.APPLICATIONS:,} applications, {placing.CLUSTERS} "
        f"clusters and {placing.METRICS} metrics"
    )
    yield ""
    yield from table(
        [
            ("what", "CPU ms", "asked"),
            ("decisions", f"{figures['decided_ms']:.0f}", "1,000"),
            ("decisions, statuses and records", f"{figures['settled_ms']:.0f}", "-"),
        ]
    )


def report_cluster(figures):
    release, apps = figures["release"], figures["apps"]
    yield ""
    yield f"## Controller, {VERSIONS:,} versions that wait for a task, or {APPS} applications"
    yield ""
    yield "Measured once, on the cores that the control plane runs on too."
    yield ""
    memory = max(release["memory_mb"], apps["memory_mb"])
    yield from table(
        [
            ("what", "measured", "asked"),
            ("from a Job's end to its pods' release, p50", f"{release['p50'] * 1e3:.0f} ms", "-"),
            ("the same, p99", f"{release['p99'] * 1e3:.0f} ms", "500 ms"),
            (
                f"{release['pods']:,} gated pods released",
                f"{release['drained']:.0f} s",
                f"{release['pods'] * 60 / 5000:.0f} s",
            ),
            ("requests while all wait", f"{release['idle']:.1f}/s", "1/s"),
            (f"{APPS} applications of 5 workloads", f"{apps['seconds']:.0f} s", "300 s"),
            ("resident, the larger of both", f"{memory:.0f} MB", "300 MB"),
        ]
    )
    jobs, availability = figures["jobs"], figures["availability"]
    yield ""
    yield (
        f"## Controller, {WAITING:,} pods that wait for a Job each, "
        f"or {WAITING_FOR_ONE:,} for one Deployment"
    )
    yield ""
    loads = f"{jobs['load']} after the Jobs and {availability['load']} after the Deployment"
    yield f"The load average was {loads}."
    yield ""
    yield from table(
        [
            ("what", "measured", "asked"),
            ("from a Job's end to its pod's release, p50", _ms(jobs["released_p50"]), "-"),
            ("the same, p99", _ms(jobs["released_p99"]), "-"),
            ("from a Job's end to its pod's binding, p50", _ms(jobs["bound_p50"]), "-"),
            ("the same, p99", _ms(jobs["bound_p99"]), "500 ms"),
            ("from availability to the last release", f"{availability['seconds']:.1f} s", "30 s"),
            ("seconds of a core meanwhile", f"{availability['cpu']:.1f}", "-"),
            ("requests for each pod meanwhile", f"{availability['requests_each']:.2f}", "-"),
            ("resident", f"{availability['memory_mb']:.0f} MB", "-"),
        ]
    )
    yield ""
    yield f"## A pod's creation, {enforcing.CREATIONS:,} of each case"
    yield ""
    yield from table(list(enforcing.rows(figures["enforcing"])))


def _ms(seconds):
    return f"{seconds * 1e3:.0f} ms"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cluster", action="store_true", help="measure gates and phases too")
    options = parser.parse_args()
    target = ROOT / "build" / "bench"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "certs"
        folder.mkdir()
        print("engine ...", flush=True)  # noqa: T201
        figures = {
            "machine": ", ".join(
                (
                    platform.machine(),
                    f"{os.cpu_count()} cores",
                    f"Python {platform.python_version()}",
                )
            ),
            "engine": engine.measure(),
        }
        print("extender ...", flush=True)  # noqa: T201
        figures["extender"] = extending.measure()
        print("policy events ...", flush=True)  # noqa: T201
        figures["policy_events"] = policy_events.measure()
        print("rescheduler ...", flush=True)  # noqa: T201
        figures["planning"] = planning.measure()
        print("placement ...", flush=True)  # noqa: T201
        figures["placing"] = placing.measure()
        print("server ...", flush=True)  # noqa: T201
        figures["server"] = compare_with_constant(folder)
        figures["gates"] = compare_gates(folder)
        figures["recording"] = compare_recording(folder)
        print("longest blocks ...", flush=True)  # noqa: T201
        figures["blocking"] = blocking.measure(folder)
        print("process ...", flush=True)  # noqa: T201
        figures["process"] = memory_and_start(folder)
        if options.cluster:
            print("control plane ...", flush=True)  # noqa: T201
            figures["cluster"] = on_control_planes(Path(name))
    text = "\n".join(report(figures)) + "\n"
    (target / "bench.json").write_text(json.dumps(figures, indent=1) + "\n")
    (target / "bench.md").write_text(text)
    print(text)  # noqa: T201


if __name__ == "__main__":
    main()
