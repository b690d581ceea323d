"""Many applications are decided about within one pass; the figures themselves are a trial's."""

from __future__ import annotations

import time

import pytest

from harbourmaster.placement.application_status import settled
from harbourmaster.placement.passes import Pass
from harbourmaster.placement.records import record
from helpers.placing import NOW, application, cluster, decide_all, metric, world

pytestmark = [pytest.mark.slow, pytest.mark.full]

APPLICATIONS = 1000
CLUSTERS = 100
METRICS = 10
LIMIT = 10.0
"""Seconds: ten times what a pass may take, for machines that are slow or busy."""
TEXTS = ("zone in (a, b)", "zone is not c", "tier is gold", "zone not in (d)")


def many(**source):
    """Applications of all kinds, and a world for them; ``source`` is one of values per cluster."""
    names = [f"m{number}" for number in range(METRICS)]
    clusters = [
        cluster(
            f"c{number}",
            {name: 1 + (number * place) % 7 for place, name in enumerate(names)},
            labels={"zone": "abcd"[number % 4], "tier": ("gold", "iron")[number % 2]},
        )
        for number in range(CLUSTERS)
    ]
    apps = [
        application(
            f"app-{number}",
            on=f"c{number % CLUSTERS}" if number % 3 else None,
            labels=[TEXTS[number % 4], *([f"zone is not z{number}"] if number % 5 == 0 else [])],
            metrics=[f"m{number % METRICS} > 0.{number % 9}"],
        )
        for number in range(APPLICATIONS)
    ]
    values = {name: (number + 0.5) / METRICS for number, name in enumerate(names)}
    if source:
        values = {
            name: {f"c{number}": (value + number / CLUSTERS) % 1 for number in range(CLUSTERS)}
            for name, value in values.items()
        }
    return apps, world(*clusters, *(metric(name, **source) for name in names), **values)


def passed(apps, found):
    """Decide and settle all, with records; returns the seconds of a core and what comes of it."""
    started = time.process_time()
    view = Pass(found, NOW)
    decisions = decide_all(apps, view)
    decided = time.process_time() - started
    statuses = [
        settled(app, each, view.rules, lambda one: record(one, view))
        for app, each in zip(apps, decisions, strict=True)
    ]
    return decided, time.process_time() - started, decisions, statuses


SOURCES = ({}, {"by_label": "cluster"}, {"query": 'load{cluster="$(cluster.name)"}'})


@pytest.mark.parametrize("source", SOURCES, ids=["shared", "label", "name"])
def test_a_pass_over_1000_applications_and_100_clusters_takes_no_ten_seconds(source):
    apps, found = many(**source)
    _, taken, decisions, statuses = passed(apps, found)
    outcomes = {each.outcome for each in decisions}
    assert outcomes >= {"Placed", "Moved", "Stayed"}
    assert len(statuses) == APPLICATIONS
    assert taken < LIMIT


def test_ten_times_the_applications_cost_at_most_twenty_times_the_time():
    apps, found = many()
    passed(apps[:100], found)
    small = min(passed(apps[:100], found)[1] for _ in range(5))
    large = min(passed(apps, found)[1] for _ in range(3))
    assert large <= 20 * small
