"""R19 on a real node: mixed load, with memory as cgroups count it. ``make soak-node`` runs it."""

from __future__ import annotations

import csv
import os
import statistics
import threading
import time
from collections import defaultdict

import pytest

from helpers import node_objects as objects
from helpers.node import FIGURES, NAMESPACE, figure

SECONDS = float(os.environ.get("HARBOURMASTER_SOAK_SECONDS", "0"))

pytestmark = [
    pytest.mark.timeout(SECONDS + 600),
    pytest.mark.skipif(not SECONDS, reason="make soak-node runs it"),
]

SAMPLE_SECONDS = 10
CHANGE_SECONDS = 3
PER_SECOND = 25
WORKLOADS = 5
JUDGED_SECONDS = 3600
"""A shorter run shows caches that fill."""
LIMIT = 1.0
"""MiB per hour of anonymous memory, over the last two thirds."""


def change(node, place, stop):
    """Create gated Deployments that pass their task and end, and change policies."""
    turn = 0
    while not stop.wait(CHANGE_SECONDS):
        turn += 1
        name, gone = (f"soak-{number % WORKLOADS}" for number in (turn, turn + 1))
        changed = objects.policy()
        changed["metadata"]["name"] = name
        changed["spec"]["podSelector"]["matchLabels"] = {"app": name}
        changed["spec"]["tolerations"][0]["key"] = f"example.com/turn-{turn}"
        gated = objects.deployment(place, name, tasks=["check"], version=f"1.{turn}")
        node.apply(changed, gated)
        node.kubectl("delete", "--ignore-not-found", "clusterpodschedulingpolicy", gone)
        node.kubectl(
            *("delete", "--ignore-not-found", "--wait=false", f"--namespace={place}"),
            *("deployment,keptnapp", gone),
        )


def slope(samples):
    """MiB per hour over the last two thirds."""
    late = samples[len(samples) // 3 :]
    return 3600 * statistics.linear_regression(*zip(*late, strict=True)).slope


def test_r19_memory_of_the_containers_is_flat_under_mixed_load(node, place):
    node.apply(objects.shell_task(place, "check", "sleep 1"))
    stop, rows, failures = threading.Event(), defaultdict(list), []

    def changing():
        try:
            change(node, place, stop)
        except Exception as error:  # noqa: BLE001 - shown at the end
            failures.append(error)

    changer = threading.Thread(target=changing)
    begun = time.monotonic()
    with (
        (FIGURES.with_name("memory.csv")).open("w", newline="") as file,
        node.load(per_second=PER_SECOND, threads=4) as load,
    ):
        writer = csv.writer(file)
        writer.writerow(["seconds", "pod", "anonymous MiB", "working set MiB"])
        changer.start()
        while (passed := time.monotonic() - begun) < SECONDS:
            for pod, (anonymous, working) in node.memory().items():
                writer.writerow([f"{passed:.0f}", pod, f"{anonymous:.2f}", f"{working:.2f}"])
                rows[pod].append((passed, anonymous, working))
            file.flush()
            time.sleep(SAMPLE_SECONDS)
        stop.set()
        changer.join()
    figure(f"{SECONDS:.0f} s of mixed load: {load}")
    steep = {}
    for pod, samples in sorted(rows.items()):
        anonymous = slope([(at, value) for at, value, _ in samples])
        working = slope([(at, value) for at, _, value in samples])
        figure(
            f"{pod}: {samples[-1][1]:.1f} MiB anonymous, {anonymous:+.2f} MiB/h; "
            f"{samples[-1][2]:.1f} MiB working set, {working:+.2f} MiB/h"
        )
        if anonymous > LIMIT:
            steep[pod] = anonymous
    restarts = [
        status["restartCount"]
        for pod in node.get("pods", f"--namespace={NAMESPACE}")
        for status in pod["status"]["containerStatuses"]
    ]
    assert failures == []
    assert load.bad == []
    assert restarts == [0] * 5
    assert SECONDS < JUDGED_SECONDS or steep == {}
