"""The metrics of the lifecycle follow from the existing objects."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from harbourmaster.controller.lifecycle import metric_values
from harbourmaster.controller.lifecycle.latest import LatestValues
from harbourmaster.controller.lifecycle.metric_values import EndingCounter, MetricValues, labels_of
from harbourmaster.controller.lifecycle.metrics import (
    APP,
    DEPLOYMENTS,
    EVALUATION,
    FINISHED,
    KEYS,
    PROMOTION,
    TASK,
    WORKLOAD,
)
from harbourmaster.lifecycle.model import AppVersionStatus, WorkloadVersionStatus
from helpers.lifecycle_objects import (
    ENDED,
    STARTED,
    app_version,
    evaluation,
    owner_by,
    task,
    workload_version,
)
from helpers.signals import Telling

RUNNING = AppVersionStatus(status="Progressing", start_time=STARTED)


@pytest.fixture
def telling():
    return Telling()


class Kept:
    def __init__(self):
        self.found = []

    def count_finished(self, kind, labels, seconds, anchor):
        assert len(labels) == len(FINISHED[kind])
        self.found.append((kind, labels, seconds, anchor))


def test_what_ends_is_counted_with_its_state_its_time_and_its_version():
    kept = Kept()
    endings = EndingCounter(kept)
    shop, front = app_version(), workload_version()
    endings.count(shop)
    endings.count(front)
    endings.count(task(owner_by("KeptnAppVersion", shop)))
    endings.count(evaluation(owner_by("KeptnWorkloadVersion", front)))
    key = "prod/shop-1-6b86b273"
    assert kept.found == [
        (APP, ("shop", "1", "prod", "Succeeded"), 60.0, (APP, key)),
        (
            WORKLOAD,
            ("shop", "shop-front", "7", "prod", "Succeeded"),
            60.0,
            (WORKLOAD, "prod/shop-front-7"),
        ),
        (TASK, ("shop", "1", "", "", "entry", "pre", "Succeeded"), 60.0, (APP, key)),
        (
            EVALUATION,
            ("shop", "", "shop-front", "7", "cpu", "pre-eval", "Failed"),
            60.0,
            (WORKLOAD, "prod/shop-front-7"),
        ),
    ]


@pytest.mark.claim("O26")
@pytest.mark.parametrize("make", [task, evaluation])
def test_what_a_user_made_counts_for_no_app(make):
    front = workload_version()
    assert labels_of(make(owner_by("KeptnWorkloadVersion", front)))[0] == "shop"
    assert labels_of(make())[:4] == ("", "", "", "")
    assert labels_of(make(owner_by("ReplicaSet", front)))[:4] == ("", "", "", "")


def test_a_promotion_counts_besides_and_nothing_counts_twice():
    kept = Kept()
    endings = EndingCounter(kept)
    for _ in range(2):
        endings.count(task(check_type="promotion"))
    assert [ending[0] for ending in kept.found] == [TASK, PROMOTION]
    assert kept.found[0][3] == (TASK, "prod/pre-entry-12345")


@pytest.mark.parametrize(
    ("obj", "kind"),
    [
        (app_version(), APP),
        (workload_version(), WORKLOAD),
        (task(), TASK),
        (evaluation(), EVALUATION),
    ],
)
def test_there_is_a_value_for_each_label(obj, kind):
    assert len(labels_of(obj)) == len(KEYS[kind])


def test_what_has_no_end_runs(telling):
    caches = telling.caches
    telling.put(caches.app_versions, app_version("1"))
    telling.put(caches.app_versions, app_version("2", status=RUNNING))
    superseded = AppVersionStatus(status="Deprecated", start_time=STARTED)
    telling.put(caches.app_versions, app_version("3", status=superseded))
    shop = app_version()
    for number in range(3):
        telling.put(caches.tasks, task(owner_by("KeptnAppVersion", shop), name=f"t-{number}"))
    running = task(owner_by("KeptnAppVersion", shop), name="t-9")
    status = replace(running.status, status="Progressing", end_time="")
    telling.put(caches.tasks, replace(running, status=status))
    active = MetricValues(caches).read_gauges().active
    assert active[APP] == {
        ("shop", "1", "prod"): 0,
        ("shop", "2", "prod"): 1,
        ("shop", "3", "prod"): 0,
    }
    assert active[TASK] == {("shop", "1", "", "", "entry", "pre"): 1}
    assert active[WORKLOAD] == {}


def test_intervals_are_from_the_end_of_the_version_before(telling):
    caches = telling.caches
    # Run twice: the later run that had ended counts.
    for name, end in (("a", "2026-03-01T11:00:00Z"), ("b", "2026-03-01T11:59:40Z")):
        status = AppVersionStatus(start_time="2026-03-01T10:00:00Z", end_time=end)
        telling.put(caches.app_versions, app_version("0", name=name, status=status))
    late = AppVersionStatus(start_time="2026-03-01T10:00:00Z", end_time="2026-03-01T13:00:00Z")
    telling.put(caches.app_versions, app_version("0", name="c", status=late))
    telling.put(caches.app_versions, app_version("1", previous="0"))
    before = WorkloadVersionStatus(start_time=STARTED, end_time="2026-03-01T12:00:00Z")
    telling.put(caches.workload_versions, workload_version("6", status=before))
    telling.put(caches.workload_versions, workload_version("7", previous="6"))
    now = MetricValues(caches).read_gauges()
    assert now.intervals[APP] == {("shop", "1", "prod", "0"): 30.0}
    assert now.intervals[WORKLOAD] == {("shop", "shop-front", "7", "prod", "6"): 10.0}
    assert now.durations[APP]["shop", "1", "prod", "0"] == 60.0
    for kind in (APP, WORKLOAD):
        assert all(len(labels) == len(DEPLOYMENTS[kind]) for labels in now.durations[kind])


def test_one_whose_version_before_is_not_known_has_no_interval(telling):
    telling.put(telling.caches.app_versions, app_version("1", previous="0"))
    telling.put(telling.caches.app_versions, app_version("2", status=RUNNING))
    now = MetricValues(telling.caches).read_gauges()
    assert now.intervals[APP] == {}
    assert ("shop", "2", "prod", "") not in now.durations[APP]


def test_of_what_is_over_the_latest_are_shown_and_of_what_runs_all(telling, monkeypatch):
    monkeypatch.setattr(metric_values, "SHOWN", 2)
    for number in range(5):
        end = f"2026-03-01T12:0{number + 1}:00Z"
        status = AppVersionStatus(start_time=STARTED, end_time=end)
        over = app_version(str(number), previous="9", status=status)
        telling.put(telling.caches.app_versions, over)
        running = app_version(f"r{number}", status=RUNNING)
        telling.put(telling.caches.app_versions, running)
    now = MetricValues(telling.caches).read_gauges()
    assert {labels[1]: count for labels, count in now.active[APP].items()} == {
        **{f"r{number}": 1 for number in range(5)},
        "3": 0,
        "4": 0,
    }
    assert [labels[1] for labels in now.durations[APP]] == ["3", "4"]


def test_an_object_is_there_while_it_is_cached(telling):
    values = MetricValues(telling.caches)
    anchor = (APP, "prod/shop-1-6b86b273")
    assert not values.exists(anchor)
    telling.put(telling.caches.app_versions, app_version())
    assert values.exists(anchor)


def test_times_that_make_no_sense_are_no_times(telling):
    status = AppVersionStatus(start_time="soon", end_time=ENDED)
    telling.put(telling.caches.app_versions, app_version(status=status))
    assert MetricValues(telling.caches).read_gauges().durations[APP] == {}


def test_the_first_value_counts_and_the_oldest_goes():
    values = LatestValues(2)
    assert values.add("a", 1)
    assert not values.add("a", 2)
    assert values.add("b", 3)
    assert values.add("c", 4)
    assert len(values) == 2
    assert "a" not in values
    assert values.take("b") == 3
    assert values.take("b") is None
    assert "c" in values
