"""Properties of a version in stages, whatever happens to its pods, its owner and its checks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.lifecycle.stages import OVER
from helpers.properties import TIMEOUT, cases
from helpers.staged import Rollout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]

plans = st.fixed_dictionaries(
    {
        "stages": st.sampled_from(["1", "1, 50%", "25%, 50%, 75%", "2, 3, 100%", "10%, 7"]),
        "stage_pause": st.sampled_from(["", "30s", "10m", "Manual"]),
        "stage_tasks": st.sampled_from([(), ("smoke",)]),
        "stage_evaluations": st.sampled_from([(), ("errors",)]),
        "wanted": st.integers(1, 20),
    }
)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("release")),
        st.tuples(st.just("release")),
        st.tuples(st.just("ready")),
        st.tuples(st.just("ready")),
        st.tuples(st.just("flap"), st.integers(0, 30)),
        st.tuples(st.just("lose"), st.integers(0, 30)),
        st.tuples(st.just("scale"), st.one_of(st.none(), st.integers(0, 40))),
        st.tuples(st.just("later"), st.sampled_from([1, 29, 30, 299, 300, 700])),
        st.tuples(st.just("end"), st.sampled_from(["Succeeded", "Succeeded", "Failed"])),
        st.tuples(st.just("promote"), st.integers(1, 6), st.integers(1, 3)),
    ),
    max_size=40,
)
runs = settings(max_examples=cases(300))


def do(walk, action):
    """Let something happen outside of the controller."""
    name, *given_values = action
    if name == "release":
        walk.release()
    elif name == "ready":
        walk.get_ready()
    elif name in {"flap", "lose"} and walk.ready:
        at = given_values[0] % len(walk.ready)
        walk.ready[at : at + 1] = [""] if name == "flap" else []
    elif name == "scale":
        (walk.wanted,) = given_values
        walk.ready = walk.ready[: walk.wanted]
    elif name == "later":
        walk.later(*given_values)
    elif name == "end":
        for key, state in walk.children.items():
            walk.children[key] = state or given_values[0]
    elif name == "promote":
        number, token = given_values
        walk.promote(number, f"t-{token}")


def begun(plan):
    walk = Rollout(**plan)
    walk.go()
    return walk


@runs
@given(plan=plans, steps=actions, crashes=st.sets(st.integers(0, 39)))
def test_passes_that_are_cut_off_or_repeated_change_nothing(plan, steps, crashes):
    plain, disturbed = begun(plan), begun(plan)
    for number, action in enumerate(steps):
        do(plain, action)
        plain.go()
        do(disturbed, action)
        if number in crashes:
            disturbed.go(crash=True)
        disturbed.go()
        before = disturbed.status
        disturbed.go()
        assert disturbed.status == before == plain.status


@runs
@given(plan=plans, steps=actions)
def test_pods_are_never_more_than_allowed_and_a_failed_stage_allows_no_more(plan, steps):
    walk = begun(plan)
    most = None
    for action in steps:
        state, number, token = walk.stage.state, walk.stage.number, walk.stage.token
        do(walk, action)
        walk.go()
        stage = walk.stage
        has_failed = (
            stage.state == "Held"
            and stage.results[-1:]
            and (stage.results[-1].number == stage.number)
        )
        if has_failed:
            most = walk.allowed if (state, number) != ("Held", stage.number) else most
            assert most is None or walk.allowed <= most
        if stage.number > number or stage.state in OVER - {state}:
            # Only a passed stage or a new request leads on.
            is_passed = stage.results[-1].state == "Passed"
            assert is_passed or (stage.results[-1].state == "Promoted" and stage.token != token)
        assert stage.number >= number
        if stage.state not in OVER:
            assert walk.allowed is not None
            assert walk.status.deployment_status == "Progressing"
            assert walk.allowed <= max(walk.wanted or 0, stage.allowed)


@runs
@given(plan=plans, steps=actions)
def test_a_version_that_is_left_alone_is_released_completely_or_held(plan, steps):
    walk = begun(plan)
    for action in steps:
        do(walk, action)
        walk.go()
    walk.wanted = walk.wanted or 1
    for _ in range(20):
        walk.go()
        walk.release()
        walk.get_ready()
        for key, state in walk.children.items():
            walk.children[key] = state or "Succeeded"
        walk.go()
        walk.later(700)
    stage = walk.stage
    is_failed = stage.state == "Held" and stage.results[-1].state == "Failed"
    is_manual = stage.state == "Paused" and plan["stage_pause"] == "Manual"
    assert stage.state == "Completed" or is_failed or is_manual
