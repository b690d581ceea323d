"""Tests of reading pods and templates of each kind: their path, fields, and malformed objects.

These tests prove kupid-spec 4.
"""

from __future__ import annotations

import json
import re
from types import NoneType, UnionType
from typing import get_args, get_origin

import msgspec
import pytest

from harbourmaster.api.decoding import MalformedError
from harbourmaster.policies.merge import MergeOptions, merge
from harbourmaster.policies.model import PolicySpec
from harbourmaster.policies.pods import KINDS, MIRROR_ANNOTATION, is_absent
from helpers.objects import RESOURCES, cluster_policy, required, workload
from helpers.policies import compile_all, kind_of, merge_of, node_terms

TEMPLATES = [kind for kind in RESOURCES if kind != "Pod"]


def project(document):
    return kind_of(document).read(json.dumps(document).encode())


def fault(document, kind=None):
    kind = kind or kind_of(document)
    with pytest.raises(MalformedError) as caught:
        kind.read(json.dumps(document).encode())
    text = str(caught.value)
    assert text.isprintable()
    return text


# Kinds

POINTERS = {
    ("", "v1", "Pod"): "/spec",
    ("", "v1", "ReplicationController"): "/spec/template/spec",
    ("apps", "v1", "ReplicaSet"): "/spec/template/spec",
    ("apps", "v1", "Deployment"): "/spec/template/spec",
    ("apps", "v1", "StatefulSet"): "/spec/template/spec",
    ("apps", "v1", "DaemonSet"): "/spec/template/spec",
    ("batch", "v1", "Job"): "/spec/template/spec",
    ("batch", "v1", "CronJob"): "/spec/jobTemplate/spec/template/spec",
    ("batch", "v1beta1", "CronJob"): "/spec/jobTemplate/spec/template/spec",
}


def test_kinds_are_these():
    assert {key: kind.pointer for key, kind in KINDS.items()} == POINTERS


def test_only_pods_and_jobs_have_an_immutable_pod_spec():
    assert {key[2] for key, kind in KINDS.items() if kind.create_only} == {"Pod", "Job"}


def test_all_but_pods_are_templates():
    assert {key[2] for key, kind in KINDS.items() if not kind.is_template} == {"Pod"}


def document_of(key):
    group, version, name = key
    return {**workload(name), "apiVersion": f"{group}/{version}".lstrip("/")}


@pytest.mark.parametrize("key", KINDS, ids="/".join)
def test_labels_and_spec_are_those_of_the_pod(key):
    document = document_of(key)
    document["metadata"] = {**document["metadata"], "annotations": {"x": "y"}}
    if key[2] != "Pod":
        document["metadata"]["labels"] = {"app": "object"}
    if key[2] == "CronJob":
        document["spec"]["jobTemplate"]["metadata"] = {"labels": {"app": "job"}}
    projected = project(document)
    assert projected.labels == {"app": "web"}
    assert projected.spec is not None
    assert not projected.is_left_alone


@pytest.mark.parametrize("key", KINDS, ids="/".join)
def test_node_selector_is_added_where_the_kind_keeps_its_pod(key):
    result = merge_of(document_of(key), cluster_policy(nodeSelector={"a": "b"}))
    assert result.operations == [
        {"op": "add", "path": f"{POINTERS[key]}/nodeSelector", "value": {"a": "b"}}
    ]


# Objects that hold less


@pytest.mark.parametrize("spec", ["absent", None, {}, {"template": None}])
@pytest.mark.parametrize("kind", TEMPLATES)
def test_object_without_a_template_has_no_pod(kind, spec):
    document = workload(kind)
    if spec == "absent":
        del document["spec"]
    elif kind == "CronJob" and spec is not None:
        document["spec"] = {"jobTemplate": {"spec": spec}}
    else:
        document["spec"] = spec
    assert project(document) is None


