"""Properties of every pod and every set of policies, on random ones.

``make test`` runs 20,000 cases of each property, ``make fuzz`` a million in all.
"""

from __future__ import annotations

import copy
import json
import random

import jsonpatch
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.policies.index import policy_set
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import MUTATED, UNCHANGED, UNMATCHED
from helpers.oracles import admits, all_nodes, decode_patch, should_admit
from helpers.properties import TIMEOUT, cases, pod_specs, policies, with_unknown_fields

OWNED = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
KINDS = {
    "Pod": ("", "/spec"),
    "Deployment": ("apps", "/spec/template/spec"),
    "CronJob": ("batch", "/spec/jobTemplate/spec/template/spec"),
}
NODES = list(all_nodes())

many = settings(max_examples=cases(20000))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT)]


def build(kind, spec):
    pod = {"metadata": {"labels": {"app": "a"}}, "spec": spec}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, **pod}
    if kind == "CronJob":
        return {"kind": kind, "spec": {"jobTemplate": {"spec": {"template": pod}}}}
    return {"apiVersion": "apps/v1", "kind": kind, "spec": {"template": pod}}


def spec_of(document, pointer):
    for token in pointer.split("/")[1:]:
        document = document[token]
    return document


def run(kind, document, policy_manifests, **options):
    group, _ = KINDS[kind]
    request = {
        "uid": "u",
        "kind": {"group": group, "version": "v1", "kind": kind},
        "namespace": "ns1",
        "operation": "CREATE",
        "object": document,
    }
    body = json.dumps({"request": request}).encode()
    snapshot = Snapshot(policy_set(read_policy(policy)[0] for policy in policy_manifests))
    result, decision = answer(body, Engine(snapshot, AdmissionSettings(**options)))
    return json.loads(result)["response"], decision.verdict


def in_order(policy_manifests):
    return sorted(
        policy_manifests,
        key=lambda p: (p["kind"] != "ClusterPodSchedulingPolicy", p["metadata"]["name"]),
    )


def markers(value):
    return set(json.dumps(value).split('"futureField": "')[1:])


def marker_names(value):
    return {text.partition('"')[0] for text in markers(value)}


@many
@given(
    kind=st.sampled_from(list(KINDS)),
    spec=pod_specs,
    policy_manifests=policies(),
    conflict=st.sampled_from(["and", "skip"]),
    data=st.data(),
)
def test_patches_are_idempotent_stable_bounded_and_lossless(
    kind, spec, policy_manifests, conflict, data
):
    before = with_unknown_fields(build(kind, spec), data.draw)
    response, decision = run(kind, before, policy_manifests, on_required_affinity_conflict=conflict)
    assert response["allowed"]
    assert decision.outcome in {MUTATED, UNCHANGED, UNMATCHED}
    operations = decode_patch(response)

    pointer = KINDS[kind][1]
    owned = tuple(f"{pointer}/{field}" for field in OWNED)
    for operation in operations:
        assert operation["op"] == "add"
        path = operation["path"]
        assert any(path == field or path.startswith(f"{field}/") for field in owned)

    after = jsonpatch.apply_patch(copy.deepcopy(before), operations)
    stripped = [copy.deepcopy(document) for document in (before, after)]
    for document in stripped:
        for field in OWNED:
            spec_of(document, pointer).pop(field, None)
    assert stripped[0] == stripped[1]
    assert marker_names(before) <= marker_names(after)

    again, _ = run(kind, after, policy_manifests, on_required_affinity_conflict=conflict)
    assert "patch" not in again

    shuffled = list(policy_manifests)
    random.Random(0).shuffle(shuffled)  # noqa: S311
    assert run(kind, before, shuffled, on_required_affinity_conflict=conflict)[0] == response


@many
@given(kind=st.sampled_from(list(KINDS)), spec=pod_specs, policy_manifests=policies())
def test_admissible_nodes_are_the_conjunction(kind, spec, policy_manifests):
    before = build(kind, spec)
    response, _ = run(kind, before, policy_manifests)
    after = jsonpatch.apply_patch(copy.deepcopy(before), decode_patch(response))
    result = spec_of(after, KINDS[kind][1])
    ordered = in_order(policy_manifests)
    assert NODES
    for name, labels in NODES:
        assert admits(result, name, labels) == should_admit(spec, ordered, name, labels)
