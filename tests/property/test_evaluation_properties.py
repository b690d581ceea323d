"""Properties of every metric, analysis and evaluation, whenever and whatever is measured."""

from __future__ import annotations

import itertools
import math
import statistics
from base64 import b64decode

import msgspec
from hypothesis import assume, given
from hypothesis import strategies as st

from harbourmaster.evaluation.metric_status import (
    AGGREGATIONS,
    aggregate,
    status_after_answer,
    status_after_fault,
    value_time,
    without_raw,
)
from harbourmaster.evaluation.model import MetricRange, MetricSpec, MetricStatus
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
from harbourmaster.evaluation.schedule import SLACK, retry_wait, slots, stable_hash
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


NOW = 1_800_000_000.0
HASHES = st.integers(0, 2**64 - 1)
INTERVALS = st.integers(1, 86400)
COUNTS = st.integers(1, 20_000)
TIMES = st.floats(NOW, NOW + 10**7)
SLOTS = st.builds(slots, INTERVALS.map(float), HASHES, HASHES, COUNTS)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
NUMBERS = st.lists(FINITE, min_size=1, max_size=50)


@given(SLOTS, TIMES)
def test_the_next_slot_comes_within_an_interval(schedule, fetched):
    upcoming = schedule.next(fetched)
    assert 0 < upcoming - fetched <= schedule.interval + 1e-5
    assert math.isclose(upcoming - schedule.last(fetched), schedule.interval, abs_tol=1e-5)


@given(SLOTS, TIMES, st.lists(st.floats(0, 0.9), min_size=2, max_size=20))
def test_lateness_adds_up_to_no_drift(schedule, begun, shares):
    due = schedule.next(begun)
    for number, late in enumerate(shares, 1):
        following = schedule.next(due + late * schedule.interval)
        assert math.isclose(following - due, schedule.interval, abs_tol=1e-5)
        assert math.isclose(
            following, schedule.next(begun) + number * schedule.interval, abs_tol=1e-3
        )
        due = following


@given(SLOTS, TIMES, st.floats(0, 0.9), st.floats(0, 0.999))
def test_a_restart_asks_for_nothing_twice_and_leaves_out_nothing(schedule, begun, answer, gone):
    # It was fetched in its slot, or had an answer to one of the same question before it.
    slot = schedule.last(begun)
    window = slot + schedule.early - schedule.spread
    asked = window + answer * (slot - window + 0.5)
    now = max(slot, asked) + gone * schedule.interval
    assume(now < slot + schedule.interval - 1e-5)
    again = schedule.next(schedule.last_fetch(math.floor(asked), now))
    assert math.isclose(again, slot + schedule.interval, abs_tol=1e-5)


@given(SLOTS, TIMES, st.floats(1.1, 100))
def test_what_was_missed_is_due_at_once(schedule, begun, intervals):
    slot = schedule.last(begun)
    now = slot + intervals * schedule.interval
    assume(schedule.last(now) + schedule.early - schedule.spread > slot + 1)
    assert schedule.next(schedule.last_fetch(math.floor(slot), now)) <= now + 1e-5


@given(SLOTS, TIMES, st.floats(0, 10**7))
def test_a_stamp_of_a_time_to_come_delays_by_an_interval_at_most(schedule, now, ahead):
    assert schedule.next(schedule.last_fetch(now + ahead, now)) <= now + schedule.interval + 1e-5


@given(INTERVALS, HASHES, st.lists(HASHES, min_size=2, max_size=20), TIMES)
def test_those_of_one_question_share_an_answer(interval, question, metrics, now):
    alike = [slots(float(interval), question, metric, len(metrics)) for metric in metrics]
    assert len({schedule.phase for schedule in alike}) == 1
    first = min(schedule.early for schedule in alike)
    latest = max(schedule.early for schedule in alike)
    assert latest - first <= min(interval / 4, len(metrics) / 100)
    soonest = max(alike, key=lambda value: value.early)
    asked = soonest.next(now)
    for schedule in alike:
        slot = asked + soonest.early - schedule.early
        for late in (0, 0.2 * interval):
            assert asked > schedule.shared_since(slot + late, slot) - 1e-5
        # Nor is that of the slot before, where the interval is not shorter than the slack.
        if interval > schedule.spread + SLACK:
            assert asked < schedule.shared_since(slot + interval, slot + interval)
        assert asked <= schedule.shared_since(asked + schedule.spread + SLACK)


@given(HASHES, st.integers(1, 600), st.integers(1, 6), TIMES)
def test_slots_of_a_multiple_of_the_interval_meet(question, interval, factor, now):
    short = slots(float(interval), question, 0, 1)
    rare = slots(float(interval * factor), question, 0, 1).next(now)
    assert math.isclose(short.next(rare - interval / 2), rare, abs_tol=1e-5)