@pytest.mark.parametrize("spec", [{}, {"jobTemplate": None}, {"jobTemplate": {"spec": None}}])
def test_cron_job_without_a_job_has_no_pod(spec):
    assert project({**workload("CronJob"), "spec": spec}) is None


@pytest.mark.parametrize("metadata", ["absent", None, {}, {"labels": None}, {"labels": {}}])
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_missing_labels_are_an_empty_set(kind, metadata):
    document = workload(kind)
    holder = document if kind == "Pod" else document["spec"]["template"]
    holder["metadata"] = metadata
    if metadata == "absent":
        del holder["metadata"]
    assert project(document).labels == {}


@pytest.mark.parametrize("spec", ["absent", None])
@pytest.mark.parametrize("kind", ["Pod", "Deployment"])
def test_missing_spec_is_none(kind, spec):
    document = workload(kind)
    holder = document if kind == "Pod" else document["spec"]["template"]
    holder["spec"] = spec
    if spec == "absent":
        del holder["spec"]
    assert project(document).spec is None


@pytest.mark.parametrize("value", ["", ', "affinity": null', ', "affinity" :  null  '])
def test_field_that_is_missing_or_null_is_absent(value):
    kind = KINDS["", "v1", "Pod"]
    read = kind.read(f'{{"spec": {{"nodeName": "n"{value}}}}}'.encode())
    assert is_absent(read.spec.affinity)


@pytest.mark.parametrize("value", ["{}", "[]", '""', "0"])
def test_empty_field_is_not_absent(value):
    kind = KINDS["", "v1", "Pod"]
    read = kind.read(b'{"spec": {"tolerations": []}}')
    assert not is_absent(read.spec.tolerations)


def test_gates_are_seen():
    gates = [{"name": "example.com/gate"}]
    assert project(workload("Pod", schedulingGates=gates)).spec.has_gates
    for none in ([], None):
        assert not project(workload("Pod", schedulingGates=none)).spec.has_gates
    assert not project(workload("Pod")).spec.has_gates


# What no policy may change


@pytest.mark.parametrize("kind", RESOURCES)
def test_object_that_is_being_deleted_is_left_alone(kind):
    document = workload(kind)
    document["metadata"] = {**document["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert project(document).is_left_alone


def test_mirror_pod_is_left_alone():
    document = workload("Pod")
    document["metadata"] = {"annotations": {MIRROR_ANNOTATION: ""}}
    assert project(document).is_left_alone


def test_annotation_of_mirror_pods_means_nothing_on_templates():
    document = workload("Deployment")
    document["spec"]["template"]["metadata"]["annotations"] = {MIRROR_ANNOTATION: "x"}
    assert not project(document).is_left_alone


# What does not fit the request


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "StatefulSet"}, "apps/v1/StatefulSet"),
        ({"apiVersion": "apps/v1beta1"}, "apps/v1beta1/Deployment"),
        ({"apiVersion": "v1", "kind": "Pod"}, "v1/Pod"),
        ({"apiVersion": None, "kind": "Pod"}, "Pod"),
    ],
)
def test_object_of_another_kind_than_the_request_says_is_refused(change, said):
    text = fault({**workload(), **change}, KINDS["apps", "v1", "Deployment"])
    assert text == f"the object says {said}, the request apps/v1/Deployment"


@pytest.mark.parametrize("key", KINDS, ids="/".join)
def test_object_need_not_say_its_kind(key):
    document = document_of(key)
    del document["kind"], document["apiVersion"]
    assert KINDS[key].read(json.dumps(document).encode()).labels == {"app": "web"}


def test_object_that_no_api_server_could_have_decoded_is_refused():
    document = workload()
    document["spec"]["replicas"] = "three"
    assert fault(document) == "spec.replicas: expected integer, got string"


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("apiVersion", 1),
        ("kind", []),
        ("metadata", []),
        ("metadata.labels", []),
        ("metadata.labels", {"a": 1}),
        ("metadata.annotations", "x"),
        ("metadata.deletionTimestamp", 1),
        ("spec", []),
    ],
)
def test_wrong_type_around_the_pod_spec_is_named(path, value):
    message = fault(
        {"metadata": {}, "spec": {}, **nested_document(path, value)}, KINDS["", "v1", "Pod"]
    )
    assert message.startswith(f"{path}: expected ")


