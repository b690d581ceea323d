from __future__ import annotations

import time

import msgspec
import pytest

from harbourmaster.evaluation.criteria import OPERATORS, decode_target
from harbourmaster.evaluation.model import Analysis, AnalysisDefinition, AnalysisValueTemplate
from harbourmaster.evaluation.validation import (
    MAX_ITEMS,
    validate_analysis,
    validate_definition,
    validate_template,
)
from helpers.work import lines

NOON, ONE = "2026-01-31T12:00:00Z", "2026-01-31T13:00:00+00:00"
SCORE = {"passPercentage": 90, "warningPercentage": 75}
TEMPLATE = {"analysisValueTemplateRef": {"name": "latency"}}
FIVE = {"fixedValue": 5}
RANGE = {"lowBound": "500m", "highBound": 1}


def faults(kind, validate, spec):
    found = msgspec.convert({"metadata": {"name": "quality"}, "spec": spec}, kind)
    return list(map(str, validate(found)))


def timeframe_faults(**timeframe):
    spec = {"timeframe": timeframe, "analysisDefinition": {"name": "quality"}}
    return faults(Analysis, validate_analysis, spec)


def definition_faults(*objectives, score=SCORE):
    spec = {"objectives": list(objectives), "totalScore": score}
    return faults(AnalysisDefinition, validate_definition, spec)


def target_faults(target):
    return definition_faults({**TEMPLATE, "target": target})


def query_faults(query):
    spec = {"provider": {"name": "prometheus"}, "query": query}
    return faults(AnalysisValueTemplate, validate_template, spec)


@pytest.mark.parametrize(
    "timeframe",
    [
        {"recent": "5m"},
        {"from": NOON, "to": ONE},
        {"from": NOON, "to": ONE, "recent": "0s"},
        {"from": "2026-01-31T12:00:00.123456789Z", "to": ONE},
    ],
)
def test_a_span_of_time_has_no_fault(timeframe):
    assert timeframe_faults(**timeframe) == []


def test_c95_recent_excludes_from_and_to():
    told = "Forbidden: give either recent, or both from and to"
    assert timeframe_faults(recent="5m", **{"from": NOON}) == [f"spec.timeframe.from: {told}"]
    assert timeframe_faults(recent="5m", **{"from": NOON, "to": ONE}) == [
        f"spec.timeframe.from: {told}",
        f"spec.timeframe.to: {told}",
    ]


def test_c95_from_and_to_need_each_other():
    told = "Required value: give both from and to, or recent"
    assert timeframe_faults(**{"from": NOON}) == [f"spec.timeframe.to: {told}"]
    assert timeframe_faults(to=NOON) == [f"spec.timeframe.from: {told}"]
    for nothing in ({}, {"recent": "0s"}):
        assert timeframe_faults(**nothing) == [
            f"spec.timeframe.from: {told}",
            f"spec.timeframe.to: {told}",
        ]


@pytest.mark.parametrize("begin", [NOON, ONE, "2026-01-31T14:00:00+02:00"])
def test_c95_a_span_ends_after_it_begins(begin):
    assert timeframe_faults(**{"from": begin, "to": NOON}) == [
        f'spec.timeframe.to: Invalid value: "{NOON}": must be after from, which is {begin}'
    ]


def test_what_is_no_time_is_refused():
    (text,) = timeframe_faults(recent="five minutes")
    assert text.startswith('spec.timeframe.recent: Invalid value: "five minutes": "five minutes"')
    assert timeframe_faults(recent="-5m") == [
        'spec.timeframe.recent: Invalid value: "-5m": must be longer than 0s'
    ]
    assert timeframe_faults(**{"from": "noon", "to": ONE}) == [
        (
            'spec.timeframe.from: Invalid value: "noon": is not a time: write for example '
            "2026-01-31T12:00:00Z"
        )
    ]


def test_an_analysis_names_its_definition():
    spec = {"timeframe": {"recent": "5m"}, "analysisDefinition": {"namespace": "Other"}}
    assert faults(Analysis, validate_analysis, spec) == [
        "spec.analysisDefinition.name: Required value: name an object",
        (
            'spec.analysisDefinition.namespace: Invalid value: "Other": must be the name of an '
            "object: lower case letters, digits, '-' and '.'"
        ),
    ]


@pytest.mark.parametrize(
    "target",
    [
        None,
        {},
        {"failure": {"lessThan": FIVE}},
        {"warning": {"inRange": RANGE}},
        {"failure": {"notInRange": {"lowBound": -1, "highBound": "0.5"}}, "warning": None},
        {"failure": {"equalTo": {"fixedValue": "1.5Gi"}, "lessThan": None}},
    ],
)
def test_a_target_that_can_be_judged_has_no_fault(target):
    assert target_faults(target) == []
    decode_target(target)


