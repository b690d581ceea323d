"""The scores of objectives, the results of analyses, and their JSON (keptn-spec 4.5)."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harbourmaster.evaluation.analysis import (
    MeasuredObjective,
    by_status_key,
    dump_as_go,
    format_go_number,
    from_status,
    judge,
    range_step,
    resolve_timeframe,
    retry_delay,
    template_references,
    timeframe_bounds,
)
from harbourmaster.evaluation.model import (
    AnalysisObjective,
    ObjectReference,
    StoredValue,
    Timeframe,
    TotalScore,
)

LIMITS = TotalScore(pass_percentage=75, warning_percentage=50)
QUERY = "sum(up)"


def exactly(limit):
    return {"fixedValue": limit}


def between(low, high):
    return {"lowBound": low, "highBound": high}


def objective(name="ready", weight=1, namespace="", *, key=False, **target):
    return AnalysisObjective(
        analysis_value_template_ref=ObjectReference(name=name, namespace=namespace),
        target=target or None,
        weight=weight,
        key_objective=key,
    )


def verdict(*measured, limits=LIMITS):
    return judge(
        [(objective, MeasuredObjective(QUERY, value)) for objective, value in measured], limits
    )


def score(value, **target):
    return verdict((objective(weight=4, **target), value)).total


def test_c96_one_objective_that_passes(assert_golden):
    failure, warning = {"lessThan": exactly(2)}, {"lessThan": exactly("3")}
    passing = objective(namespace="shop", failure=failure, warning=warning)
    limits = TotalScore(pass_percentage=90, warning_percentage=75)
    result = verdict((passing, "4"), limits=limits)
    assert (result.passed, result.warning) == (True, False)
    assert_golden(result.raw)
    assert result.summary == "the analysis passed: 1 of 1 points, 100 %"


def test_c96_three_objectives_of_which_one_is_warned_of(assert_golden):
    first = objective(
        "first", 2, failure={"lessThan": exactly(5)}, warning={"lessThan": exactly("4")}
    )
    failure, warning = {"greaterThan": exactly("20")}, {"greaterThan": exactly(15)}
    second = objective("second", failure=failure, warning=warning)
    third = objective("third", failure={"notInRange": between("25", 35)})
    result = verdict((first, "11"), (second, "20"), (third, "30.000000"))
    assert (result.total, result.maximum, result.percentage) == (3.5, 4, 87.5)
    assert_golden(result.raw)


@pytest.mark.parametrize(
    ("value", "target", "expected"),
    [
        ("4", {}, 4),
        ("1", {"failure": {"lessThan": exactly(2)}}, 0),
        ("1", {"warning": {"lessThan": exactly(2)}}, 2),
        ("3", {"failure": {"lessThan": exactly(2)}, "warning": {"lessThan": exactly(4)}}, 2),
        ("1", {"failure": {"lessThan": exactly(2)}, "warning": {"lessThan": exactly(4)}}, 0),
        ("0.5", {"failure": {"greaterThan": exactly("500m")}}, 4),
        ("25", {"failure": {"notInRange": between(25, 35)}}, 4),
        ("35.1", {"failure": {"notInRange": between(25, 35)}}, 0),
        ("35", {"failure": {"inRange": between(25, 35)}}, 0),
        ("1", {"failure": {}}, 4),
    ],
)
def test_points(value, target, expected):
    assert score(value, **target) == expected


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("abc", "value 'abc' is not a number"),
        ("", "value '' is not a number"),
        ("NaN", "value 'NaN' is not a finite number"),
        ("+Inf", "value '+Inf' is not a finite number"),
        ("1e999", "value '1e999' is out of range"),
    ],
)
def test_what_is_no_number_has_no_points_and_an_error(value, error):
    result = verdict((objective(), value))
    assert (result.total, result.passed, result.warning) == (0, False, False)
    result = json.loads(result.raw)["objectiveResults"][0]
    assert result == {
        "result": {
            "failResult": {"operator": {}, "fulfilled": False},
            "warnResult": {"operator": {}, "fulfilled": False},
            "warning": False,
            "pass": False,
        },
        "objective": {"analysisValueTemplateRef": {"name": "ready"}, "target": {}, "weight": 1},
        "value": 0,
        "query": QUERY,
        "score": 0,
        "error": error,
    }


def test_a_target_that_can_not_be_read_has_no_points():
    result = verdict((objective(failure={"lessThan": exactly("x")}), "4"))
    assert (result.total, result.passed) == (0, False)
    assert result.results[0].error.startswith("target.failure.lessThan.fixedValue: 'x' is no")


@pytest.mark.parametrize(
    ("reached", "passed", "warning"),
    [(0, False, False), (2, False, True), (3, True, False), (4, True, False)],
)
def test_limits_are_reached_where_they_are_met(reached, passed, warning):
    good, bad = objective(), objective(failure={"greaterThan": exactly(0)})
    result = verdict(*[(good, "1")] * reached, *[(bad, "1")] * (4 - reached))
    assert (result.percentage, result.passed, result.warning) == (reached * 25, passed, warning)


def test_a_key_objective_without_points_ends_all():
    limits = TotalScore(pass_percentage=10, warning_percentage=5)
    bad = objective("errors", key=True, failure={"greaterThan": exactly(0)})
    result = verdict((objective(weight=9), "1"), (bad, "1"), limits=limits)
    assert (result.percentage, result.passed, result.warning) == (90, False, False)
    assert result.summary == "the analysis failed: 9 of 10 points, 90 %"
    assert '"weight":1,"keyObjective":true}' in result.raw


def test_a_key_objective_with_a_warning_ends_nothing():
    result = verdict((objective(key=True, warning={"greaterThan": exactly(0)}), "1"))
    assert (result.percentage, result.passed, result.warning) == (50, False, True)
    assert result.summary == "the analysis ended with a warning: 0.5 of 1 points, 50 %"


def test_without_a_maximum_nothing_is_reached():
    assert verdict().raw == (
        '{"objectiveResults":[],"totalScore":0,"maximumScore":0,"pass":false,"warning":false}'
    )
    result = verdict((objective(weight=0), "1"))
    assert (result.percentage, result.passed) == (0, False)
    assert '"target":{}},"value":1' in result.raw


def test_queries_are_escaped_as_go_does():
    result = judge([(objective(), MeasuredObjective('a{b="<c>&"}', "1"))], LIMITS)
    assert r'"query":"a{b=\"\u003cc\u003e\u0026\"}"' in result.raw


TARGETS = st.fixed_dictionaries(
    {},
    optional={
        name: st.one_of(
            st.builds(lambda bound: {"lessThan": exactly(bound)}, st.integers(-5, 5)),
            st.builds(lambda bound: {"greaterThan": exactly(f"{bound}m")}, st.integers(-5, 5)),
            st.builds(lambda low: {"inRange": between(low, low + 2)}, st.integers(-5, 5)),
            st.just({}),
        )
        for name in ("failure", "warning")
    },
)
OBJECTIVES = st.builds(
    lambda target, weight, key: objective(weight=weight, key=key, **target),
    TARGETS,
    st.integers(0, 5),
    st.booleans(),
)
VALUES = st.floats(-6, 6).map(repr) | st.sampled_from(["NaN", "x", "", "1e300"])
FOUND = st.lists(st.tuples(OBJECTIVES, VALUES), max_size=6)
SCORES = st.integers(0, 99).flatmap(
    lambda warning: st.builds(
        TotalScore,
        warning_percentage=st.just(warning),
        pass_percentage=st.integers(warning + 1, 100),
    )
)


@given(FOUND, SCORES)
def test_a_verdict_is_within_its_limits_and_told_as_json(measured, limits):
    result = verdict(*measured, limits=limits)
    assert 0 <= result.total <= result.maximum
    assert 0 <= result.percentage <= 100
    assert not (result.passed and result.warning)
    assert not result.passed or result.percentage >= limits.pass_percentage
    told = json.loads(result.raw, parse_int=float)
    assert (told["totalScore"], told["pass"]) == (result.total, result.passed)
    assert dump_as_go(told) == result.raw


@given(FOUND, SCORES)
def test_without_a_criterion_nothing_gets_worse(measured, limits):
    lenient = [
        (objective(weight=strict.weight, key=strict.key_objective), value)
        for strict, value in measured
    ]
    before, after = verdict(*measured, limits=limits), verdict(*lenient, limits=limits)
    assert after.total >= before.total
    assert (after.passed, after.passed or after.warning) >= (
        before.passed,
        before.passed or before.warning,
    )


@given(FOUND, SCORES, st.randoms())
def test_the_order_of_objectives_is_of_no_matter(measured, limits, random):
    before = verdict(*measured, limits=limits)
    random.shuffle(measured)
    after = verdict(*measured, limits=limits)
    assert (after.total, after.passed, after.warning) == (
        before.total,
        before.passed,
        before.warning,
    )


# The expectations come from a Go program.
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=("Cs",))),
    lambda inner: st.lists(inner) | st.dictionaries(st.text("ab<\n"), inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0, "-0"),
        (4.0, "4"),
        (87.5, "87.5"),
        (-0.25, "-0.25"),
        (100000.0, "100000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e22, "1.5e+22"),
        (1e-6, "0.000001"),
        (9.99e-7, "9.99e-7"),
        (1e-7, "1e-7"),
        (5e-324, "5e-324"),
        (123456789.123, "123456789.123"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
    ],
)
def test_numbers_are_written_as_go_writes_them(value, text):
    assert format_go_number(value) == text


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_no_json(value):
    with pytest.raises(ValueError, match="JSON has no"):
        format_go_number(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a<b>&c", r'"a\u003cb\u003e\u0026c"'),
        ("\u2028x\u2029", r'"\u2028x\u2029"'),
        ("\x00\b\f\n\r\t\x1f", r'"\u0000\b\f\n\r\t\u001f"'),
        ("\"\\/'", r'''"\"\\/'"'''),
        ("é", '"é"'),
        ("\x7f", '"\x7f"'),
    ],
)
def test_strings_are_written_as_go_writes_them(value, text):
    assert dump_as_go(value) == text


def test_json_is_compact_and_keeps_the_order():
    assert dump_as_go({"b": [1, None, True], "a": {"x": ()}}) == '{"b":[1,null,true],"a":{"x":[]}}'


def test_other_types_are_not_json():
    with pytest.raises(TypeError, match="JSON has no object"):
        dump_as_go(object())


@given(VALUES)
def test_json_decodes_to_the_value(value):
    text = dump_as_go(value)
    assert json.loads(text, parse_int=float) == value
    assert not {"<", ">", "&", "\n"} & set(text)


NOW = datetime(2026, 3, 1, 12, 0, 0, 700_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("wanted", "begin", "end"),
    [
        (Timeframe(recent="5m"), "2026-03-01T11:55:00Z", "2026-03-01T12:00:00Z"),
        (Timeframe(recent="1h30m"), "2026-03-01T10:30:00Z", "2026-03-01T12:00:00Z"),
        (Timeframe(recent="1ms"), "2026-03-01T11:59:59Z", "2026-03-01T12:00:00Z"),
        (
            Timeframe(from_="2026-01-01T01:00:00+01:00", to="2026-01-01T00:05:00.9Z", recent="0s"),
            "2026-01-01T00:00:00Z",
            "2026-01-01T00:05:00Z",
        ),
    ],
)
def test_the_time_is_frozen_in_whole_seconds(wanted, begin, end):
    assert resolve_timeframe(wanted, NOW) == Timeframe(from_=begin, to=end)


INVALID_TIMEFRAMES = [
    Timeframe(),
    Timeframe(from_="2026-01-01T00:00:00Z"),
    Timeframe(recent="5m", to="2026-01-01T00:00:00Z"),
    Timeframe(from_="2026-01-01T00:00:00Z", to="2026-01-01T00:00:00Z"),
    Timeframe(from_="yesterday", to="2026-01-01T00:00:00Z"),
    Timeframe(recent="five minutes"),
    Timeframe(recent="-5m"),
]


def test_c95_a_time_that_is_none(assert_golden):
    def error(wanted):
        with pytest.raises(ValueError, match=r"^timeframe") as caught:
            resolve_timeframe(wanted, NOW)
        return str(caught.value)

    assert_golden([error(wanted) for wanted in INVALID_TIMEFRAMES])


def test_the_bounds_are_seconds():
    begin, end = timeframe_bounds(
        Timeframe(from_="1970-01-01T00:01:00Z", to="1970-01-01T00:05:00Z")
    )
    assert (begin, end) == (60, 300)


@pytest.mark.parametrize(
    ("minutes", "expected"), [(1, 60), (5, 60), (4999, 60), (5001, 120), (525_600, 106 * 60)]
)
def test_a_value_a_minute_unless_there_are_too_many(minutes, expected):
    assert range_step(1000, 1000 + minutes * 60) == expected
    assert minutes * 60 / expected <= 5000


def test_waits_grow_to_a_limit():
    assert [retry_delay(attempt) for attempt in (0, 1, 2, 3, 4, 5, 1000)] == [
        10,
        20,
        40,
        80,
        160,
        300,
        300,
    ]


def template(name, namespace=""):
    return ObjectReference(name=name, namespace=namespace)


def stored_value(reference, **fields):
    return StoredValue(objective_reference=reference, **fields)


def test_each_template_is_needed_once():
    objectives = [
        AnalysisObjective(analysis_value_template_ref=reference)
        for reference in (template("a"), template("b"), template("a"), template("a", "x"))
    ]
    assert template_references(objectives) == (template("a"), template("b"), template("a", "x"))


def test_values_are_stored_by_template_and_namespace():
    values = {
        reference: stored_value(reference)
        for reference in (template("a"), template("a", "x"), template("a-x"))
    }
    by_key = by_status_key(values)
    assert list(by_key) == ["a", "a-x", "a-x#2"]
    assert [reference.objective_reference for reference in by_key.values()] == list(values)


def test_what_was_stored_is_recalled_but_for_faults():
    good, bad = (
        stored_value(template("a"), query="q", value="1"),
        stored_value(template("b"), err_msg="no"),
    )
    assert from_status({"a": good, "b": bad, "c": StoredValue(value="1")}) == {template("a"): good}
