from __future__ import annotations

import itertools

import pytest
from msgspec.structs import replace

from harbourmaster.api.metadata import Metadata
from harbourmaster.lifecycle.apps import with_context
from harbourmaster.lifecycle.model import (
    AppContext,
    AppContextSpec,
    AppVersionStatus,
    ItemStatus,
    WorkloadVersionStatus,
)
from harbourmaster.lifecycle.waiting import (
    app_obstacle,
    app_version_of,
    lacks_context,
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
    passed = {"pre_deployment_status": "Succeeded", "pre_deployment_evaluation_status": "Succeeded"}
    for field in passed:
        assert may_begin(app(status={**passed, field: state})) is passes
    assert not may_begin(None)


def test_what_fails_later_is_no_obstacle():
    passed = {"pre_deployment_status": "Succeeded", "pre_deployment_evaluation_status": "Succeeded"}
    failed = app(status={**passed, "status": "Failed"})
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


def test_a_check_that_a_later_context_added_lets_nothing_begin_until_it_is_in_the_status():
    passed = {"pre_deployment_status": "Succeeded", "pre_deployment_evaluation_status": "Succeeded"}
    first = (ItemStatus(definition_name="first", status="Succeeded"),)
    status = {**passed, "pre_deployment_task_status": first}
    assert may_begin(app(status=status, pre_deployment_tasks=("first", "first")))
    assert may_begin(app(status=status))
    assert not may_begin(app(status=status, pre_deployment_tasks=("first", "second")))
    assert not may_begin(app(status=status, pre_deployment_evaluations=("load",)))
    assert may_begin(app(status=status, post_deployment_tasks=("second",)))


BEGIN = "2026-11-21T18:00:00Z"
CONTEXT = AppContext(
    metadata=Metadata(name="shop", namespace="prod"),
    spec=AppContextSpec(pre_deployment_tasks=("scan",), metadata={"team": "a"}),
)


def released(start):
    return replace(WORKLOAD, status=WorkloadVersionStatus(deployment_start_time=start))


@pytest.mark.parametrize(
    ("status", "starts", "counts"),
    [
        ({}, ("",), True),
        ({"start_time": BEGIN}, (), True),
        ({"start_time": BEGIN, "workload_overall_status": "Progressing"}, ("",), True),
        # A check of the app failed, and the context may correct that.
        (
            {"start_time": BEGIN, "workload_overall_status": "Deprecated", "status": "Failed"},
            ("",),
            True,
        ),
        # Its pods were released for an earlier version of the app.
        ({"start_time": BEGIN}, ("2026-11-21T17:59:59Z", ""), True),
        ({}, ("2026-11-21T17:59:59Z",), True),
        ({"start_time": BEGIN}, ("", BEGIN), False),
        ({"start_time": BEGIN}, ("2026-11-21T18:00:01Z",), False),
        ({"start_time": BEGIN, "workload_overall_status": "Succeeded"}, (), False),
        ({"start_time": BEGIN, "workload_overall_status": "Warning"}, (), False),
        ({"start_time": BEGIN, "workload_overall_status": "Failed"}, ("",), False),
    ],
)
def test_a_context_counts_until_a_pod_of_the_version_is_released(status, starts, counts):
    workloads = [released(start) for start in starts]
    assert lacks_context(app(status=status), CONTEXT, workloads) is counts


def test_a_context_that_is_deleted_or_unchanged_or_of_others_pods_changes_nothing():
    begun = app(status={"start_time": BEGIN})
    assert not lacks_context(begun, None, [])
    assert not lacks_context(replace(begun, spec=with_context(begun, CONTEXT)), CONTEXT, [])
    foreign = replace(WORKLOAD, spec=replace(WORKLOAD.spec, version="9.0"))
    status = WorkloadVersionStatus(deployment_start_time=BEGIN)
    assert lacks_context(begun, CONTEXT, [replace(foreign, status=status)])


def test_a_context_replaces_all_that_a_context_sets_and_nothing_else():
    before = app(post_deployment_tasks=("notify",), span_links=("link",), revision=3)
    after = with_context(before, CONTEXT)
    assert (after.pre_deployment_tasks, after.metadata) == (("scan",), {"team": "a"})
    assert (after.post_deployment_tasks, after.span_links) == ((), ())
    assert (after.revision, after.workloads) == (3, before.spec.workloads)
