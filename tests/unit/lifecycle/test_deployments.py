"""Deployments of apps and workloads end, or fail in time (keptn-spec 3.3, 3.5)."""

from __future__ import annotations

import pytest

from harbourmaster.lifecycle.model import WorkloadEntry, WorkloadState
from harbourmaster.lifecycle.steps import Rules
from helpers.phased import STAMP, Walk, app_version, workload_version

CART = WorkloadEntry(name="cart", version="2.0")
TILL = WorkloadEntry(name="till", version="1.0")
MISSING = "could not find KeptnWorkloadVersion for KeptnWorkload: {}"


def app():
    return Walk(app_version(workloads=[("cart", "2.0"), ("till", "1.0")]))


def missing(walk):
    return [notice.text for notice in walk.told if notice.phase == "ReconcileWorkload"]


def test_an_app_follows_its_workloads():
    walk = app()
    for cart, till, state in [
        ("", "Pending", "Pending"),
        ("Progressing", "Pending", "Progressing"),
        ("Succeeded", "Progressing", "Progressing"),
        ("Succeeded", "Succeeded", "Succeeded"),
    ]:
        walk.workloads = {CART: cart, TILL: till}
        walk.go()
        assert walk.status.workload_overall_status == state
        assert walk.status.workload_status == (
            WorkloadState(workload=CART, status=cart or "Pending"),
            WorkloadState(workload=TILL, status=till),
        )
    assert walk.status.status == "Succeeded"
    assert missing(walk) == []


def test_a_workload_that_never_comes_is_told_once_and_waited_for():
    walk = app()
    walk.workloads = {CART: "Progressing"}
    for _ in range(3):
        walk.go()
    walk.workloads = {CART: "Succeeded"}
    walk.go()
    assert missing(walk) == [MISSING.format("till")]
    assert walk.status.current_phase == "AppDeploy"
    assert walk.status.status == "Progressing"
    assert walk.status.workload_overall_status == "Pending"


def test_a_workload_that_goes_away_is_told_again():
    walk = app()
    walk.workloads = {CART: "Progressing", TILL: "Progressing"}
    walk.go()
    walk.workloads = {CART: "Progressing"}
    walk.go()
    walk.go()
    assert missing(walk) == [MISSING.format("till")]


def test_a_workload_listed_twice_is_told_once():
    walk = Walk(app_version(workloads=[("cart", "2.0"), ("cart", "2.0")]))
    walk.go()
    assert missing(walk) == [MISSING.format("cart")]
    walk.workloads = {CART: "Succeeded"}
    walk.go()
    assert walk.status.status == "Succeeded"


def test_a_workload_notes_when_its_deployment_began():
    walk = Walk(workload_version())
    outcome = walk.go()
    assert walk.status.deployment_start_time == STAMP
    assert walk.status.deployment_status == "Progressing"
    assert outcome.requeue_after == 300
    walk.later(100)
    assert walk.go().requeue_after == 200
    assert walk.status.deployment_start_time == STAMP


def test_the_timeout_is_that_of_now():
    walk = Walk(workload_version())
    walk.go()
    walk.later(20)
    walk.rules = Rules(observability_timeout=21.5)
    assert walk.go().requeue_after == 1.5


@pytest.mark.parametrize(("seconds", "state"), [(9.9, "Progressing"), (10, "Failed")])
def test_a_deployment_fails_exactly_at_its_timeout(seconds, state):
    walk = Walk(workload_version(), rules=Rules(observability_timeout=10))
    walk.go()
    walk.later(seconds)
    walk.go()
    assert walk.status.deployment_status == state


def test_a_timeout_is_told_as_keptn_does():
    walk = Walk(workload_version(), rules=Rules(observability_timeout=10))
    walk.go()
    walk.later(10)
    walk.go()
    late, failed = walk.told[-2:]
    assert (late.phase, late.state, late.text) == (
        "WorkloadDeploy",
        "Finished",
        "has reached timeout",
    )
    assert late.warning is True
    assert (failed.phase, failed.state) == ("WorkloadDeploy", "Failed")
    assert walk.status.post_deployment_status == "Deprecated"
    assert walk.status.pre_deployment_status == "Succeeded"


def test_pods_that_are_ready_at_last_count_though_nobody_looked_in_time():
    walk = Walk(workload_version())
    walk.go()
    walk.later(4000)
    walk.is_deployed = True
    walk.go()
    assert walk.status.deployment_status == "Succeeded"


def test_pods_that_are_ready_at_once_are_deployed_in_the_first_pass():
    walk = Walk(workload_version())
    walk.is_deployed = True
    walk.go()
    assert walk.status.status == "Succeeded"
    assert walk.status.deployment_start_time == STAMP
