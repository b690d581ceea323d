"""JSON Patch operations: pointers are escaped, and only owned fields are ever added to."""

from __future__ import annotations

import copy

import jsonpatch
import msgspec
import pytest

from harbourmaster.api.patches import Operation, add, apply, escape


@pytest.mark.parametrize(
    ("token", "escaped"),
    [
        ("a", "a"),
        ("", ""),
        ("a/b", "a~1b"),
        ("a~b", "a~0b"),
        ("~1", "~01"),
        ("a~/b/~", "a~0~1b~1~0"),
    ],
)
def test_reference_token_is_escaped(token, escaped):
    assert escape(token) == escaped
    document = {"map": {}}
    operation = {"op": "add", "path": f"/map/{escaped}", "value": 1}
    assert jsonpatch.apply_patch(document, [operation]) == {"map": {token: 1}}


def test_operation_reads_as_the_standard_writes_it():
    encoded = msgspec.json.encode(add("/a", [1]))
    assert encoded == b'{"op":"add","path":"/a","value":[1]}'


OPERATIONS = [
    Operation("add", "/a", {"x": []}),
    Operation("add", "/a/x/-", 1),
    Operation("add", "/a/x/-", 2),
    Operation("add", "/b~1c/d~0e", "new"),
    Operation("add", "/~01", 3),
    Operation("remove", "/g~1h"),
]


def test_operations_are_applied_as_the_oracle_does():
    document = {"a": None, "b/c": {"d~e": "old"}, "g/h": "gone"}
    expected = jsonpatch.apply_patch(document, msgspec.to_builtins(OPERATIONS))
    apply(document, copy.deepcopy(OPERATIONS))
    assert document == expected == {"a": {"x": [1, 2]}, "b/c": {"d~e": "new"}, "~1": 3}


def test_a_member_that_is_removed_is_gone():
    document = {"a": {"b": 1, "c": 2}}
    patch = b'[{"op":"remove","path":"/a/b"},{"op":"add","path":"/a/d","value":3}]'
    apply(document, msgspec.json.decode(patch, type=tuple[Operation, ...]))
    assert document == {"a": {"c": 2, "d": 3}}
