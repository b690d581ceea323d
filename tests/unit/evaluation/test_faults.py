from __future__ import annotations

import pytest

from harbourmaster.evaluation.faults import (
    bad_name,
    forbidden,
    invalid,
    message,
    required,
    unsupported,
)


def test_faults_read_as_those_of_the_api_server():
    found = [
        invalid("spec.a", 'x"y', "must be z"),
        invalid("spec.b", -1, "must not be negative"),
        required("spec.c", "give it"),
        forbidden("spec.d", "leave it out"),
        unsupported("spec.e", "p91", ("p90", "p95")),
    ]
    assert [(each.field, each.reason) for each in found] == [
        ("spec.a", "FieldValueInvalid"),
        ("spec.b", "FieldValueInvalid"),
        ("spec.c", "FieldValueRequired"),
        ("spec.d", "FieldValueForbidden"),
        ("spec.e", "FieldValueNotSupported"),
    ]
    assert list(map(str, found)) == [
        'spec.a: Invalid value: "x\\"y": must be z',
        "spec.b: Invalid value: -1: must not be negative",
        "spec.c: Required value: give it",
        "spec.d: Forbidden: leave it out",
        'spec.e: Unsupported value: "p91": supported values: "p90", "p95"',
    ]


def test_all_faults_are_told_in_one_line():
    one, other = required("spec.a", "give it"), required("spec.b", "give it")
    head = 'KeptnTask.lifecycle.keptn.sh "seed" is invalid: '
    given = ("lifecycle.keptn.sh", "KeptnTask", "seed")
    assert message(*given, [one]) == f"{head}{one}"
    assert message(*given, [one, one]) == f"{head}{one}"
    assert message(*given, [one, other]) == f"{head}[{one}, {other}]"


@pytest.mark.parametrize("name", ["", "a", "a-1.b", "x" * 253])
def test_names_that_objects_can_have(name):
    assert list(bad_name("spec.name", name)) == []


@pytest.mark.parametrize("name", ["a/b", "..", "A", "a b", "-a", "a.", "ä", "a\n", "x" * 254])
def test_names_that_none_can_have(name):
    (near,) = bad_name("spec.name", name)
    assert near.message.endswith(
        "an object in the same namespace: lower case letters, digits, '-' "
        "and '.', and no namespace before it"
    )
    (far,) = bad_name("spec.name", name, is_neighbour=False)
    assert far.message.endswith("an object: lower case letters, digits, '-' and '.'")
