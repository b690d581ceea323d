from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import yaml

from harbourmaster.evaluation.targets import Comparison, is_met, parse_number, parse_target


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("10", 10.0),
        ("+5", 5.0),
        ("-5", -5.0),
        ("1e3", 1000.0),
        ("1E5", 1e5),
        (".5", 0.5),
        ("5.", 5.0),
        ("1_0", 10.0),
        ("1_23.50_0_0e+1_2", 1.235e14),
        ("1e-400", 0.0),
        ("99999999999999999999999999999999999999", 1e38),
        ("0x1p4", 16.0),
        ("0x1P-2", 0.25),
        ("-0x.8p1", -1.0),
        ("0x_1p4", 16.0),
        ("0x1_0p4", 256.0),
        ("0X1.8p+3", 12.0),
        ("0x1.p1", 2.0),
        ("0x1p-4000", 0.0),
        ("0x1p-99999999999999999999", 0.0),
        ("0x0p99999999999999999999", 0.0),
        ("Inf", math.inf),
        ("inf", math.inf),
        ("+Infinity", math.inf),
        ("-Infinity", -math.inf),
    ],
)
def test_a_number_is_what_go_takes_for_one(text, number):
    assert parse_number(text) == number


@pytest.mark.parametrize("text", ["NaN", "nan"])
def test_not_a_number_can_be_written(text):
    assert math.isnan(parse_number(text))


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", " 5", "5 ", "5\n", "=5", "1,5", "e5", "1e", "1e+", "1__0", "_10", "10_"),
        *("1_e5", "1_.5", "+NaN", "-nan", "infinit", "in_f", "infinity_", "0x10", "0x1p"),
        *("0xp1", "0x_.8p1", "0_x1p4", "0b11", "0o17", "\u0661", "--5"),
    ],
)
def test_what_go_takes_for_none_is_none(text):
    with pytest.raises(ValueError, match=r"^'.*' is not a number$"):
        parse_number(text)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "0x1p4000", "0x1p99999999999999999999"])
def test_what_no_float_holds_is_refused(text):
    with pytest.raises(ValueError, match=f"^'{text}' is out of range$"):
        parse_number(text)


@pytest.mark.parametrize(
    ("target", "met", "missed"),
    [
        ("<10", [9.999, -5], [10, 11]),
        (">10", [10.001], [10, 9]),
        ("<=10", [10, -1], [10.001]),
        (">=10", [10, 11], [9.999]),
        ("==10", [10], [10.001, -10]),
        ("!=10", [9, 11], [10]),
        (">1e3", [1001], [1000]),
        (">-5", [0, -4], [-5]),
        ("<Inf", [1e308], [math.inf]),
        (">-Inf", [0], [-math.inf]),
        (">=10,<20", [10, 19.9], [9.9, 20]),
        (">=10 , <=20", [10, 20], [21]),
        (">0,!=5,<10", [4], [5]),
        ("<NaN", [], [0, 1]),
    ],
)
def test_a_target_compares(target, met, missed):
    conditions = parse_target(target)
    assert [value for value in met if not is_met(conditions, value)] == []
    assert [value for value in missed if is_met(conditions, value)] == []


def test_a_target_that_yaml_took_for_an_empty_text_is_to_be_put_in_quotes():
    with pytest.raises(ValueError, match=r" before a number, and put both in quotes$"):
        parse_target(yaml.safe_load("target: >4")["target"])


@pytest.mark.parametrize("sign", ["<", ">", "<=", ">=", "==", "!="])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("bound", ["0", "Inf", "-Inf", "NaN"])
def test_what_is_not_finite_never_meets_anything(sign, value, bound):
    assert not is_met(parse_target(sign + bound), value)


@pytest.mark.parametrize("target", ["=5", "5", "", " >5", "=>5", "!5", "~5", ">5,", ",>5", ">5,10"])
def test_an_operator_is_needed(target):
    with pytest.raises(ValueError, match=r"^invalid operator in objective '.*': (write|did)"):
        parse_target(target)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (">", "'' is not a number: write a number without a unit"),
        ("> 5", "' 5' is not a number: did you mean '>5'?"),
        (">==5", "'=5' is not a number: write a number without a unit"),
        ("<>5", "'>5' is not a number: did you mean '!=5'?"),
        (">5%", "'5%' is not a number: did you mean '>5'?"),
        (">500m", "'500m' is not a number: write a number without a unit"),
        (">1e999", "'1e999' is out of range: write a number without a unit"),
        (">5,<x", "'x' is not a number: write a number without a unit"),
    ],
)
def test_a_number_is_needed_after_it(target, problem):
    with pytest.raises(ValueError, match=r"^objective") as caught:
        parse_target(target)
    assert str(caught.value) == f"objective '{target}': {problem}"


@pytest.mark.parametrize(
    ("target", "near"),
    [
        ("=>5", ">=5"),
        ("=5", "==5"),
        (" >5", ">5"),
        (">= 5 , =<10", ">=5,<=10"),
        ("\N{LESS-THAN OR EQUAL TO} 5", "<=5"),
    ],
)
def test_a_target_that_was_probably_meant_is_proposed(target, near):
    with pytest.raises(ValueError, match=f": did you mean '{near}'\\?$"):
        parse_target(target)
    assert parse_target(near)


@pytest.mark.parametrize("target", ["about 5", "5", ">5m", ">5,", "=" * 200 + "5"])
def test_no_target_is_proposed_where_none_is_near(target):
    with pytest.raises(ValueError, match=r"without a unit$|before a number$"):
        parse_target(target)


def test_long_texts_are_cut_in_messages_and_stay_one_line():
    with pytest.raises(ValueError, match="is not a number") as caught:
        parse_number("a\n" * 100_000)
    assert str(caught.value) == f"'{('a ' * 63)[:125]}...' is not a number"


def test_a_target_is_conditions_in_order():
    assert parse_target(">=1,<2") == (Comparison(">=", 1.0), Comparison("<", 2.0))


PAGE = Path(__file__).parents[3] / "docs" / "reference" / "evaluations.md"
ROW = re.compile(r"^\| `([<>=!][^`]*)` \| (.*) \| (.*) \|$", re.MULTILINE)
CODE = re.compile(r"`([^`]+)`")
ROWS = ROW.findall(PAGE.read_text())


def test_the_manual_has_all_operators():
    assert {target[:-2] for target, *_ in ROWS[:6]} == {"<", ">", "<=", ">=", "==", "!="}


@pytest.mark.parametrize(("target", "met", "missed"), ROWS, ids=[row[0] for row in ROWS])
def test_the_examples_are_right(target, met, missed):
    conditions = parse_target(target)
    met, missed = ([parse_number(text) for text in CODE.findall(cell)] for cell in (met, missed))
    assert met
    assert missed
    assert all(is_met(conditions, value) for value in met)
    assert not any(is_met(conditions, value) for value in missed)
