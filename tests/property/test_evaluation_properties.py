"""Properties of every evaluation, whatever its metrics do."""

from __future__ import annotations

import itertools
import math

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.evaluation.objectives import (
    FAILED,
    SUCCEEDED,
    Objective,
    Progress,
    Reading,
    by_result_key,
    fail_after_tries,
    max_tries,
    measure,
    missing_metric,
)
from harbourmaster.evaluation.targets import is_met, parse_number, parse_target
from harbourmaster.lifecycle.model import EvaluationStatus, Measurement

VALUES = st.sampled_from(["0", "3", "5", "7", "1e3", "-1", "NaN", "Inf", "abc", ""])
TARGETS = st.sampled_from([">5", "<5", ">=5", "==3", "!=3", ">=3,<7", "=5", ">x", ""])
METRICS = st.sampled_from(["cpus", "errors", "latency"])
NAMESPACES = st.sampled_from(["", "prod", "test"])
OBJECTIVES = st.lists(
    st.builds(Objective, metric=METRICS, target=TARGETS, namespace=NAMESPACES), max_size=6
)
WORLDS = st.dictionaries(st.tuples(NAMESPACES, METRICS), VALUES, max_size=9)


def reader(world):
    def read(objective):
        value = world.get((objective.namespace, objective.metric))
        return missing_metric(objective.metric, ["shop"]) if value is None else Reading(value)

    return read


def run(objectives, worlds, retries):
    """All states of an evaluation that finds one world after the other."""
    progress, states = Progress(), []
    for world in worlds:
        if progress.is_over:
            break
        if progress.tries >= max_tries(retries):
            progress = fail_after_tries(progress)
        else:
            progress = measure(progress, objectives, reader(world))
        states.append(progress)
    return states


RUNS = st.tuples(OBJECTIVES, st.lists(WORLDS, min_size=1, max_size=8), st.integers(-1, 5))


@given(RUNS)
def test_a_success_is_never_lost(inputs):
    met = {}
    states = run(*inputs)
    assert states
    for progress in states:
        assert met.items() <= progress.results.items()
        met = {
            key: result for key, result in progress.results.items() if result.status == SUCCEEDED
        }


@given(RUNS)
def test_tries_never_exceed_what_is_allowed_and_grow_by_one(inputs):
    states, retries = run(*inputs), inputs[2]
    tries = [progress.tries for progress in states]
    assert tries == sorted(tries)
    assert max(tries) <= max_tries(retries)
    for before, after in itertools.pairwise(tries):
        assert after - before <= 1


@given(RUNS)
def test_it_succeeds_exactly_when_all_results_do(inputs):
    states = run(*inputs)
    assert states
    for progress in states:
        good = all(result.status == SUCCEEDED for result in progress.results.values())
        assert (progress.state == SUCCEEDED) is good
        assert (progress.state == FAILED) <= (progress.tries >= max_tries(inputs[2]))


@given(RUNS, st.randoms(use_true_random=False))
def test_the_order_of_the_objectives_changes_nothing(inputs, chance):
    objectives, worlds, retries = inputs
    shuffled = list(objectives)
    chance.shuffle(shuffled)
    assert run(objectives, worlds, retries) == run(shuffled, worlds, retries)


@given(OBJECTIVES)
def test_every_objective_has_a_key_of_its_own(objectives):
    by_key = by_result_key(objectives)
    assert set(by_key.values()) == set(objectives)
    assert {objective.metric for objective in objectives} <= by_key.keys()


@given(RUNS)
def test_a_status_comes_back_as_it_was_written(inputs):
    states = run(*inputs)
    assert states
    for progress in states:
        status = EvaluationStatus(
            retry_count=progress.tries,
            evaluation_status={
                key: Measurement(value=result.value, status=result.status, message=result.message)
                for key, result in progress.results.items()
            },
            overall_status=progress.state,
        )
        raw = msgspec.json.encode(status)
        assert msgspec.json.decode(raw, type=EvaluationStatus) == status
        assert {"retryCount", "evaluationStatus", "overallStatus"} <= msgspec.json.decode(
            raw
        ).keys()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_read_as_it_is_written(number):
    assert parse_number(repr(number)) == number
    assert parse_number(number.hex()) == number


@given(st.text(max_size=20), st.sampled_from([parse_number, parse_target]))
def test_a_text_is_read_or_refused_with_one_line(text, parse):
    problem = ""
    try:
        parse(text)
    except ValueError as error:
        problem = str(error)
    assert len(problem.splitlines()) <= 1


@given(
    st.sampled_from(["<", ">", "<=", ">=", "==", "!="]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(),
)
def test_an_operator_and_its_opposite_split_the_finite_numbers(sign, bound, value):
    opposite = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}[sign]
    both = [is_met(parse_target(f"{operator}{bound!r}"), value) for operator in (sign, opposite)]
    assert sum(both) == (1 if math.isfinite(value) else 0)
