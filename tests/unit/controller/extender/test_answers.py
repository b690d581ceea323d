"""The answers to a scheduler, from the cache of workload versions."""

from __future__ import annotations

import json

import pytest

from harbourmaster.controller.extender.extender import (
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
from helpers.scheduler import (
    CHECKED,
    NODES,
    NOW,
    PASSED,
    VERSION_NAME,
    Mirror,
    filter_body,
    preempt_body,
    version,
)


def answers(mirror, deadline=300.0, scheduler="keptn-scheduler"):
    return Answers(mirror, deadline=deadline, now=lambda: NOW, scheduler=scheduler)


def ask_filter(mirror, body=None, **options):
    answer = answers(mirror, **options).answer(FILTER, filter_body() if body is None else body)
    return answer, json.loads(answer.body)


def ask_preempt(mirror, body=None):
    answer = answers(mirror).answer(PREEMPT, preempt_body() if body is None else body)
    return answer, json.loads(answer.body)["NodeNameToMetaVictims"]


def test_a_pod_whose_checks_passed_may_go_everywhere():
    answer, told = ask_filter(Mirror(version(**PASSED)))
    assert (answer.outcome, answer.fault) == (FREE, "")
    assert told == {"NodeNames": list(NODES)}
    assert list(ask_preempt(Mirror(version(**PASSED)))[1]) == list(NODES)


def test_a_pod_whose_checks_run_goes_nowhere_and_evicts_nobody():
    mirror = Mirror(version(**CHECKED))
    answer, told = ask_filter(mirror)
    text = f"waits for pre-deployment checks of {VERSION_NAME} until 2026-03-01T12:04:00Z: smoke"
    assert answer.outcome == WAITS
    assert told == {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(NODES, text)}
    answer, victims = ask_preempt(mirror)
    assert (answer.outcome, victims) == (WAITS, {})


def test_the_deadline_is_that_of_the_settings():
    mirror = Mirror(version(**CHECKED))
    assert b"were not done by 2026-03-01T11:59:30Z" in ask_filter(mirror, deadline=30)[0].body
    assert b" until " not in ask_filter(mirror, deadline=0)[0].body


def test_nodes_on_which_it_failed_are_left_out():
    node = FailedNode(name="n2", reason="task smoke failed", expires="2026-03-01T12:30:00Z")
    mirror = Mirror(version(**PASSED, failed_nodes=(node,)))
    answer, told = ask_filter(mirror)
    assert (answer.outcome, told["NodeNames"]) == (AVOIDING, ["n1", "n3"])
    assert list(ask_preempt(mirror)[1]) == ["n1", "n3"]


def test_a_pod_of_a_scheduler_that_settings_do_not_name_waits_and_says_why():
    answer, told = ask_filter(Mirror(), scheduler="gatekeeper")
    (text,) = set(told["FailedAndUnresolvableNodes"].values())
    assert (answer.outcome, answer.fault, told["NodeNames"]) == (FOREIGN, text, [])
    assert text == (
        "waits in keptn-scheduler, but the controller handles pods of gatekeeper: "
        "scheduler.schedulerName must name the scheduler that asks it"
    )
    assert ask_filter(Mirror(), filter_body(annotations={}), scheduler="x")[0].outcome == FREE
    assert ask_filter(Mirror(version(**PASSED)), scheduler="x")[0].outcome == FREE


def unfilled_mirror():
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


@pytest.mark.parametrize("state", [unfilled_mirror, away])
def test_what_is_not_known_is_an_error_that_is_shown_and_evicts_nobody(state):
    mirror, text = state()
    answer, told = ask_filter(mirror)
    assert (answer.outcome, told) == (UNKNOWN, {"Error": text})
    answer, victims = ask_preempt(mirror)
    assert (answer.outcome, victims) == (UNKNOWN, {})


@pytest.mark.parametrize("state", [unfilled_mirror, away])
def test_a_pod_of_no_workload_needs_nothing_to_be_known(state):
    mirror, _ = state()
    assert ask_filter(mirror, filter_body(annotations={}))[0].outcome == FREE


def test_a_pod_whose_version_is_not_there_waits():
    answer, told = ask_filter(Mirror())
    assert answer.outcome == WAITS
    assert set(told["FailedAndUnresolvableNodes"].values()) == {
        f"waits for KeptnWorkloadVersion {VERSION_NAME}, which is not there yet"
    }


def test_a_malformed_question_is_one_line_and_lets_nothing_pass():
    answer, told = ask_filter(Mirror(), b'{"Pod": 1}')
    assert answer.outcome == MALFORMED
    assert list(told) == ["Error"]
    assert told["Error"].startswith("harbourmaster: the body is not a valid ExtenderArgs: ")
    assert "\n" not in told["Error"]
    assert answer.fault in told["Error"]
    answer, victims = ask_preempt(Mirror(), b"[]")
    assert (answer.outcome, victims) == (MALFORMED, {})
    assert answer.fault.startswith("the body is not a valid ExtenderPreemptionArgs: ")
    answer, told = ask_filter(Mirror(version(**CHECKED)), filter_body(NodeNames=[1]))
    assert (answer.outcome, list(told)) == (MALFORMED, ["Error"])