@pytest.mark.parametrize("name", ["failure", "warning"])
def test_a_criterion_has_one_operator(name):
    at = f"spec.objectives[0].target.{name}"
    assert target_faults({name: {}}) == [
        f"{at}: Required value: leave it out, or give one of {', '.join(OPERATORS)}"
    ]
    assert target_faults({name: {"lessThan": FIVE, "inRange": RANGE}}) == [
        f'{at}: Invalid value: "lessThan, inRange": only one operator can be given'
    ]
    assert target_faults({name: 5}) == [f'{at}: Invalid value: "5": must be an object']
    assert len(target_faults({name: {"lessThan": 5}})) == 1
    assert len(target_faults([name])) == 1


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_has_its_bounds(name):
    at = f"spec.objectives[0].target.failure.{name}"
    bounds = ("lowBound", "highBound") if "Range" in name else ("fixedValue",)
    told = "Required value: give a number or a quantity, for example 5 or 500m"
    assert target_faults({"failure": {name: {}}}) == [f"{at}.{bound}: {told}" for bound in bounds]
    for value in ("much", "NaN", True, [], "1e999"):
        found = target_faults({"failure": {name: dict.fromkeys(bounds, value)}})
        assert len(found) == len(bounds)
        assert all("Invalid value" in each for each in found)


@pytest.mark.parametrize(("low", "high"), [(2, 1), ("1", "1"), ("1500m", 1.5), ("1Ki", "1k")])
@pytest.mark.parametrize("name", ["inRange", "notInRange"])
def test_a_range_is_not_empty(name, low, high):
    (text,) = target_faults({"failure": {name: {"lowBound": low, "highBound": high}}})
    assert text.startswith(f"spec.objectives[0].target.failure.{name}.highBound: Invalid value: ")
    assert "must be above lowBound, which is " in text


@pytest.mark.parametrize("warning", [75, 50])
def test_a_warning_comes_before_the_goal(warning):
    score = {"passPercentage": 50, "warningPercentage": warning}
    assert definition_faults(TEMPLATE, score=score) == [
        (
            f"spec.totalScore.warningPercentage: Invalid value: {warning}: must be below "
            "passPercentage, which is 50"
        )
    ]


def test_percentages_and_weights_have_limits():
    score = {"passPercentage": 101, "warningPercentage": -1}
    assert definition_faults({**TEMPLATE, "weight": -1}, score=score) == [
        "spec.objectives[0].weight: Invalid value: -1: must not be negative",
        "spec.totalScore.passPercentage: Invalid value: 101: must be 0 to 100",
        "spec.totalScore.warningPercentage: Invalid value: -1: must be 0 to 100",
    ]
    assert definition_faults({**TEMPLATE, "weight": 0}) == []
    assert definition_faults() == []


def test_each_objective_names_its_template():
    assert definition_faults(TEMPLATE, {"analysisValueTemplateRef": {}}) == [
        "spec.objectives[1].analysisValueTemplateRef.name: Required value: name an object"
    ]


def test_more_objectives_than_can_be_judged_at_once_are_refused():
    assert definition_faults(*[TEMPLATE] * MAX_ITEMS) == []
    assert definition_faults(*[TEMPLATE] * (MAX_ITEMS + 1)) == [
        "spec.objectives: Invalid value: 1001: must have at most 1000 objectives"
    ]


@pytest.mark.parametrize("query", ["up", 'sum(rate(x{app="{{.app}}"}[{{ .span }}]))', "{", "}}"])
def test_a_query_that_can_be_filled_in_has_no_fault(query):
    assert query_faults(query) == []


@pytest.mark.parametrize("query", ["{{", "{{.a}} {{", "{{range .a}}", "{{.a | printf}}", "{{a}}"])
def test_a_query_that_cannot_is_refused(query):
    (text,) = query_faults(query)
    assert text.startswith(f'spec.query: Invalid value: "{query}": the query has ')


def test_a_query_must_be_there_and_end():
    assert query_faults(" ") == ["spec.query: Required value: must not be empty"]
    (text,) = query_faults("u" * 65_537)
    assert text.endswith("has more than 65536 characters")
    assert len(text) < 200


BRACES = ["{{", "{{.a", "{{-", "{{ -", "}}", "{{.a}}"]


@pytest.mark.parametrize("part", BRACES)
def test_s7_four_times_as_many_braces_are_about_four_times_the_work(part):
    small, large = (
        lines(lambda count=count: query_faults((part * count)[:count]))
        for count in (16_384, 65_536)
    )
    # Quadratic would be 16 times.
    assert large < 6 * small


@pytest.mark.full
@pytest.mark.parametrize("part", BRACES)
def test_s7_a_query_of_braces_costs_no_time(part):
    began = time.perf_counter()
    query_faults((part * 65_536)[:65_536])
    assert time.perf_counter() - began < 1
