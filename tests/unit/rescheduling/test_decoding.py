from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
import yaml

from harbourmaster.api.decoding import MalformedError
from harbourmaster.api.selectors import Matcher
from harbourmaster.rescheduling.decoding import (
    decode_budget,
    decode_namespace,
    decode_node,
    decode_pending,
    decode_pod,
    decode_present,
)
from harbourmaster.rescheduling.model import Criteria, Shared, shared_labels

ON_NODE = {"nodeName": "n1"}
DECODERS = {"pod": decode_pod, "node": decode_node, "budget": decode_budget}
CASES = yaml.load(
    (Path(__file__).parents[2] / "fixtures/decoded.yaml").read_text(), yaml.CSafeLoader
)


def describe(value):
    """Return a decoded value as JSON has it, without what is a default."""
    if isinstance(value, msgspec.Struct):
        fields = {field.name: field.default for field in msgspec.structs.fields(value)}
        return {
            name: describe(getattr(value, name))
            for name, default in fields.items()
            if getattr(value, name) != default
        }
    if isinstance(value, dict):
        return {key: describe(member) for key, member in value.items()}
    if isinstance(value, tuple | frozenset):
        members = map(describe, value)
        return sorted(members) if isinstance(value, frozenset) else list(members)
    return value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_an_object_is_decoded(case):
    (kind,) = DECODERS.keys() & case.keys()
    assert describe(DECODERS[kind](json.dumps(case[kind]).encode())) == case["decoded"]


def pod(*, status=None, spec=None, **metadata):
    named = {"uid": "u", "namespace": "shop", "name": "p", **metadata}
    return json.dumps({"metadata": named, "spec": spec or {}, "status": status or {}}).encode()


def decode_bound(*, spec=None, **given):
    return decode_pod(pod(spec={**ON_NODE, **(spec or {})}, **given))


def decode_unbound(**spec):
    return decode_pod(pod(spec=spec))


def test_equal_parts_of_pods_are_one_object():
    spec = {"containers": [{"resources": {"requests": {"cpu": "1"}}}]}
    first = decode_bound(labels={"a": "1", "b": "2"}, spec=spec)
    second = decode_bound(labels={"b": "2", "a": "1"}, spec=spec, uid="v")
    assert first.labels is second.labels
    assert first.requests is second.requests
    assert first.namespace is second.namespace
    assert first.node is second.node


def test_constraints_of_bound_pods_are_not_read():
    spec = {"tolerations": "nonsense", "nodeSelector": 7, "topologySpreadConstraints": {}}
    assert decode_bound(spec=spec).node == "n1"
    for name, value in spec.items():
        with pytest.raises(MalformedError, match=f"spec.{name}: expected "):
            decode_unbound(**{name: value})


def test_the_criteria_of_critical_pods_are_settings():
    criteria = Criteria(
        namespaces=frozenset(("shop",)),
        classes=frozenset(("never",)),
        selector=Matcher(present=("vital",)),
        least_priority=5,
    )
    for given in (
        {"spec": {"priority": 5}},
        {"spec": {"priorityClassName": "never"}},
        {"labels": {"vital": ""}},
    ):
        assert decode_pod(pod(**given), criteria).pod.is_critical
    assert not decode_pod(pod(spec={"priority": 4}), criteria).pod.is_critical


def test_a_pod_may_be_looked_at_as_waiting_or_not():
    status = {
        "containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}],
    }
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    assert decode_present(pod(spec=spec, status=status)).requests == (("cpu", 3000),)
    again = decode_pending(pod(spec={**spec, **ON_NODE}, status=status))
    assert (again.node_name, again.pod.requests) == ("n1", (("cpu", 1000),))


def test_a_namespace_has_its_name_among_its_labels():
    given = b'{"metadata": {"name": "shop", "labels": {"team": "a"}}}'
    assert decode_namespace(given) == (
        "shop",
        {"team": "a", "kubernetes.io/metadata.name": "shop"},
    )


@pytest.mark.parametrize(
    ("read", "given", "fault"),
    [
        (decode_pod, b"x", "JSON is malformed: invalid character (byte 0)"),
        (decode_pod, b"[" * 100_000, "expected object, got array"),
        (decode_pod, pod(labels={"a": 1}), "metadata.labels: expected string, got integer"),
        (decode_pod, pod(deletionTimestamp="soon"), "metadata.deletionTimestamp: invalid RFC3339"),
        (
            decode_pod,
            pod(spec={"containers": [{}, {"resources": {"requests": {"cpu": "much"}}}]}),
            "spec.containers[1].resources.requests.cpu: 'much' is not a quantity",
        ),
        (
            decode_node,
            b'{"status": {"allocatable": {"memory": ""}}}',
            "status.allocatable.memory: '' is not a quantity",
        ),
        (
            decode_budget,
            b'{"spec": {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}}',
            "spec.selector.matchExpressions[0].operator: must be In,",
        ),
    ],
)
def test_an_invalid_object_is_one_line(read, given, fault):
    with pytest.raises(MalformedError) as error:
        read(given)
    assert str(error.value).startswith(fault)
    assert "\n" not in str(error.value)


def test_an_invalid_selector_is_reported_with_its_path():
    term = {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "a"}]}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    given = pod(spec={**ON_NODE, "affinity": {"podAntiAffinity": required}})
    with pytest.raises(
        MalformedError, match=r"^spec.affinity.podAntiAffinity.required.*\[0\]\.lab"
    ):
        decode_pod(given)
    # Keys may be written with escapes.
    escaped = given.replace(b"podAntiAffinity", b"podAnti\\u0041ffinity")
    with pytest.raises(MalformedError):
        decode_pod(escaped)


def test_a_raw_part_of_a_larger_text_is_read_as_well():
    whole = msgspec.json.decode(
        b'{"object":' + pod(spec=ON_NODE) + b"}", type=dict[str, msgspec.Raw]
    )
    assert decode_pod(whole["object"]).key == "shop/p"


def test_equal_values_are_one_object():
    shared = Shared[list[int]]()
    first = shared("a", [1])
    assert shared("a", [1]) is first
    assert shared("b", [1]) is not first


def test_sharing_restarts_at_the_limit():
    shared = Shared[list[int]](most=2)
    first = [shared(name, []) for name in "ab"]
    assert shared("a", []) is first[0]
    shared("c", [])
    assert shared("a", []) is not first[0]


def test_no_labels_are_one_object():
    assert shared_labels(None) is shared_labels({})
