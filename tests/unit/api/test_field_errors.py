"""Texts of field errors."""

from __future__ import annotations

import pytest

from harbourmaster.api.field_errors import (
    FieldError,
    check_name,
    forbidden,
    invalid,
    reason,
    refusal,
    required,
    unsupported,
)
from harbourmaster.policies.validation import validate
from helpers.policies import (
    MISSING,
    policy,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ('a"b', r'"a\"b"'),
        ("a\\", r'"a\\"'),
        ("é", '"é"'),
        ("\n\t", r'"\n\t"'),
        ("\x00\x7f", r'"\x00\x7f"'),
        ("\u2028", r'"\u2028"'),
        ("\U000e0001", r'"\U000e0001"'),
    ],
)
def test_a_bad_value_is_shown_on_one_line(value, shown):
    (error,) = validate(policy({"nodeName": value}))
    assert error.value == shown


def test_identical_texts_are_told_once():
    first, second = FieldError("spec.a", MISSING), FieldError("spec.b", MISSING)
    assert reason((first, second, first)) == "[spec.a: Required value, spec.b: Required value]"


def test_faults_read_as_those_of_the_api_server():
    errors = [
        invalid("spec.a", 'x"y', "must be z"),
        invalid("spec.b", -1, "must not be negative"),
        required("spec.c", "give it"),
        forbidden("spec.d", "leave it out"),
        unsupported("spec.e", "p91", ("p90", "p95")),
    ]
    assert [(error.path, error.reason) for error in errors] == [
        ("spec.a", "FieldValueInvalid"),
        ("spec.b", "FieldValueInvalid"),
        ("spec.c", "FieldValueRequired"),
        ("spec.d", "FieldValueForbidden"),
        ("spec.e", "FieldValueNotSupported"),
    ]
    assert list(map(str, errors)) == [
        'spec.a: Invalid value: "x\\"y": must be z',
        "spec.b: Invalid value: -1: must not be negative",
        "spec.c: Required value: give it",
        "spec.d: Forbidden: leave it out",
        'spec.e: Unsupported value: "p91": supported values: "p90", "p95"',
    ]


def test_all_faults_are_told_in_one_line():
    first, second = required("spec.a", "give it"), required("spec.b", "give it")
    head = 'KeptnTask.lifecycle.keptn.sh "seed" is invalid: '
    given = ("lifecycle.keptn.sh", "KeptnTask", "seed")
    assert refusal(*given, [first]) == f"{head}{first}"
    assert refusal(*given, [first, first]) == f"{head}{first}"
    assert refusal(*given, [first, second]) == f"{head}[{first}, {second}]"


@pytest.mark.parametrize("name", ["", "a", "a-1.b", "x" * 253])
def test_names_that_objects_can_have(name):
    assert list(check_name("spec.name", name)) == []


@pytest.mark.parametrize(
    "name", ["a/b", "..", "a..b", "A", "a b", "-a", "a.", "ä", "a\n", "x" * 254]
)
def test_names_that_none_can_have(name):
    (near,) = check_name("spec.name", name)
    assert near.message.endswith(
        "an object in the same namespace: lower case letters, digits, '-' "
        "and '.', and no namespace before it"
    )
    (far,) = check_name("spec.name", name, same_namespace=False)
    assert far.message.endswith("an object: lower case letters, digits, '-' and '.'")
