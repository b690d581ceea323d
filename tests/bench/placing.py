"""CPU cost of one pass over 1,000 applications, 100 clusters and 10 metrics, with its records."""

from __future__ import annotations

import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from figures import ROUNDS, medians, ratio, reference_ms  # noqa: E402

from harbourmaster.placement.application_status import settle  # noqa: E402
from harbourmaster.placement.decision import record  # noqa: E402
from harbourmaster.placement.passes import Pass  # noqa: E402
from helpers.placing import (  # noqa: E402
    NOW,
    ONLINE,
    ago,
    application,
    cluster,
    decide_all,
    metric,
    world,
)

APPLICATIONS = 1000
CLUSTERS = 100
METRICS = 10
KINDS = 200
"""That each cluster serves beside those of Kubernetes."""
TEXTS = ("zone in (a, b)", "zone is not c", "tier is gold", "zone not in (d)")
SERVED = [f"example.com/v1/Kind{number}" for number in range(KINDS)]
SILENT = {"type": "Reachable", "status": "False", "reason": "NoAnswer"}


def target(number):
    """One in ten does not answer, and each lacks some kinds."""
    names = [f"m{number}" for number in range(METRICS)]
    status = {**ONLINE, "servedKinds": SERVED[number % 7 :]}
    if number % 10 == 9:
        conditions = [{**SILENT, "lastTransitionTime": ago(3600)}]
        status = {**status, "state": "Offline", "conditions": conditions}
    return cluster(
        f"c{number}",
        {name: 1 + (number * place) % 7 for place, name in enumerate(names)},
        labels={"zone": "abcd"[number % 4], "tier": ("gold", "iron")[number % 2]},
        status=status,
    )


def make_application(number):
    """Two in three run somewhere, half have kinds of their own, and one in seven has failed."""
    own = {"apiVersion": "example.com/v1", "kind": f"Kind{number % 20}"}
    failed = [
        {"name": f"c{(number + offset) % CLUSTERS}", "uid": f"uid-c{(number + offset) % CLUSTERS}"}
        for offset in range(3)
    ]
    deployed = {"type": "Deployed", "status": "True", "observedGeneration": 1}
    status = {"awaitsReady": True, "conditions": [deployed]}
    status["failedClusters"] = [{**target, "generation": 1, "revision": "1"} for target in failed]
    return application(
        f"app-{number}",
        on=f"c{number % CLUSTERS}" if number % 3 else None,
        labels=[TEXTS[number % 4], *([f"zone is not z{number}"] if number % 5 == 0 else [])],
        metrics=[f"m{number % METRICS} > 0.{number % 9}"],
        manifests=[own] if number % 2 else [],
        status=status if number % 7 == 0 else None,
    )


def many(**source):
    """Applications of all kinds, and a world for them; ``source`` is one of values per cluster."""
    names = [f"m{number}" for number in range(METRICS)]
    clusters = [target(number) for number in range(CLUSTERS)]
    values = {name: (number + 0.5) / METRICS for number, name in enumerate(names)}
    apps = [make_application(number) for number in range(APPLICATIONS)]
    if source:
        values = {
            name: {f"c{number}": (value + number / CLUSTERS) % 1 for number in range(CLUSTERS)}
            for name, value in values.items()
        }
    return apps, world(*clusters, *(metric(name, **source) for name in names), **values)


def run_pass(apps, snapshot):
    """Decide and settle all, with records; returns the seconds of a core and what comes of it."""
    started = time.process_time()
    view = Pass(snapshot, NOW)
    decisions = decide_all(apps, view)
    decided = time.process_time() - started
    statuses = [
        settle(app, decision, view.rules, lambda decision: record(decision, view))
        for app, decision in zip(apps, decisions, strict=True)
    ]
    return decided, time.process_time() - started, decisions, statuses


def measure(_folder):
    """Milliseconds of CPU, of deciding alone and with statuses and records."""
    apps, snapshot = many()
    rounds = []
    for _ in range(ROUNDS):
        decided, settled = run_pass(apps, snapshot)[:2]
        spent = {"decided": decided * 1e3, "settled": settled * 1e3}
        rounds.append({"reference": reference_ms()} | spent)
    ratios = {f"{name} / reference": ratio(rounds, name, "reference") for name in spent}
    return {"ms": medians(rounds), "ratios": ratios}
