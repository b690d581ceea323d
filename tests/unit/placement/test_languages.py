from __future__ import annotations

import pytest

from harbourmaster.placement.constraints import (
    LabelConstraint,
    MetricConstraint,
    parse_custom_resource,
    parse_label,
    parse_metric,
)
from harbourmaster.placement.lexer import LONGEST, ConstraintError

DE = ("DE",)
BOTH = ("DE", "SK")


def label(key, operator, *values):
    return LabelConstraint(key, operator, values)


@pytest.mark.parametrize(
    "text",
    [
        "location is DE",
        "location = DE",
        "location=DE",
        "location==DE",
        "location == DE",
        " location  is   DE ",
        "\tlocation\tis\tDE\t",
    ],
)
def test_every_spelling_of_equality(text):
    assert parse_label(text) == label("location", "is", "DE")


@pytest.mark.parametrize(
    "text", ["location is not DE", "location != DE", "location!=DE", "location isnot DE"]
)
def test_every_spelling_of_non_equality(text):
    assert parse_label(text) == label("location", "is not", "DE")


@pytest.mark.parametrize(
    "text",
    [
        "location in (DE, SK)",
        "location in(DE,SK)",
        "location in ( DE , SK )",
        "location in (DE, SK,)",
        "location in (DE, SK,,,)",
        "location in (DE, SK , , )",
    ],
)
def test_c7_every_spelling_of_inclusion(text):
    assert parse_label(text) == label("location", "in", "DE", "SK")


@pytest.mark.parametrize(
    "text",
    ["location notin (DE)", "location not in(DE)", "location not in (DE)", "location notin(DE,)"],
)
def test_every_spelling_of_exclusion(text):
    assert parse_label(text) == label("location", "not in", "DE")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("location is not", label("location", "is", "not")),
        ("location is notDE", label("location", "is", "notDE")),
        ("location is notin", label("location", "is", "notin")),
        ("location is not in", label("location", "is not", "in")),
        ("location is not not", label("location", "is not", "not")),
        ("is is is", label("is", "is", "is")),
        ("in in (in)", label("in", "in", "in")),
        ("not not in (a)", label("not", "not in", "a")),
        ("location in (DE, DE)", label("location", "in", "DE", "DE")),
        ("a/b=c", label("a/b", "is", "c")),
        ("a=_c_", label("a", "is", "_c_")),
        ("_a=c", label("_a", "is", "c")),
        ("a.b/c.d-e_f=g.h", label("a.b/c.d-e_f", "is", "g.h")),
        ("a = 5", label("a", "is", "5")),
    ],
)
def test_c6_keywords_are_not_reserved(text, expected):
    assert parse_label(text) == expected


def test_c21_a_tab_is_a_blank():
    assert parse_label("location is\tDE") == label("location", "is", "DE")


@pytest.mark.parametrize("text", [f"{'k' * 63}=v", f"{'p' * 253}/k=v", f"k={'v' * 63}"])
def test_c10_the_longest_parts(text):
    assert parse_label(text)


@pytest.mark.parametrize("text", [f"{'k' * 64}=v", f"{'p' * 254}/k=v", f"k={'v' * 64}"])
def test_c10_parts_that_are_too_long(text):
    with pytest.raises(ConstraintError, match="characters"):
        parse_label(text)


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("location IS DE", 9),
        ("location In (DE)", 9),
        ("locationis DE", 11),
        ("location isDE", 9),
        ("location isnotDE", 9),
        ("location isnot", 14),
        ("location in ()", 13),
        ("location in (,DE)", 13),
        ("location in (DE,,SK)", 17),
        ("location in (DE SK)", 16),
        ("location in [DE)", 12),
        ("location in DE, SK", 12),
        ("location in (DE, SK", 19),
        ("location in (DE", 15),
        ("location in", 11),
        ("location not in", 15),
        ("location not DE", 9),
        ("location === DE", 11),
        ("= = DE", 0),
        ("! = DE", 0),
        ("=! DE", 0),
        ("location ! = DE", 9),
        ("location =! DE", 10),
        ("<> DE", 0),
        ("location <> DE", 9),
        ("location > DE", 9),
        ("a=b=c", 3),
        ("location is", 11),
        ("location =", 10),
        ("location", 8),
        ("", 0),
        ("  ", 2),
        ("location is DE, SK", 14),
        ("location is DE and country is DE", 15),
        ("location is not in (DE)", 19),
        ("a location = DE", 2),
        ("location is 'DE'", 12),
        ('location is "DE"', 12),
        ("a/b/c=c", 0),
        ("/a=c", 0),
        ("a/=c", 2),
        ("-a=c", 0),
        ("a-=c", 0),
        (".=c", 0),
        ("ä=c", 0),
        ("a=c-", 2),
        ("a=.c", 2),
        ("a=b/c", 2),
        ("a=b:c", 2),
        ("a=ä", 2),
        ("a=٣", 2),
        ("\nlocation is DE", 0),
        ("location is DE\n", 12),
        ("location\nis DE", 0),
        ("location is\nDE", 9),
    ],
)
def test_c8_c9_an_invalid_label_constraint_is_an_error_with_its_position(text, position):
    with pytest.raises(ConstraintError) as caught:
        parse_label(text)
    assert caught.value.position == position
    assert "\n" not in str(caught.value)


def metric(operator, bound="5", key="load"):
    return MetricConstraint(key, operator, bound)


