from __future__ import annotations

import pytest

from harbourmaster.placement.inventory import ADOPTED, MADE, ObjectRef
from harbourmaster.placement.manifests import FIELD_MANAGER, UID_LABEL, ManifestOwner
from harbourmaster.placement.ownership import (
    ADOPTED_ANNOTATION,
    OwnerReference,
    Present,
    is_of_others,
    origin,
    release_patch,
)

OWNER = ManifestOwner("app-uid", "team", "shop", "2026-01-01T00:00:10Z")
OURS = {UID_LABEL: "app-uid"}
APPLIED = {"manager": FIELD_MANAGER, "operation": "Apply"}
STATUS = {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status"}
NAMESPACED = {("apps", "ReplicaSet"), ("", "ConfigMap")}


def present(**fields):
    known = {
        "name": "a",
        "uid": "1",
        "labels": OURS,
        "creation_timestamp": "2026-01-01T00:00:10Z",
        "managed_fields": (APPLIED, STATUS),
    }
    return Present(**{**known, **fields})


def ref_with(**fields):
    return ObjectRef(api_version="v1", kind="ConfigMap", name="a", namespace="team", **fields)


@pytest.mark.parametrize(
    ("live", "ref", "expected"),
    [
        # What is not there is made.
        (None, None, MADE),
        (None, ref_with(uid="1", origin=ADOPTED), MADE),
        # What was there without our label is adopted.
        (present(labels=None), None, ADOPTED),
        (present(labels={UID_LABEL: ""}), ref_with(), ADOPTED),
        (present(labels=None, uid="2"), ref_with(uid="1", origin=MADE), ADOPTED),
        # A record of the very object decides, whoever took our label off.
        (present(labels=None), ref_with(uid="1", origin=MADE), MADE),
        (present(), ref_with(uid="1", origin=ADOPTED), ADOPTED),
        (present(managed_fields=(APPLIED, {"manager": "kubectl"})), ref_with(uid="1", origin=MADE),
         MADE),
        # A process died between applying and recording.
        (present(), ref_with(), MADE),
        (present(annotations={ADOPTED_ANNOTATION: "true"}), ref_with(), ADOPTED),
        # An earlier version recorded no origin.
        (present(), ref_with(uid="1"), MADE),
        (present(managed_fields=None), ref_with(uid="1"), MADE),
        (present(labels=None), ref_with(uid="1"), ADOPTED),
        (present(managed_fields=(APPLIED, {"manager": "kubectl"})), ref_with(uid="1"), ADOPTED),
        (present(creation_timestamp="2026-01-01T00:00:09Z"), ref_with(uid="1"), ADOPTED),
        # A user deleted and recreated it with the same labels.
        (present(uid="2", managed_fields=({"manager": "kubectl"},)),
         ref_with(uid="1", origin=MADE), ADOPTED),
    ],
)  # fmt: skip
def test_the_origin_of_an_object(live, ref, expected):
    assert origin(live, ref, OWNER) == expected


def fields_of_owned(api_version, kind):
    return {
        "owner_references": (OwnerReference(api_version=api_version, kind=kind),),
        "labels": None,
    }


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("ConfigMap", {"labels": None}, True),
        ("ConfigMap", {"labels": {UID_LABEL: "another"}}, True),
        ("ConfigMap", {}, False),
        ("ConfigMap", {"labels": None, "deletion_timestamp": "2026-01-01T00:00:11Z"}, False),
        ("PodMetrics", {"labels": None, "uid": ""}, False),
        ("ConfigMap", {"labels": None, "name": "kube-root-ca.crt"}, False),
        ("Secret", {"labels": None, "name": "kube-root-ca.crt"}, True),
        ("ServiceAccount", {"labels": None, "name": "default"}, False),
        # A part of something that a namespace holds is not counted for itself.
        ("Pod", fields_of_owned("apps/v1", "ReplicaSet"), False),
        ("Pod", fields_of_owned("v1", "Node"), True),
        ("Secret", fields_of_owned("example.com/v1", "ReplicaSet"), True),
    ],
)
def test_what_others_would_miss(kind, fields, expected):
    assert is_of_others(kind, present(**fields), OWNER, NAMESPACED) is expected


def test_a_released_object_keeps_its_values_and_other_managers():
    theirs = {"manager": "kubectl", "fieldsV1": {"f:data": {}}}
    adopted = present(resource_version="7", managed_fields=(theirs, APPLIED))
    metadata = release_patch(adopted, OWNER)["metadata"]
    assert metadata["managedFields"] == [theirs]
    assert (metadata["uid"], metadata["resourceVersion"]) == ("1", "7")
    assert metadata["labels"] == dict.fromkeys(OWNER.labels)
    assert metadata["annotations"] == {ADOPTED_ANNOTATION: None}
    assert release_patch(present(managed_fields=(APPLIED,)), OWNER)["metadata"][
        "managedFields"
    ] == [{}]
