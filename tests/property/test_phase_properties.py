"""Properties of phases, whatever happens to their children and in whatever order."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.lifecycle.model import WorkloadEntry
from harbourmaster.lifecycle.phases import (
    APP_PHASES,
    PASSED,
    PROMOTION,
    WORKLOAD_PHASES,
    phases_of,
    state_of,
)
from harbourmaster.lifecycle.steps import Rules
from helpers.phased import Walk, app_version, workload_version
from helpers.properties import TIMEOUT, cases

STATES = ["Pending", "Progressing", "Succeeded", "Succeeded", "Succeeded", "Failed", ""]
OVER = {"Succeeded", "Failed"}
WORKLOADS = [("cart", "2.0"), ("till", "1.0")]
DEPLOYED = {"Progressing", "Succeeded", "Failed", "Warning"}

flows = settings(max_examples=cases(500))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

names = st.lists(st.sampled_from("abcd"), max_size=4)
numbers = st.integers(0, 10**6)
chances = st.integers(0, 2**32).map(random.Random)
child_ends = st.tuples(st.just("child"), numbers, st.sampled_from(STATES))
actions = st.lists(
    st.one_of(
        child_ends,
        child_ends,
        child_ends,
        st.tuples(st.just("lose"), numbers),
        st.tuples(st.just("define"), st.sampled_from("abcd")),
        st.tuples(st.just("undefine"), st.sampled_from("abcd")),
        st.tuples(st.just("refuse"), numbers),
        st.tuples(st.just("block"), st.booleans()),
        st.tuples(st.just("later"), st.integers(0, 200)),
        st.tuples(st.just("deployed"), st.booleans()),
        st.tuples(st.just("workload"), st.integers(0, 1), st.sampled_from([*STATES, None])),
    ),
    min_size=5,
    max_size=40,
)


@st.composite
def plans(draw):
    """The kind of a version, its lists, its rules, and what happens."""
    is_app = draw(st.booleans())
    lists = {
        phase.checks: tuple(draw(names))
        for phase in (APP_PHASES if is_app else WORKLOAD_PHASES)
        if phase.kind
    }
    rules = Rules(is_blocking=draw(st.booleans()), has_promotion=draw(st.booleans()))
    return is_app, lists, rules, draw(st.sets(st.sampled_from("abcd"), max_size=1)), draw(actions)


def walk_of(is_app, lists, rules, undefined):
    version = app_version(workloads=WORKLOADS, **lists) if is_app else workload_version(**lists)
    return Walk(version, rules=rules, undefined=undefined)


def children(walk):
    """The definitions of children that exist, in an order that no list decides."""
    return sorted(
        (creation.phase.name, creation.definition, name)
        for creation, name in walk.created
        if (creation.phase.kind, name) in walk.children
    )


def child(walk, number, state):
    existing = children(walk)
    if existing:
        phase, _, name = existing[number % len(existing)]
        key = (walk.phase(phase).kind, name)
        if walk.children[key] not in OVER:
            walk.children[key] = state


def lose(walk, number):
    existing = children(walk)
    if existing:
        phase, _, name = existing[number % len(existing)]
        del walk.children[walk.phase(phase).kind, name]


def checks_of(version):
    """Each phase of checks with each definition that it lists."""
    return [
        (phase, definition)
        for phase in phases_of(version)
        if phase.kind
        for definition in getattr(version.spec, phase.checks)
    ]


def refuse(walk, number):
    pairs = sorted((phase.name, definition) for phase, definition in checks_of(walk.version))
    walk.refused = {pairs[number % len(pairs)]} if pairs and number % 2 else set()


def block(walk, is_blocking):
    walk.rules = Rules(is_blocking=is_blocking, has_promotion=walk.rules.has_promotion)


def workload(walk, number, state):
    name, version = WORKLOADS[number]
    entry = WorkloadEntry(name=name, version=version)
    if state is None:
        walk.workloads.pop(entry, None)
    elif walk.workloads.get(entry) not in OVER:
        walk.workloads[entry] = state


ACTS = {
    "child": child,
    "lose": lose,
    "define": lambda walk, name: walk.undefined.discard(name),
    "undefine": lambda walk, name: walk.undefined.add(name),
    "refuse": refuse,
    "block": block,
    "later": lambda walk, seconds: walk.later(seconds),
    "deployed": lambda walk, value: setattr(walk, "is_deployed", value),
    "workload": workload,
}


def finish(walk):
    """Let everything succeed that has no result, until nothing changes any more."""
    walk.undefined.clear()
    walk.refused = set()
    walk.is_deployed = True
    for name, version in WORKLOADS:
        entry = WorkloadEntry(name=name, version=version)
        if walk.workloads.get(entry) != "Failed":
            walk.workloads[entry] = "Succeeded"
    for _ in range(20):
        walk.go()
        for key, state in walk.children.items():
            if state not in OVER:
                walk.children[key] = "Succeeded"


def run(plan, *, crashes=None):
    is_app, lists, rules, undefined, happenings = plan
    walk = walk_of(is_app, lists, rules, undefined)
    walk.go()
    for action in happenings:
        ACTS[action[0]](walk, *action[1:])
        for _ in range(crashes.randrange(3) if crashes else 0):
            walk.go(crash=True)
        walk.go()
    finish(walk)
    return walk


def wanted_phases(walk):
    return [
        phase
        for phase in phases_of(walk.version)
        if phase is not PROMOTION or walk.rules.has_promotion
    ]


@flows
@given(plan=plans())
def test_whatever_happens_it_ends_when_all_children_have(plan):
    walk = run(plan)
    assert walk.status.is_finished
    assert walk.status.end_time
    if walk.status.status == "Succeeded":
        assert walk.status.current_phase == "Completed"
        assert all(state_of(walk.status, phase) in PASSED for phase in wanted_phases(walk))


@flows
@given(plan=plans())
def test_nothing_that_is_over_changes(plan):
    walk = run(plan)
    assert len(walk.statuses) > 1
    for before, after in zip(walk.statuses, walk.statuses[1:], strict=False):
        assert not before.is_finished
        assert after.start_time == before.start_time != ""
        assert before.end_time == ""
        for phase in phases_of(walk.version):
            if state_of(before, phase) in PASSED:
                assert state_of(after, phase) == state_of(before, phase)
                if phase.items:
                    assert getattr(after, phase.items) == getattr(before, phase.items)


@flows
@given(plan=plans())
def test_a_check_that_has_a_result_keeps_it(plan):
    walk = run(plan)
    assert len(walk.statuses) > 1
    for before, after in zip(walk.statuses, walk.statuses[1:], strict=False):
        for phase in phases_of(walk.version):
            if phase.items:
                results = [item for item in getattr(before, phase.items) if item.status in OVER]
                assert set(results) <= set(getattr(after, phase.items))


@flows
@given(plan=plans())
def test_only_blocking_checks_fail_and_only_wanted_promotions_run(plan):
    is_app, lists, rules, undefined, happenings = plan
    calm = [happening for happening in happenings if happening[0] != "block"]
    walk = run((is_app, lists, rules, undefined, calm))
    states = {phase: state_of(walk.status, phase) for phase in phases_of(walk.version)}
    assert states.keys() == set(APP_PHASES if is_app else WORKLOAD_PHASES)
    for phase, state in states.items():
        if phase.kind:
            assert state != ("Warning" if rules.is_blocking else "Failed")
    if is_app and not rules.has_promotion:
        assert states[PROMOTION] in {"Pending", "Deprecated"}
        assert walk.status.promotion_task_status == ()


@flows
@given(plan=plans())
def test_no_phase_begins_before_the_one_before_it_has_passed(plan):
    walk = run(plan)
    order = [phase.name for phase in phases_of(walk.version)] + ["Completed"]
    at = 0
    assert walk.statuses
    for status in walk.statuses:
        assert order.index(status.current_phase) >= at
        at = order.index(status.current_phase)
        phases = wanted_phases(walk)
        for number, phase in enumerate(phases):
            passed = all(state_of(status, phase) in PASSED for phase in phases[:number])
            if not passed:
                assert state_of(status, phase) in {"Pending", "Deprecated"}
                assert not (phase.items and getattr(status, phase.items))
        if not phases_of(walk.version)[2].kind and hasattr(status, "deployment_status"):
            if status.deployment_status in DEPLOYED:
                assert status.pre_deployment_status in PASSED
                assert status.pre_deployment_evaluation_status in PASSED
            assert bool(status.deployment_start_time) == (status.deployment_status in DEPLOYED)


@flows
@given(plan=plans())
def test_a_failed_phase_deprecates_all_later_ones_and_nothing_else_does(plan):
    walk = run(plan)
    states = [state_of(walk.status, phase) for phase in phases_of(walk.version)]
    if walk.status.status == "Failed":
        failed = states.index("Failed")
        assert states[failed + 1 :] == ["Deprecated"] * (len(states) - failed - 1)
        assert set(states[:failed]) <= PASSED
    else:
        assert "Deprecated" not in states
        assert "Failed" not in states


@flows
@given(plan=plans())
def test_each_phase_is_told_of_once(plan):
    walk = run(plan)
    told = [phase.name for phase in phases_of(walk.version)]
    reasons = [reason for reason in walk.reasons if reason.removesuffix("Started") in told]
    assert len(set(reasons)) == len(reasons)
    entered = [reason.removesuffix("Started") for reason in reasons]
    assert entered == told[: len(entered)]
    ends = [
        f"{report.phase}{report.state}"
        for report in walk.told
        if report.phase in told and report.state in {"Finished", "Failed"} and not report.warning
    ]
    assert len(set(ends)) == len(ends) == len(entered)


@flows
@given(plan=plans())
def test_a_child_is_made_once_and_again_only_after_it_was_deleted(plan):
    walk = run(plan)
    made = [
        (creation.phase.name, creation.definition, creation.previous)
        for creation, _ in walk.created
    ]
    listed = {(phase.name, definition) for phase, definition in checks_of(walk.version)}
    assert {(phase, definition) for phase, definition, _ in made} <= listed
    if not any(action[0] == "undefine" for action in plan[4]):
        assert len(set(made)) == len(made)
    if not any(action[0] == "lose" for action in plan[4]):
        assert all(previous == "" for *_, previous in made)


@flows
@given(plan=plans(), chance=chances)
def test_any_order_of_a_list_comes_to_the_same(plan, chance):
    is_app, lists, rules, undefined, happenings = plan
    shuffled = {name: tuple(chance.sample(names, len(names))) for name, names in lists.items()}
    first = run(plan)
    second = run((is_app, shuffled, rules, undefined, happenings))
    assert outline(first) == outline(second)


@flows
@given(plan=plans(), chance=chances)
def test_passes_that_are_cut_off_anywhere_come_to_the_same(plan, chance):
    whole = run(plan)
    broken = run(plan, crashes=chance)
    assert broken.status == whole.status
    assert broken.statuses == whole.statuses
    assert broken.told == whole.told
    assert broken.created == whole.created


def outline(walk):
    """The end without the order of anything that a list decides."""
    status = walk.status
    phases = phases_of(walk.version)
    return (
        status.status,
        status.current_phase,
        status.end_time,
        [state_of(status, phase) for phase in phases],
        [
            sorted(getattr(status, phase.items), key=lambda value: value.definition_name)
            for phase in phases
            if phase.items
        ],
        sorted(name for _, name in walk.created),
        sorted(walk.reasons),
    )
