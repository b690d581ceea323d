"""What a scheduler is answered, from what is known of workload versions."""

from __future__ import annotations

import json

import pytest

from harbourmaster.controller.extender.answers import (
    AVOIDING,
    FILTER,
    FOREIGN,
    FREE,
    MALFORMED,
    PREEMPT,
    UNKNOWN,
    WAITS,
    Answers,
)
from harbourmaster.lifecycle.model import FailedNode
from helpers.extending import (
    CHECKED,
    NAME,
    NODES,
    NOW,
    PASSED,
    Mirror,
    filter_body,
    preempt_body,
    version,
)


def answers(mirror, deadline=300.0, scheduler="keptn-scheduler"):
    return Answers(mirror, deadline=deadline, now=lambda: NOW, scheduler=scheduler)


def filtered(mirror, body=None, **options):
    found = answers(mirror, **options).answer(FILTER, filter_body() if body is None else body)
    return found, json.loads(found.body)


def preempted(mirror, body=None):
    found = answers(mirror).answer(PREEMPT, preempt_body() if body is None else body)
    return found, json.loads(found.body)["NodeNameToMetaVictims"]


def test_a_pod_whose_checks_passed_may_go_everywhere():
    found, told = filtered(Mirror(version(**PASSED)))
    assert (found.outcome, found.fault) == (FREE, "")
    assert told == {"NodeNames": list(NODES)}
    assert list(preempted(Mirror(version(**PASSED)))[1]) == list(NODES)


def test_a_pod_whose_checks_run_goes_nowhere_and_evicts_nobody():
    mirror = Mirror(version(**CHECKED))
    found, told = filtered(mirror)
    text = f"waits for pre-deployment checks of {NAME} until 2026-03-01T12:04:00Z: smoke"
    assert found.outcome == WAITS
    assert told == {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(NODES, text)}
    found, victims = preempted(mirror)
    assert (found.outcome, victims) == (WAITS, {})


def test_the_deadline_is_that_of_the_settings():
    mirror = Mirror(version(**CHECKED))
    assert b"were not done by 2026-03-01T11:59:30Z" in filtered(mirror, deadline=30)[0].body
    assert b" until " not in filtered(mirror, deadline=0)[0].body


def test_nodes_on_which_it_failed_are_left_out():
    node = FailedNode(name="n2", reason="task smoke failed", expires="2026-03-01T12:30:00Z")
    mirror = Mirror(version(**PASSED, failed_nodes=(node,)))
    found, told = filtered(mirror)
    assert (found.outcome, told["NodeNames"]) == (AVOIDING, ["n1", "n3"])
    assert list(preempted(mirror)[1]) == ["n1", "n3"]


def test_a_pod_of_a_scheduler_that_settings_do_not_name_waits_and_says_why():
    found, told = filtered(Mirror(), scheduler="gatekeeper")
    (text,) = set(told["FailedAndUnresolvableNodes"].values())
    assert (found.outcome, found.fault, told["NodeNames"]) == (FOREIGN, text, [])
    assert text == (
        "waits in keptn-scheduler, but the controller handles pods of gatekeeper: "
        "scheduler.schedulerName must name the scheduler that asks it"
    )
    assert filtered(Mirror(), filter_body(annotations={}), scheduler="x")[0].outcome == FREE
    assert filtered(Mirror(version(**PASSED)), scheduler="x")[0].outcome == FREE


def unfilled():
    mirror = Mirror()
    mirror.synced.clear()
    return (
        mirror,
        f"harbourmaster: workload versions are not cached yet: {mirror.error or 'listing'}",
    )


def away():
    mirror = Mirror(version(**PASSED))
    mirror.error = "list keptnworkloadversions: refused"
    return mirror, f"harbourmaster: workload versions are out of date: {mirror.error}"


@pytest.mark.parametrize("state", [unfilled, away])
def test_what_is_not_known_is_an_error_that_is_shown_and_evicts_nobody(state):
    mirror, text = state()
    found, told = filtered(mirror)
    assert (found.outcome, told) == (UNKNOWN, {"Error": text})
    found, victims = preempted(mirror)
    assert (found.outcome, victims) == (UNKNOWN, {})


@pytest.mark.parametrize("state", [unfilled, away])
def test_a_pod_of_no_workload_needs_nothing_to_be_known(state):
    mirror, _ = state()
    assert filtered(mirror, filter_body(annotations={}))[0].outcome == FREE


def test_a_pod_whose_version_is_not_there_waits():
    found, told = filtered(Mirror())
    assert found.outcome == WAITS
    assert set(told["FailedAndUnresolvableNodes"].values()) == {
        f"waits for KeptnWorkloadVersion {NAME}, which is not there yet"
    }


def test_a_malformed_question_is_one_line_and_lets_nothing_pass():
    found, told = filtered(Mirror(), b'{"Pod": 1}')
    assert found.outcome == MALFORMED
    assert list(told) == ["Error"]
    assert told["Error"].startswith("harbourmaster: the body is not a valid ExtenderArgs: ")
    assert "\n" not in told["Error"]
    assert found.fault in told["Error"]
    found, victims = preempted(Mirror(), b"[]")
    assert (found.outcome, victims) == (MALFORMED, {})
    assert found.fault.startswith("the body is not a valid ExtenderPreemptionArgs: ")
    found, told = filtered(Mirror(version(**CHECKED)), filter_body(NodeNames=[1]))
    assert (found.outcome, list(told)) == (MALFORMED, ["Error"])