@given(st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), min_size=2, max_size=9))
def test_hashes_are_of_the_parts(pairs):
    hashes = {pair: stable_hash(*pair) for pair in pairs}
    assert len(set(hashes.values())) == len(set(pairs))
    assert all(0 <= value < 2**64 for value in hashes.values())


@given(st.integers(1, 10**6), INTERVALS, st.none() | st.floats(0, 3600))
def test_tries_after_faults_come_ever_later_within_the_interval(failures, interval, asked_for):
    wait = retry_wait(failures, interval, asked_for)
    assert wait >= max(min(5, interval), asked_for or 0)
    assert wait <= max(interval, asked_for or 0)
    assert retry_wait(failures + 1, interval, asked_for) >= wait


@given(NUMBERS, st.sampled_from(sorted(AGGREGATIONS)), st.randoms(use_true_random=False))
def test_an_aggregate_lies_between_the_extremes_in_whatever_order(values, name, chance):
    shuffled = list(values)
    chance.shuffle(shuffled)
    aggregated = aggregate(name, values)
    assert min(values) <= aggregated <= max(values)
    assert aggregate(name, shuffled) == aggregated


@given(NUMBERS)
def test_a_percentile_has_its_share_below_it(values):
    for name, percent in (("p90", 90), ("p95", 95), ("p99", 99)):
        aggregated = aggregate(name, values)
        assert aggregated in values
        assert 100 * sum(value <= aggregated for value in values) >= percent * len(values)
        assert 100 * sum(value < aggregated for value in values) < percent * len(values)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=50))
def test_means_are_those_of_the_library(values):
    assert math.isclose(aggregate("avg", values), statistics.fmean(values), abs_tol=1e-3)
    assert math.isclose(aggregate("median", values), statistics.median(values), abs_tol=1e-3)


RANGES = st.none() | st.builds(MetricRange, stored_results=st.integers(0, 6))
SPECS = st.builds(MetricSpec, range=RANGES)
RESULTS = st.lists(
    st.tuples(st.sampled_from(["1", "2.5"]), st.none())
    | st.tuples(st.none(), st.sampled_from(["no answer", "too late"])),
    min_size=1,
    max_size=12,
)


def history(spec, results, begun=MetricStatus()):  # noqa: B008 - frozen
    """The statuses that results lead to, one after the other."""
    status, statuses = begun, []
    for number, (value, fault) in enumerate(results):
        time = f"2026-03-01T12:00:{number:02}Z"
        if fault is None:
            status = status_after_answer(status, spec, value, b'"raw"', time)
        else:
            status = status_after_fault(status, spec, fault, time)
        statuses.append(status)
    return statuses


@given(SPECS, RESULTS)
def test_a_status_says_what_came_last_and_keeps_the_last_value(spec, results):
    stored = 0 if spec.range is None else spec.range.stored_results
    statuses = history(spec, results)
    assert len(statuses) == len(results)
    for number, status in enumerate(statuses):
        value, fault = results[number]
        values = [result for result, _ in results[: number + 1] if result is not None]
        assert status.err_msg == (fault or "")
        if stored:
            assert (status.value, status.raw_value, status.last_updated) == ("", "", "")
            newest = status.interval_results[-1]
            assert (newest.value, newest.err_msg) == (value or "", fault or "")
        else:
            assert status.value == (values[-1] if values else "")
            assert status.interval_results == ()
            assert b64decode(status.raw_value) == (b'"raw"' if values else b"")


@given(SPECS, RESULTS)
def test_stored_results_are_so_many_in_their_order_and_no_two_faults_in_a_row(spec, results):
    stored = 0 if spec.range is None else spec.range.stored_results
    statuses = history(spec, results)
    assert len(statuses) == len(results)
    for status in statuses:
        kept = status.interval_results
        assert len(kept) <= stored
        assert [result.last_updated for result in kept] == sorted(
            result.last_updated for result in kept
        )
        for before, after in itertools.pairwise(kept):
            assert not (before.err_msg and after.err_msg)


@given(SPECS, RESULTS, st.text(max_size=9))
def test_the_same_fault_again_changes_nothing(spec, results, fault):
    begun = history(spec, results)[-1]
    once = status_after_fault(begun, spec, fault or "no answer", "2026-03-01T13:00:00Z")
    assert status_after_fault(once, spec, fault or "no answer", "2026-03-01T14:00:00Z") == once


@given(SPECS, RESULTS)
def test_a_status_comes_back_as_it_was_written_and_tells_when_its_value_came(spec, results):
    statuses = history(spec, results)
    assert len(statuses) == len(results)
    for number, status in enumerate(statuses):
        raw = msgspec.json.encode(status)
        assert msgspec.json.decode(raw, type=MetricStatus) == status
        assert without_raw(status) == status
        answers = [n for n, (value, _) in enumerate(results[: number + 1]) if value is not None]
        kept = [result for result in status.interval_results if not result.err_msg]
        if answers and (kept or status.value):
            assert value_time(status) == f"2026-03-01T12:00:{answers[-1]:02}Z"
        else:
            assert value_time(status) == ""
