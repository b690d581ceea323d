from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from harbourmaster.lifecycle.model import AppVersionStatus
from harbourmaster.lifecycle.waiting import (
    app_obstacle,
    app_version_of,
    may_begin,
    trace_of,
    with_app_metadata,
)
from helpers.phased import app_version, workload_version

WORKLOAD = workload_version()


def app(name="shop-1.0-6b86b273", created="2026-11-21T18:00:00Z", workloads=None, **fields):
    status = AppVersionStatus(**fields.pop("status", {}))
    version = app_version(name, workloads or [("cart", "2.0")], status, **fields)
    metadata = replace(version.metadata, name=name, creation_timestamp=created, generation=1)
    return replace(version, metadata=metadata)


@pytest.mark.parametrize(
    "candidate",
    [
        app(workloads=[("cart", "1.0")]),
        app(workloads=[("till", "2.0")]),
        app(status={"status": "Deprecated"}),
    ],
)
def test_what_has_not_this_workload_in_this_version_does_not_count(candidate):
    assert app_version_of(WORKLOAD, [candidate]) is None


def test_another_app_does_not_count():
    # Of the same name together with its workload.
    another = app(workloads=[("b", "2.0")])
    another = replace(another, spec=replace(another.spec, app_name="shop-a"))
    mine = replace(WORKLOAD, spec=replace(WORKLOAD.spec, workload_name="shop-a-b"))
    assert app_version_of(mine, [another]) is None


def test_names_are_compared_as_objects_are_called():
    candidate = app(workloads=[("Car_T", "2.0")])
    named = replace(WORKLOAD, spec=replace(WORKLOAD.spec, workload_name="shop-car-t"))
    assert app_version_of(named, [candidate]) is candidate


def test_the_newest_counts_whatever_the_order():
    candidates = [
        app("shop-1.0-6b86b273", "2026-11-21T18:00:00Z"),
        app("shop-1.0-d4735e3a", "2026-11-21T18:00:09Z"),
        app("shop-1.1-4e074085", "2026-11-21T18:00:03Z", revision=9),
    ]
    for order in itertools.permutations(candidates):
        assert app_version_of(WORKLOAD, order) is candidates[1]


def test_of_one_second_the_higher_revision_counts_and_then_the_name():
    first, second, third = candidates = [
        app("shop-1.0-b", revision=1),
        app("shop-1.0-a", revision=2),
        app("shop-1.0-c", revision=2),
    ]
    for order in itertools.permutations(candidates):
        assert app_version_of(WORKLOAD, order) is third
    assert app_version_of(WORKLOAD, [second, first]) is second


@pytest.mark.parametrize(
    ("state", "passes"),
    [
        ("Succeeded", True),
        ("Warning", True),
        ("Pending", False),
        ("Progressing", False),
        ("Failed", False),
        ("Deprecated", False),
        ("Unknown", False),
    ],
)
def test_a_workload_begins_when_its_app_s_checks_let_it(state, passes):
    assert may_begin(app(status={"pre_deployment_evaluation_status": state})) is passes
    assert not may_begin(None)


def test_what_fails_later_is_no_obstacle():
    failed = app(status={"pre_deployment_evaluation_status": "Succeeded", "status": "Failed"})
    assert may_begin(failed)


def test_what_is_told_of_an_app_that_lets_nothing_begin():
    told = app_obstacle(None)
    assert (told.phase, told.state, told.warning) == (
        "AppPreDeployEvaluations",
        "AppVersionNotFound",
        None,
    )
    for status in (
        {"pre_deployment_evaluation_status": "Failed", "status": "Failed"},
        {"pre_deployment_evaluation_status": "Deprecated", "status": "Failed"},
    ):
        told = app_obstacle(app(status=status))
        assert (told.state, told.text) == ("Failed", "has failed since app has failed")
    assert app_obstacle(app(status={"status": "Progressing"})) is None


def test_the_app_hands_on_its_metadata():
    metadata = with_app_metadata(WORKLOAD, app(metadata={"team": "a"}))
    assert metadata.status.app_context_metadata == {"team": "a"}
    assert metadata.spec == WORKLOAD.spec


def test_the_app_hands_on_the_trace_of_its_deployment_or_else_its_own():
    deploying = {"traceparent": "deploying"}
    own = {"traceparent": "own"}
    status = {"phase_trace_ids": {"AppDeploy": deploying, "AppPreDeployTasks": {}}}
    assert trace_of(app(status=status, trace_id=own)) == deploying
    assert trace_of(app(trace_id=own)) == own
    assert trace_of(app()) == {}
