"""The languages of constraints: their spellings, errors and messages (krake-spec 2 to 2.4, 8)."""

from __future__ import annotations

import pytest

from harbourmaster.placement.constraints import (
    PARSERS,
    LabelConstraint,
    MetricConstraint,
    parse_label,
    parse_metric,
)
from harbourmaster.placement.lexer import LONGEST, ConstraintError
from helpers.placing import CONSTRAINTS


def cases(result):
    return [
        pytest.param(PARSERS[language], text, expected, id=f"{language}: {text[:40]}")
        for language, texts in CONSTRAINTS.items()
        for text, expected in texts[result].items()
    ]


@pytest.mark.parametrize(("parse", "text", "canonical"), cases("valid"))
def test_c6_c7_c10_c11_c12_c21_every_spelling_has_a_canonical_one(parse, text, canonical):
    assert parse(text).canonical == canonical


@pytest.mark.parametrize(("parse", "text", "position"), cases("invalid"))
def test_c8_c9_c10_c14_an_invalid_constraint_is_an_error_with_its_position(parse, text, position):
    with pytest.raises(ConstraintError) as caught:
        parse(text)
    assert caught.value.position == position
    assert "\n" not in str(caught.value)


def test_a_constraint_has_a_key_an_operator_and_values():
    assert parse_label("a notin (b, c)") == LabelConstraint("a", "not in", ("b", "c"))
    assert parse_label("a is notin") == LabelConstraint("a", "is", ("notin",))
    assert parse_metric("load=<5") == MetricConstraint("load", "lesser than or equal", "5")


@pytest.mark.parametrize(
    ("bound", "number"),
    [("0.5", 0.5), ("1e3", 1000), ("1e-3", 0.001), ("-5", -5), ("+5", 5), ("-1.5E+2", -150)],
)
def test_c13_bounds_are_numbers_of_either_sign(bound, number):
    assert parse_metric(f"load > {bound}").number == number
    assert parse_metric(f"load>{bound}") == MetricConstraint("load", "greater than", bound)


def test_the_caret_stands_below_the_place():
    with pytest.raises(ConstraintError) as caught:
        parse_label("location === DE")
    assert caught.value.with_caret == (
        "expected a label value, found '='\n  location === DE\n             ^"
    )
    assert str(caught.value) == (
        "expected a label value, found '=', at character 12 of 'location === DE'"
    )


def test_a_text_that_ends_too_soon_says_so():
    with pytest.raises(ConstraintError) as caught:
        parse_label("location is")
    assert caught.value.with_caret == (
        "expected a label value, found the end\n  location is\n             ^"
    )


def test_a_long_text_is_shown_around_the_place():
    with pytest.raises(ConstraintError) as caught:
        parse_label(f"a in ({', '.join(['b'] * 100)} {'c' * 50}")
    _, shown, caret = caught.value.with_caret.split("\n")
    assert shown.startswith("  ...")
    assert shown.endswith("...")
    assert shown[caret.index("^")] == "c"


def test_unprintable_characters_are_shown_as_blanks():
    with pytest.raises(ConstraintError) as caught:
        parse_label("a\x1b[31m is\nb c")
    assert "\x1b" not in caught.value.with_caret
    assert caught.value.with_caret.count("\n") == 2


def test_the_length_of_constraints_is_limited():
    with pytest.raises(ConstraintError, match="more than 4096 characters"):
        parse_label("a is b" + " " * (LONGEST - 5))
    assert parse_label("a is b" + " " * (LONGEST - 6))


def test_capital_operators_get_a_hint():
    for text, is_hinted in (("a IS b", True), ("a has b", False)):
        with pytest.raises(ConstraintError) as caught:
            parse_label(text)
        assert caught.value.message.endswith("lower case") is is_hinted


def test_long_words_are_cut_in_messages():
    with pytest.raises(ConstraintError) as caught:
        parse_label(f"a is b {'c' * 41}")
    assert caught.value.message.endswith(f"found '{'c' * 40}...'")
    with pytest.raises(ConstraintError) as caught:
        parse_label(f"a is b {'c' * 40}")
    assert caught.value.message.endswith(f"found '{'c' * 40}'")


def test_nothing_is_cut_that_fits():
    for length, end in ((39, "b"), (40, "b...")):
        with pytest.raises(ConstraintError) as caught:
            parse_label(f"={'b' * length}")
        assert caught.value.with_caret.split("\n")[1] == f"  ={'b' * 38}{end}"


LABELS = {"location": "DE", "empty": ""}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("location is DE", True),
        ("location is de", False),
        ("location is SK", False),
        ("location is not SK", True),
        ("location is not DE", False),
        ("location in (SK, DE)", True),
        ("location in (SK)", False),
        ("location not in (SK)", True),
        ("location not in (SK, DE)", False),
        ("other is DE", False),
        ("other is not DE", False),
        ("other in (DE)", False),
        ("other not in (DE)", False),
        ("empty is not DE", True),
    ],
)
def test_c1_c2_labels_that_are_missing_match_nothing(text, holds):
    constraint = parse_label(text)
    assert constraint.holds(LABELS) is holds
    assert (constraint.mismatch(LABELS) == "") is holds


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("m > 5", [False, False, True]),
        ("m >= 5", [False, True, True]),
        ("m < 5", [True, False, False]),
        ("m <= 5", [True, True, False]),
        ("m is 5", [False, True, False]),
        ("m is not 5", [True, False, True]),
    ],
)
def test_values_are_compared(text, expected):
    constraint = parse_metric(text)
    assert [constraint.holds(value) for value in (4.9, 5.0, 5.1)] == expected
    assert not constraint.holds(None)
    assert "the metric is missing" in constraint.mismatch(None)
