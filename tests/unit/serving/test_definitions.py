"""Unknown fields of a policy are those that its CustomResourceDefinition lacks."""

from __future__ import annotations

import pytest
from kubernetes_asyncio.client import models

from harbourmaster.policies.model import API_VERSION, CLUSTER_POLICY, POLICY
from harbourmaster.serving.definitions import schema_errors, unknown_fields
from helpers.policies import apart, near
from helpers.schemas import definition

LABEL_KEYS = {"matchLabelKeys": ["hash"], "mismatchLabelKeys": ["tenant"]}
PLURALS = {POLICY: "podschedulingpolicies", CLUSTER_POLICY: "clusterpodschedulingpolicies"}


def whole(schema, path, stray):
    """A value with all that a schema has, and in each object a field that it lacks."""
    if "properties" in schema:
        stray.append(f"{path}.stray".lstrip("."))
        properties = {
            name: whole(below, f"{path}.{name}", stray)
            for name, below in schema["properties"].items()
        }
        return {**properties, "stray": 1}
    if "items" in schema:
        return [whole(schema["items"], f"{path}[0]", stray)]
    return {"any": "key"} if "additionalProperties" in schema else None


@pytest.mark.parametrize("kind", PLURALS)
def test_they_are_those_that_the_definition_lacks(kind):
    (version,) = definition(PLURALS[kind])["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    stray = []
    manifest = {"apiVersion": API_VERSION, "kind": kind, "spec": whole(spec, "spec", stray)}
    assert sorted(unknown_fields(manifest)) == sorted(stray)
    assert len(stray) > 10


def test_all_fields_of_the_metadata_are_known():
    owner = dict.fromkeys(models.V1OwnerReference.attribute_map.values())
    entry = dict.fromkeys(models.V1ManagedFieldsEntry.attribute_map.values())
    metadata = dict.fromkeys(models.V1ObjectMeta.attribute_map.values())
    metadata |= {"ownerReferences": [owner], "managedFields": [{**entry, "fieldsV1": {"f:x": {}}}]}
    manifest = {"apiVersion": API_VERSION, "kind": POLICY, "metadata": metadata}
    assert unknown_fields(manifest) == []
    metadata |= {"lables": {}, "labels": {"any": "key"}}
    assert unknown_fields({**manifest, "statu": {}}) == ["metadata.lables", "statu"]


@pytest.mark.parametrize(
    ("kind", "spec", "unknown"),
    [
        (POLICY, {"podSelectr": {}}, ["spec.podSelectr"]),
        (POLICY, {"namespaceSelector": {}}, ["spec.namespaceSelector"]),
        (CLUSTER_POLICY, {"namespaceSelector": {}}, []),
        (CLUSTER_POLICY, {"tolerations": [{}, {"kee": "a"}]}, ["spec.tolerations[1].kee"]),
        (CLUSTER_POLICY, {"nodeSelector": {"any.key": "a"}}, []),
        (CLUSTER_POLICY, None, []),
        (POLICY, 5, []),
        (CLUSTER_POLICY, {"affinity": None, "tolerations": "a"}, []),
        (CLUSTER_POLICY, near({"topologyKey": "z", **LABEL_KEYS}), []),
        (POLICY, apart({"weight": 1, "podAffinityTerm": {"topologyKey": "z", **LABEL_KEYS}}), []),
    ],
)
def test_each_is_named_by_its_path(kind, spec, unknown):
    assert unknown_fields({"apiVersion": API_VERSION, "kind": kind, "spec": spec}) == unknown


@pytest.mark.parametrize(
    ("value", "schema", "limit"),
    [
        ("a\n", {"type": "string", "pattern": "^a$"}, "pattern"),
        ("a\n", {"type": "string", "pattern": "^(a$|b$)"}, "pattern"),
        ("aZ", {"type": "string", "pattern": r"a\$"}, "pattern"),
        ("é", {"type": "string", "pattern": r"^\w$"}, "pattern"),
        (11, {"x-kubernetes-int-or-string": True, "maximum": 10}, "maximum"),
        ({"a": 1, "b": 1}, {"type": "object", "maxProperties": 1}, "maxProperties"),
        ({}, {"type": "object", "minProperties": 1}, "minProperties"),
    ],
)
def test_a_limit_holds_as_in_the_api_server(value, schema, limit):
    schema = {**schema, "additionalProperties": {"type": "integer"}}
    ((_, text),) = schema_errors(value, schema)
    assert f": {limit} is " in text


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("a$", {"type": "string", "pattern": r"^a\$$"}),
        ("a$", {"type": "string", "pattern": "^a[]$]$"}),
        (11, {"x-kubernetes-int-or-string": True, "maxLength": 10, "pattern": "^a"}),
        ("eleven letters", {"x-kubernetes-int-or-string": True, "maximum": 10}),
    ],
)
def test_a_limit_holds_for_its_type_alone(value, schema):
    assert not list(schema_errors(value, schema))


def test_limits_are_named_in_a_fixed_order():
    schema = {"type": "string", "minLength": 3, "maxLength": 1, "enum": ["c"], "pattern": "^b$"}
    texts = [text for _, text in schema_errors("aa", schema)]
    names = [text.rpartition(": ")[2].partition(" is ")[0] for text in texts]
    assert names == ["minLength", "maxLength", "enum", "pattern"]
