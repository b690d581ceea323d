"""Tests of the validation of a policy's metadata."""

from __future__ import annotations

import pytest

from harbourmaster.policies.validation import validate
from helpers.policies import (
    FORBIDDEN,
    INVALID,
    MISSING,
    cluster_policy,
    places,
    policy,
)

METADATA_FAULTS = [
    ({"name": None}, "name", MISSING, None),
    ({"name": "", "generateName": "p-"}, "name", MISSING, None),
    ({"name": "Bad_Name"}, "name", INVALID, '"Bad_Name"'),
    ({"namespace": None}, "namespace", MISSING, None),
    ({"namespace": "a.b"}, "namespace", INVALID, '"a.b"'),
    ({"labels": {"bad key": "v"}}, "labels", INVALID, '"bad key"'),
    ({"labels": {"k": "bad value"}}, "labels", INVALID, '"bad value"'),
    ({"annotations": {"bad key": "v"}}, "annotations", INVALID, '"bad key"'),
    ({"annotations": {"k": "v" * 2**18}}, "annotations", INVALID, "262145"),
    ({"generation": -1}, "generation", INVALID, "-1"),
    ({"finalizers": ["foo"]}, "finalizers[0]", INVALID, '"foo"'),
    ({"finalizers": ["orphan", "a b/c"]}, "finalizers", INVALID, '"a b/c"'),
    (
        {"finalizers": ["orphan", "foregroundDeletion"]},
        "finalizers",
        INVALID,
        '["orphan", "foregroundDeletion"]',
    ),
]


@pytest.mark.parametrize(("metadata", "field", "kind", "value"), METADATA_FAULTS)
def test_a_fault_of_the_metadata_denies(metadata, field, kind, value):
    errors = validate(policy({}, **metadata))
    assert places(errors) == [(f"metadata.{field}", kind, value)]


@pytest.mark.parametrize(
    ("change", "field", "value"),
    [
        ({"operation": "Put"}, "operation", '"Put"'),
        ({"operation": None}, "operation", '""'),
        ({"fieldsType": "V2"}, "fieldsType", '"V2"'),
        ({"manager": "a\n"}, "manager", r'"a\n"'),
        ({"manager": "a" * 129}, "manager", f'"{"a" * 129}"'),
        ({"operation": "Update", "subresource": "a" * 257}, "subresource", f'"{"a" * 257}"'),
    ],
)
def test_a_faulty_manager_denies(change, field, value):
    errors = validate(policy({}, managedFields=[{"operation": "Apply", **change}]))
    assert places(errors) == [(f"metadata.managedFields[0].{field}", INVALID, value)]


OWNER = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}
OWNERS = "metadata.ownerReferences"


@pytest.mark.parametrize(
    ("change", "path", "value"),
    [
        ({"apiVersion": None}, f"{OWNERS}.apiVersion", '""'),
        ({"apiVersion": "apps/"}, f"{OWNERS}.apiVersion", '"apps/"'),
        ({"apiVersion": "a/b/c"}, f"{OWNERS}.apiVersion", '"a/b/c"'),
        ({"kind": ""}, f"{OWNERS}.kind", '""'),
        ({"name": ""}, f"{OWNERS}.name", '""'),
        ({"uid": None}, f"{OWNERS}.uid", '""'),
        (
            {"apiVersion": "v1", "kind": "Event"},
            OWNERS,
            '{apiVersion: "v1", kind: "Event", name: "d", uid: "u"}',
        ),
    ],
)
def test_a_faulty_owner_denies(change, path, value):
    errors = validate(policy({}, ownerReferences=[{**OWNER, **change}]))
    assert places(errors) == [(path, INVALID, value)]


def test_two_controllers_deny():
    controller = {**OWNER, "controller": True}
    (error,) = validate(policy({}, ownerReferences=[controller, OWNER, controller]))
    assert (error.path, error.kind) == (OWNERS, INVALID)
    assert "controller: true" in error.value


def test_good_metadata_is_accepted():
    good = policy(
        {},
        generation=3,
        labels={"example.com/k": "v", "empty": ""},
        annotations={"Example.com/K": "any text!"},
        finalizers=["kubernetes", "orphan", "a.b/c"],
        ownerReferences=[{**OWNER, "controller": True}, {**OWNER, "apiVersion": "v1"}],
        managedFields=[{"operation": "Apply", "manager": "kubectl", "fieldsType": "FieldsV1"}],
    )
    assert validate(good) == ()


def test_a_cluster_policy_has_no_namespace():
    errors = validate(cluster_policy({}, namespace="ns"))
    assert places(errors) == [("metadata.namespace", FORBIDDEN, None)]


def test_errors_of_metadata_come_in_the_order_of_the_spec():
    errors = validate(
        policy(
            name="A",
            namespace="B",
            finalizers=["x"],
            managedFields=[{}],
            generation=-1,
            ownerReferences=[{**OWNER, "uid": ""}],
            annotations={"-": ""},
            labels={"-": ""},
        )
    )
    assert [error.path.removeprefix("metadata.") for error in errors] == [
        "name",
        "namespace",
        "labels",
        "annotations",
        "ownerReferences.uid",
        "generation",
        "managedFields[0].operation",
        "finalizers[0]",
    ]