# Wrong types in every owned field


def wrong(path, kind):
    """Yield each path in a value of this type, with values that have no place there."""
    kinds = [part for part in get_args(kind) if part is not NoneType]
    if isinstance(kind, UnionType):
        yield from wrong(path, kinds[0])
    elif get_origin(kind) is list:
        yield path, {}
        yield f"{path}[0]", None
        yield from wrong(f"{path}[0]", kinds[0])
    elif get_origin(kind) is dict:
        yield from ((path, value) for value in ([], {"a": 1}, {"a": None}))
    elif issubclass(kind, msgspec.Struct):
        yield path, []
        for field in msgspec.structs.fields(kind):
            yield from wrong(f"{path}.{field.encode_name}", field.type)
    else:
        yield from ((path, value) for value in (["1", 1.5] if kind is int else [1]))


SPEC = {field.encode_name: field.type for field in msgspec.structs.fields(PolicySpec)}
AFFINITY = list(wrong("affinity", SPEC["affinity"]))
OTHERS = ("nodeName", "nodeSelector", "schedulerName", "tolerations")
WRONG = [
    *AFFINITY,
    *(entry for name in OTHERS for entry in wrong(name, SPEC[name])),
    ("schedulingGates", {}),
]


def nested_document(path, value):
    """Build ``{"a": [{"b": value}]}`` from ``a[0].b``."""
    for token in reversed(re.findall(r"\w+|\[0\]", path)):
        value = [value] if token == "[0]" else {token: value}  # noqa: S105
    return value


@pytest.mark.parametrize(("path", "value"), WRONG)
@pytest.mark.parametrize("kind", ["Pod", "Deployment", "CronJob"])
def test_wrong_type_in_an_owned_field_is_named(kind, path, value):
    at = kind_of(workload(kind)).pointer.strip("/").replace("/", ".")
    document = workload(kind, **nested_document(path, value))
    message = fault(document)
    assert re.fullmatch(rf"{re.escape(f'{at}.{path}')}: expected \w+, got \w+", message)


@pytest.mark.parametrize("path", sorted({path for path, _ in AFFINITY if not path.endswith("]")}))
def test_null_in_an_affinity_is_as_good_as_absent(path):
    document = workload(**nested_document(path, None))
    assert merge_of(document, cluster_policy(affinity=required({"a": "1"}))).operations


UNREADABLE = [b"1e999", b"9" * 5000, b'{"\xff": 1}', b"[" * 940 + b"]" * 940]
FIELDS = {"affinity": b'{"u": %b}', "tolerations": b'[{"u": %b}]'}


@pytest.mark.parametrize("value", UNREADABLE, ids=["number", "integer", "no UTF-8", "deep"])
@pytest.mark.parametrize("field", FIELDS)
def test_unknown_field_that_can_not_be_read_is_refused(field, value):
    document = b'{"spec": {"%b": %b}}' % (field.encode(), FIELDS[field] % value)
    with pytest.raises(MalformedError, match=rf"^spec\.{field}"):
        KINDS["", "v1", "Pod"].read(document)


@pytest.mark.parametrize("value", [b"1" * 300, b"[" * 700 + b"]" * 700])
@pytest.mark.parametrize("field", FIELDS)
def test_unknown_field_that_can_be_read_can_be_merged_and_written(field, value):
    kind = KINDS["", "v1", "Pod"]
    pod = kind.read(b'{"spec": {"%b": %b}}' % (field.encode(), FIELDS[field] % value))
    policies = compile_all(
        cluster_policy(**node_terms({}), tolerations=[{"key": "a", "operator": "Exists"}])
    )
    assert msgspec.json.encode(merge(pod, kind.pointer, policies, MergeOptions()).operations)
