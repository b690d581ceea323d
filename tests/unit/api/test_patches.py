"""JSON Patch operations: pointers are escaped, and only owned fields are ever added to."""

from __future__ import annotations

import copy

import jsonpatch
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.api.patches import Operation, add, apply, escape
from helpers.objects import RESOURCES, cluster_policy, workload
from helpers.policies import kind_of, merged, pod_spec
from helpers.properties import cases, pod_specs, policies

OWNED_FIELDS = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")


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


def test_keys_of_a_node_selector_are_escaped():
    result = merged(
        workload("Pod", nodeSelector={"own": "1"}),
        cluster_policy(nodeSelector={"example.com/a": "1"}),
    )
    assert result.paths == ["/spec/nodeSelector/example.com~1a"]
    assert result.spec["nodeSelector"] == {"own": "1", "example.com/a": "1"}


OPERATIONS = [
    Operation("add", "/a", {"x": []}),
    Operation("add", "/a/x/-", 1),
    Operation("add", "/a/x/-", 2),
    Operation("add", "/b~1c/d~0e", "new"),
    Operation("add", "/~01", 3),
]


def test_operations_are_applied_as_the_oracle_does():
    document = {"a": None, "b/c": {"d~e": "old"}}
    expected = jsonpatch.apply_patch(document, msgspec.to_builtins(OPERATIONS))
    apply(document, copy.deepcopy(OPERATIONS))
    assert document == expected == {"a": {"x": [1, 2]}, "b/c": {"d~e": "new"}, "~1": 3}


@settings(max_examples=cases(100))
@given(
    st.sampled_from(list(RESOURCES)),
    pod_specs,
    policies(),
    st.builds(dict, skip_conflicts=st.booleans(), node_name_as_field=st.booleans()),
)
def test_patch_only_adds_and_only_to_owned_fields(kind, spec, existing, options):
    document = workload(kind, **spec)
    pointer = kind_of(document).pointer
    result = merged(document, *existing, **options)
    for operation in result.operations:
        assert operation["op"] == "add"
        path = operation["path"].removeprefix(f"{pointer}/")
        assert path.partition("/")[0] in OWNED_FIELDS
    for field in OWNED_FIELDS:
        pod_spec(document).pop(field, None)
        result.spec.pop(field, None)
    assert result.document == document
