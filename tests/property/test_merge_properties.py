"""Properties of every merge of policies into a pod, and of what ``why`` reports about it.

The object is rebuilt from nothing but the contributions, by rules written here.
"""

from __future__ import annotations

import copy
import json
import random
import re

import jsonpatch
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.explain import CHANGES, OWN, ExplainedPolicy, explain
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.merge import MergeOptions, merge
from harbourmaster.policies.model import Policy
from harbourmaster.policies.pods import KINDS
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import MUTATED, UNCHANGED, UNMATCHED
from helpers.oracles import admits, all_nodes, decode_patch, should_admit
from helpers.properties import (
    TIMEOUT,
    cases,
    labels,
    pod_specs,
    policies,
    selectors,
    with_unknown_fields,
)

OWNED = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
WORKLOAD_KINDS = {
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
    group, _ = WORKLOAD_KINDS[kind]
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
    kind=st.sampled_from(list(WORKLOAD_KINDS)),
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

    pointer = WORKLOAD_KINDS[kind][1]
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
@given(kind=st.sampled_from(list(WORKLOAD_KINDS)), spec=pod_specs, policy_manifests=policies())
def test_admissible_nodes_are_the_conjunction(kind, spec, policy_manifests):
    before = build(kind, spec)
    response, _ = run(kind, before, policy_manifests)
    after = jsonpatch.apply_patch(copy.deepcopy(before), decode_patch(response))
    result = spec_of(after, WORKLOAD_KINDS[kind][1])
    ordered = in_order(policy_manifests)
    assert NODES
    for name, values in NODES:
        assert admits(result, name, values) == should_admit(spec, ordered, name, values)


explanations = settings(max_examples=cases(1000))
OPTIONS = st.builds(
    MergeOptions,
    treat_default_scheduler_as_unset=st.booleans(),
    treat_default_tolerations_as_unset=st.booleans(),
    skip_conflicts=st.booleans(),
    node_name_as_field=st.booleans(),
    waiting_scheduler=st.sampled_from(["", "s1"]),
    keeps_scheduler=st.booleans(),
)
STEP = re.compile(r'\.?([A-Za-z]+)|\["((?:[^"\\])*)"\]|\[(\d+)\]')
SHAPES = {("", "v1", "Pod"): ("spec",), ("apps", "v1", "Deployment"): ("spec", "template", "spec")}


@st.composite
def selecting_policies(draw):
    """Policies of which some select the pod and some don't; some are broken."""
    documents = draw(policies())
    for policy in documents:
        for name in ("podSelector", "namespaceSelector"):
            choice = draw(st.sampled_from(["all", "none", "some", "some", "broken"]))
            if choice == "none":
                del policy["spec"][name]
            elif choice == "some":
                policy["spec"][name] = draw(selectors)
            elif choice == "broken" and draw(st.booleans()):
                broken = {"key": "a", "operator": "Sometimes"}
                policy["spec"][name] = {"matchExpressions": [broken]}
    return documents


def document_of(kind, spec, found_labels):
    pod = {"metadata": {"labels": found_labels}, "spec": spec}
    if kind.name == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", **pod}
    return {"apiVersion": "apps/v1", "kind": kind.name, "spec": {"template": pod}}


def put(document, path, value):
    """Set one field by the path that people read, making what is missing on the way."""
    steps = [name or key if index == "" else int(index) for name, key, index in STEP.findall(path)]
    node = document
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        new = value if following is None else ([] if isinstance(following, int) else {})
        if isinstance(step, int):
            if step == len(node):
                node.append(new)
            elif following is None:
                assert node[step] == value, f"{path} is there already"
        elif following is None or node.get(step) is None:
            node[step] = new
        node = node[step]


def rebuild(document, steps, contributions):
    """Do what the contributions tell."""
    for contribution in contributions:
        if contribution.rule == "replaced" and ".tolerations[" in contribution.path:
            remove(document, steps, contribution.present)
    for contribution in contributions:
        if contribution.rule in CHANGES:
            put(document, contribution.path, copy.deepcopy(contribution.value))


def remove(document, steps, defaults):
    """Remove tolerations that the API server added."""
    for step in steps:
        document = document[step]
    document["tolerations"] = [item for item in document["tolerations"] if item not in defaults]


def owned_fields(document, steps):
    for step in steps:
        document = document[step]
    names = ("affinity", "nodeName", "nodeSelector", "schedulerName", "tolerations")
    return {name: document[name] for name in names if document.get(name) is not None}


@explanations
@given(
    kind=st.sampled_from(list(SHAPES)),
    spec=pod_specs,
    documents=selecting_policies(),
    pod_labels=labels,
    namespace=st.sampled_from(["ns1", "ns2"]),
    namespace_labels=labels,
    options=OPTIONS,
    data=st.data(),
)
def test_contributions_make_the_object_that_the_merge_makes(  # noqa: PLR0913, PLR0917 - drawn
    kind, spec, documents, pod_labels, namespace, namespace_labels, options, data
):
    steps, kind = SHAPES[kind], KINDS[kind]
    before = with_unknown_fields(document_of(kind, spec, pod_labels), data.draw)
    pod = kind.read(json.dumps(before).encode())
    sources = [msgspec.convert(document, Policy) for document in documents]
    candidates = [ExplainedPolicy(compile_policy(source), source) for source in sources]
    explained = explain(pod, kind.pointer, namespace, namespace_labels, candidates, options)

    everything = policy_set(candidate.compiled for candidate in candidates)
    matched = everything.match(namespace, namespace_labels, pod.labels)
    merged = merge(pod, kind.pointer, matched, options)
    after = jsonpatch.apply_patch(before, json.loads(msgspec.json.encode(merged.operations)))
    assert list(explained.operations) == merged.operations
    assert list(explained.warnings) == merged.warnings

    # The same policies match, in the same order, and only of the others is there a mismatch.
    told = [report for report in explained.policies if report.matched]
    assert [report.reference for report in told] == [policy.reference for policy in matched]
    assert len(explained.policies) == len(documents)
    for report in explained.policies:
        assert (report.mismatch is None) == report.matched
        if not report.matched:
            assert report.mismatch.path.startswith(("spec.", "metadata.namespace"))
            assert report.contributions == ()

    # Nothing but what is told was done, and all of it.
    rebuilt = copy.deepcopy(before)
    contributions = [contribution for report in told for contribution in report.contributions]
    rebuild(rebuilt, steps, contributions)
    assert owned_fields(rebuilt, steps) == owned_fields(after, steps)

    # Each field names what set it, and the object's own fields are unchanged.
    changed_by = {}
    for report in told:
        for contribution in report.contributions:
            if contribution.rule in CHANGES:
                changed_by.setdefault(contribution.path, set()).add(report.reference)
    for field in explained.fields:
        assert field.set_by
        assert set(field.set_by) - {OWN} == changed_by.get(field.path, set())
    assert set(changed_by) <= {field.path for field in explained.fields}


@explanations
@given(spec=pod_specs, documents=selecting_policies(), pod_labels=labels, data=st.data())
def test_a_second_look_finds_all_that_the_first_one_added(spec, documents, pod_labels, data):
    kind = KINDS["", "v1", "Pod"]
    before = with_unknown_fields(document_of(kind, spec, pod_labels), data.draw)
    sources = [msgspec.convert(document, Policy) for document in documents]
    candidates = [ExplainedPolicy(compile_policy(source), source) for source in sources]

    def explained(document):
        pod = kind.read(json.dumps(document).encode())
        return explain(pod, kind.pointer, "ns1", {}, candidates, MergeOptions())

    first = explained(before)
    operations = json.loads(msgspec.json.encode(first.operations))
    second = explained(jsonpatch.apply_patch(before, operations))
    assert not any(report.changes for report in second.policies)
    there = {
        place(contribution)
        for report in second.policies
        for contribution in report.contributions
        if contribution.rule == "already-there"
    }
    for report in first.policies:
        for contribution in report.contributions:
            if contribution.rule in CHANGES:
                assert place(contribution) in there


def place(contribution):
    """The place of a contribution: its path, or its value in a list that may hold duplicates."""
    path, _, index = contribution.path.rpartition("[")
    if index[:-1].isdigit():
        return path, json.dumps(contribution.value, sort_keys=True)
    return contribution.path