SPELLINGS = {
    "greater than": [
        "load > 5",
        "load >5",
        "load>5",
        "load> 5",
        "load gt 5",
        "load greater than 5",
        "load greaterthan 5",
    ],
    "greater than or equal": [
        "load >= 5",
        "load >=5",
        "load>=5",
        "load => 5",
        "load=> 5",
        "load =>5",
        "load=>5",
        "load gte 5",
        "load greater than or equal 5",
        "load greaterthanorequal 5",
        "load greaterthan orequal 5",
    ],
    "lesser than": [
        "load < 5",
        "load <5",
        "load<5",
        "load lt 5",
        "load lesser than 5",
        "load less than 5",
        "load lessthan 5",
    ],
    "lesser than or equal": [
        "load <= 5",
        "load<=5",
        "load =< 5",
        "load =<5",
        "load=<5",
        "load lte 5",
        "load lesser than or equal 5",
        "load less than or equal 5",
    ],
    "is": ["load is 5", "load = 5", "load == 5", "load=5", "load==5", "load =5", "load ==5"],
    "is not": ["load is not 5", "load != 5", "load!=5", "load !=5", "load isnot 5"],
}


@pytest.mark.parametrize(
    ("text", "operator"), [(text, name) for name, texts in SPELLINGS.items() for text in texts]
)
def test_c11_c12_every_spelling_of_a_comparison(text, operator):
    assert parse_metric(text) == metric(operator)


@pytest.mark.parametrize(
    ("bound", "number"),
    [("0.5", 0.5), ("1e3", 1000), ("1e-3", 0.001), ("-5", -5), ("+5", 5), ("-1.5E+2", -150)],
)
def test_c13_bounds_are_numbers_of_either_sign(bound, number):
    assert parse_metric(f"load > {bound}").number == number
    assert parse_metric(f"load>{bound}") == metric("greater than", bound)


def test_a_glued_comparison_needs_no_blank():
    expected = metric("greater than", key="green_energy_ratio_1")
    assert parse_metric("green_energy_ratio_1>5") == expected


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("load gt5", 5),
        ("load gte5", 5),
        ("load lte5", 5),
        ("load greater than or", 18),
        ("load greater 5", 5),
        ("load greater than", 17),
        ("load is greater than 5", 8),
        ("load greater than or equal to 5", 27),
        ("load equals 5", 5),
        ("load not equal to 5", 5),
        ("load not 5", 5),
        ("load is over 9000", 8),
        ("load > 5,0", 8),
        ("load in (5)", 5),
        ("load >> 5", 6),
        ("load > = 5", 7),
        ("load <=> 5", 7),
        ("load >== 5", 7),
        ("load > .5", 7),
        ("load > 5.", 7),
        ("load > --5", 7),
        ("load > 0x5", 7),
        ("load > 1_000", 7),
        ("load > 1e400", 7),
        ("load > ٣", 7),
        ("load > abc", 7),
        ("load > nan", 7),
        ("load > inf", 7),
        ("load > -inf", 7),
        ("load > 5 6", 9),
        ("load > 5\n", 7),
        ("load GT 5", 5),
        ("load is not", 8),
        ("load", 4),
        ("> 5", 0),
        ("a/b/c > 5", 0),
        ("", 0),
    ],
)
def test_c14_an_invalid_metric_constraint_is_an_error_with_its_position(text, position):
    with pytest.raises(ConstraintError) as caught:
        parse_metric(text)
    assert caught.value.position == position


@pytest.mark.parametrize("text", ["a.b", "a.b.c", "shirts.example.com", " shirts.example.com "])
def test_custom_resources_are_names(text):
    assert parse_custom_resource(text).canonical == text.strip()


@pytest.mark.parametrize(
    ("text", "position"),
    [("", 0), ("shirts", 6), ("a.b c.d", 4), ("A.b", 0), (".b", 0), ("a.", 0), ("a..b", 0)],
)
def test_an_invalid_custom_resource_name_is_rejected(text, position):
    with pytest.raises(ConstraintError) as caught:
        parse_custom_resource(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("a==b", "a is b"),
        ("a!=b", "a is not b"),
        ("a in(b,c,)", "a in (b, c)"),
        ("a notin (b)", "a not in (b)"),
    ],
)
def test_labels_have_a_canonical_spelling(text, canonical):
    assert parse_label(text).canonical == canonical


@pytest.mark.parametrize("operator", SPELLINGS)
def test_metrics_have_a_canonical_spelling(operator):
    assert parse_metric(SPELLINGS[operator][0]).canonical == f"load {operator} 5"


def test_the_caret_stands_below_the_place():
    with pytest.raises(ConstraintError) as caught:
        parse_label("location === DE")
    assert caught.value.pointed == (
        "expected a label value, found '='\n  location === DE\n             ^"
    )
    assert str(caught.value) == (
        "expected a label value, found '=', at character 12 of 'location === DE'"
    )


def test_a_text_that_ends_too_soon_says_so():
    with pytest.raises(ConstraintError) as caught:
        parse_label("location is")
    assert caught.value.pointed == (
        "expected a label value, found the end\n  location is\n             ^"
    )


def test_a_long_text_is_shown_around_the_place():
    with pytest.raises(ConstraintError) as caught:
        parse_label(f"a in ({', '.join(['b'] * 100)} {'c' * 50}")
    _, shown, caret = caught.value.pointed.split("\n")
    assert shown.startswith("  ...")
    assert shown.endswith("...")
    assert shown[caret.index("^")] == "c"


def test_unprintable_characters_are_shown_as_blanks():
    with pytest.raises(ConstraintError) as caught:
        parse_label("a\x1b[31m is\nb c")
    assert "\x1b" not in caught.value.pointed
    assert caught.value.pointed.count("\n") == 2


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
        assert caught.value.pointed.split("\n")[1] == f"  ={'b' * 38}{end}"


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
