"""No body makes the webhook take many times its own bytes: memory of hostile JSON on every path."""

from __future__ import annotations

import asyncio
import json
import tracemalloc

import pytest

from harbourmaster.webhook import conversion
from harbourmaster.webhook.handlers import answer
from helpers.admission import engine_of
from helpers.objects import cluster_policy

pytestmark = [pytest.mark.gate, pytest.mark.claim("W4")]

MIB = 1024 * 1024
SIZE = MIB
LEAST = 4 * MIB
"""Bytes that small fields may take in all, whatever the size of the body."""
OWNED = 16 * MIB
"""Bytes for affinity and tolerations, which are decoded whole up to a megabyte."""
HOLE = "hole"
ITEMS = {
    "lists": b"[]",
    "maps": b"{}",
    "nested": b"[" * 300 + b"]" * 300,
    "numbers": b"0",
    "texts": b'"ab"',
    "entries": b'{"a":0}',
}


def filling(items, size=SIZE):
    """A list, or for keys a map, of so many bytes."""
    if items == "keys":
        parts, length = [], 0
        while length < size:
            parts.append(b'"%x":"x"' % len(parts))
            length += len(parts[-1]) + 1
        return b"{%b}" % b",".join(parts)
    item = ITEMS[items]
    return b"[%b]" % b",".join([item] * (size // (len(item) + 1)))


def review(obj, kind=("", "v1", "Pod"), **request):
    group, version, name = kind
    kind = {"group": group, "version": version, "kind": name}
    request = {"uid": "1", "kind": kind, "namespace": "ns1", "operation": "CREATE", **request}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    return {**review, "request": {**request, "object": obj}}


def pod(meta=None, **spec):
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "1"}
    metadata = {"name": "p", "namespace": "ns1", "ownerReferences": [owner], **(meta or {})}
    return review({"metadata": metadata, "spec": {"containers": [], **spec}})


def template(meta=None, **spec):
    inner = {"metadata": meta or {}, "spec": spec}
    obj = {"metadata": {"name": "d"}, "spec": {"template": inner}}
    return review(obj, ("apps", "v1", "Deployment"))


def of_keptn(kind, spec):
    obj = {"metadata": {"name": "a", "namespace": "ns1"}, "spec": spec}
    return review(obj, ("lifecycle.keptn.sh", "v1", kind))


def of_policy(spec):
    kind = ("kupid.gardener.cloud", "v1alpha1", "ClusterPodSchedulingPolicy")
    return review({"metadata": {"name": "p"}, "spec": spec}, kind)


ANNOTATED = {"keptn.sh/workload": "w", "keptn.sh/version": "1"}
TERMS = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": HOLE}}
REVIEWS = {
    "dryRun": review({"metadata": {}, "spec": {}}, dryRun=HOLE),
    "userInfo": review({"metadata": {}, "spec": {}}, userInfo={"groups": HOLE}),
    "userInfo of a version": review(
        {"metadata": {}},
        ("lifecycle.keptn.sh", "v1", "KeptnAppVersion"),
        operation="UPDATE",
        oldObject={"metadata": {}},
        userInfo={"groups": HOLE},
    ),
    "unknown field": pod(futureField=HOLE),
    "labels": pod({"labels": HOLE}),
    "annotations": pod({"annotations": HOLE}),
    "ownerReferences": pod({"ownerReferences": HOLE}),
    "schedulingGates": pod({"annotations": ANNOTATED}, schedulingGates=HOLE),
    "nodeSelector": pod(nodeSelector=HOLE),
    "tolerations": pod(tolerations=HOLE),
    "affinity": pod(affinity={"nodeAffinity": TERMS}),
    "containers": pod({"annotations": ANNOTATED}, containers=HOLE),
    "env": pod({"annotations": ANNOTATED}, containers=[{"name": "a", "env": HOLE}]),
    "labels of a template": template({"labels": HOLE}),
    "annotations of a template": template({"annotations": HOLE}),
    "selector of a template": template(nodeSelector=HOLE),
    "malformed pod": pod({"labels": 5, "annotations": ANNOTATED}, schedulingGates=HOLE),
    "workloads": of_keptn("KeptnApp", {"version": "1", "workloads": HOLE}),
    "objectives": of_keptn("KeptnEvaluationDefinition", {"objectives": HOLE}),
    "tolerations of a policy": of_policy({"podSelector": {}, "tolerations": HOLE}),
    "selector of a policy": of_policy({"podSelector": {"matchLabels": HOLE}}),
}


@pytest.fixture(scope="module")
def engine():
    return engine_of((), cluster_policy("all", tolerations=[{"operator": "Exists"}]))


def peak_of(call):
    """The bytes that a call takes at most beside what there was."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        call()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("items", [*ITEMS, "keys"])
@pytest.mark.parametrize("place", REVIEWS)
def test_a_hostile_review_takes_few_times_its_bytes(engine, place, items):
    body = json.dumps(REVIEWS[place]).encode().replace(b'"hole"', filling(items))
    least = OWNED if place in {"affinity", "tolerations"} else LEAST
    assert peak_of(lambda: answer(body, engine)) <= 8 * len(body) + least


def conversion_of(version="v1alpha1", *, desired="v1", **obj):
    whole = {
        "apiVersion": f"lifecycle.keptn.sh/{version}",
        "kind": "KeptnAppVersion",
        "metadata": {"name": "a", "namespace": "ns1"},
        "spec": {"version": "1"},
        **obj,
    }
    request = {"uid": "1", "desiredAPIVersion": f"lifecycle.keptn.sh/{desired}", "objects": [whole]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": request,
    }


CONVERSIONS = {
    "unknown field": conversion_of(future=HOLE),
    "unknown field of the spec": conversion_of(spec={"x": HOLE}),
    "spec": conversion_of(spec=HOLE),
    "metadata": conversion_of(metadata=HOLE),
    "annotations": conversion_of(metadata={"name": "a", "annotations": HOLE}),
    "workloads": conversion_of(spec={"version": "1", "workloads": HOLE}),
    "version": conversion_of("v1", desired="v1alpha1", spec={"version": HOLE, "revision": 5}),
    "states": conversion_of(status={"preDeploymentTaskStatus": HOLE}),
    "promotion": conversion_of("v1", desired="v1alpha3", spec={"promotionTasks": HOLE}),
}


@pytest.mark.parametrize("items", [*ITEMS, "keys"])
@pytest.mark.parametrize("place", CONVERSIONS)
def test_a_hostile_conversion_takes_few_times_its_bytes(place, items):
    body = json.dumps(CONVERSIONS[place]).encode().replace(b'"hole"', filling(items))
    assert peak_of(lambda: asyncio.run(conversion.answer(body))) <= 8 * len(body) + LEAST


@pytest.mark.parametrize("items", [*ITEMS, "keys"])
def test_hostile_objects_of_a_conversion_take_few_times_their_bytes(items):
    body = json.dumps(conversion_of()).encode()
    head, _, rest = body.partition(b'"objects": [')
    body = head + b'"objects": ' + filling(items) + b"}}"
    assert rest
    assert peak_of(lambda: asyncio.run(conversion.answer(body))) <= 8 * len(body) + LEAST


@pytest.mark.parametrize("items", [*ITEMS, "keys"])
def test_hostile_json_in_an_annotation_takes_few_times_its_bytes(items):
    text = f'{{"spec": {{"promotionTasks": {filling(items).decode()}}}}}'
    annotations = {"lifecycle.harbourmaster.dev/unconverted": text}
    body = json.dumps(conversion_of(metadata={"name": "a", "annotations": annotations})).encode()
    assert peak_of(lambda: asyncio.run(conversion.answer(body))) <= 8 * len(body) + LEAST
