"""Tests of reviews that cannot be decided: no pod passes a gate by that (decision D7)."""

from __future__ import annotations

import copy
import json
import random

import jsonpatch
import pytest

from harbourmaster.api.decoding import MalformedError
from harbourmaster.webhook import handlers
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.gating import GateRules
from harbourmaster.webhook.handlers import answer_failed
from harbourmaster.webhook.review import ReviewBody
from harbourmaster.webhook.verdict import DENIED, GATED, SKIPPED
from helpers import admission
from helpers.admission import (
    CRITICAL,
    GATE,
    PARENT,
    THEIRS,
    admit,
    ask,
    engine_of,
    keys,
    owner,
    pod,
)
from helpers.objects import cluster_policy, review, workload

TRACKED = keys(workload="waiter", version="0.4", app="shop")


def failed(document, engine=None, **request):
    return admission.answer_after_failure(document, engine or engine_of(), **request)


@pytest.mark.parametrize("annotations", [None, {}, {"a": "b"}, TRACKED])
@pytest.mark.parametrize("gates", [None, [], [THEIRS], [GATE]])
def test_the_fixed_patch_adds_the_gate_and_the_mark(annotations, gates):
    document = pod(annotations)
    if gates is not None:
        document["spec"]["schedulingGates"] = gates
    answer = failed(document)
    theirs = [gate for gate in gates or () if gate != GATE]
    assert answer.gates == [*theirs, GATE]
    assert answer.annotations == {**(annotations or {}), PARENT: "unresolved"}
    assert answer.verdict.outcome == GATED
    assert answer.verdict.codes == ("internal-error",)
    assert "it failed" in answer.response["warnings"][0]
    assert "controller has decided" in answer.response["auditAnnotations"]["internal-error"]


def test_it_changes_nothing_a_second_time():
    once = failed(pod())
    assert failed(once.after).is_untouched


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(("metadata", "ownerReferences", [{"kind": 3}]), id="owners"),
        pytest.param(("metadata", "ownerReferences", "x"), id="owners-text"),
        pytest.param(("metadata", "annotations", {"a": 1}), id="annotations"),
        pytest.param(("metadata", "labels", [1]), id="labels"),
        pytest.param(("spec", "containers", [{"name": 3}]), id="containers"),
        pytest.param(("spec", "affinity", []), id="affinity"),
        pytest.param(("spec", "tolerations", "x"), id="tolerations"),
        pytest.param(("spec", "nodeSelector", {"a": 1}), id="selector"),
    ],
)
def test_a_field_of_a_wrong_type_is_no_way_past_the_gate(field):
    document = pod(keys(workload="w"))
    document[field[0]][field[1]] = field[2]
    answer = admit(document, (), cluster_policy(nodeSelector={"a": "b"}))
    assert answer.gates == [GATE]
    assert answer.annotations[PARENT] == "unresolved"
    assert answer.verdict.codes == ("object-malformed",)


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(("metadata", "annotations", ["x"]), id="annotations"),
        pytest.param(("metadata", "annotations", "x"), id="annotations-text"),
        pytest.param(("spec", "schedulingGates", {"name": "x"}), id="gates"),
        pytest.param(("spec", "schedulingGates", "x"), id="gates-text"),
    ],
)
def test_where_no_patch_fits_the_pod_is_denied(field):
    document = pod(keys(workload="w"))
    document[field[0]][field[1]] = field[2]
    answer = failed(document)
    assert not answer.response["allowed"]
    assert answer.response["status"]["code"] == 403
    assert "not even a gate could be added" in answer.response["status"]["reason"]
    assert field[1] in answer.response["status"]["reason"]
    assert answer.verdict.outcome == DENIED
    assert answer.verdict.codes == ("internal-error",)


@pytest.mark.parametrize("part", ["metadata", "spec"])
def test_a_pod_without_one_of_its_parts_is_denied(part):
    document = pod(TRACKED)
    document[part] = "x"
    assert failed(document).verdict.outcome == DENIED


@pytest.mark.claim("O3")
def test_whatever_goes_wrong_with_the_fixed_patch_the_pod_is_denied(monkeypatch):
    def raise_error(*_):
        raise RuntimeError("worse")

    monkeypatch.setattr(handlers, "fixed_gating", raise_error)
    answer = failed(pod(TRACKED))
    assert answer.verdict.outcome == DENIED
    assert "internal error" in answer.response["status"]["reason"]
    assert "worse" not in json.dumps(answer.response)


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(pod(TRACKED, owners=[]), id="bare"),
        pytest.param(pod(TRACKED, owners=[owner("Job")]), id="job"),
        pytest.param(pod(TRACKED | keys(scheduling_gate_removed="true")), id="released"),
        pytest.param(pod(TRACKED, nodeName="n1"), id="bound"),
        pytest.param(workload("Deployment"), id="template"),
        pytest.param(workload("Job"), id="job-template"),
        pytest.param(cluster_policy(), id="policy"),
    ],
)
def test_what_certainly_need_not_wait_passes_with_a_warning(document):
    answer = failed(document)
    assert answer.is_untouched
    assert answer.verdict.outcome == SKIPPED
    assert answer.verdict.codes == ("internal-error",)
    assert answer.response["warnings"] == ["harbourmaster: it failed"]


def test_critical_add_ons_pass_even_then():
    document = pod(TRACKED, **CRITICAL)
    there = {"engine": engine_of(namespace="kube-system"), "namespace": "kube-system"}
    assert failed(document, **there).is_untouched
    document["spec"]["priority"] = "high"
    assert failed(document, **there).gates == [GATE]


@pytest.mark.parametrize(
    "request_fields",
    [{"operation": "UPDATE"}, {"operation": "DELETE"}, {"subResource": "status"}],
)
def test_only_creations_get_the_fixed_patch(request_fields):
    assert failed(pod(TRACKED), **request_fields).is_untouched


def test_nothing_is_patched_at_validation():
    question = json.dumps(review(pod(TRACKED))).encode()
    result, _ = answer_failed(
        ReviewBody(question), engine_of(), "internal-error", "x", may_patch=False
    )
    assert b'"patch"' not in result
    assert b'"allowed":true' in result


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(engine_of(namespaces=[{"metadata": {"name": "ns1"}}]), id="no gates"),
        pytest.param(engine_of(namespaces=[]), id="unknown"),
        pytest.param(engine_of(deniedNamespaces=["ns1"]), id="denied"),
        pytest.param(engine_of(features=["policies"]), id="off"),
    ],
)
def test_elsewhere_a_failure_stops_nobody(engine):
    answer = failed(pod(TRACKED), engine)
    assert answer.is_untouched
    assert answer.verdict.outcome == SKIPPED


@pytest.mark.parametrize("body", [b"", b"nonsense", b"{}", b'{"request": {"object": 3}}'])
def test_a_body_that_is_no_review_still_gets_an_answer(body):
    result, _ = answer_failed(ReviewBody(body), engine_of(), "internal-error", "it failed")
    assert json.loads(result)["response"]["allowed"]


def test_a_defect_of_ours_leads_to_the_fixed_patch(monkeypatch):
    """The review is answered again without deciding, as the server does it."""

    def raise_error(*_, **__):
        raise RuntimeError("a defect")

    monkeypatch.setattr(Engine, "match", raise_error)
    engine = engine_of()
    with pytest.raises(RuntimeError):
        ask(review(pod(TRACKED)), engine)
    assert failed(pod(TRACKED), engine).gates == [GATE]


VALUES = [None, "", "x", 3, -1.5, True, [], {}, ["x"], {"a": "b"}, {"a": 1}, [{"name": "x"}]]
FIELDS = [
    ("metadata", field)
    for field in ("annotations", "labels", "ownerReferences", "deletionTimestamp", "name")
] + [
    ("spec", field)
    for field in (
        "schedulingGates",
        "nodeName",
        "containers",
        "tolerations",
        "priority",
        "priorityClassName",
        "affinity",
        "template",
    )
]


def test_random_pods_are_gated_or_denied_and_every_patch_applies():
    """Whatever types the fields have, a pod with a supported owner never passes without a gate."""
    rng = random.Random(20_261_121)  # noqa: S311 - a fixed seed
    outcomes = set()
    for _ in range(600):
        document = pod(rng.choice([None, TRACKED, {}]))
        for part, field in rng.sample(FIELDS, rng.randrange(4)):
            document[part][field] = copy.deepcopy(rng.choice(VALUES))
        for namespace in ("ns1", "kube-system"):
            engine = engine_of(namespace=namespace)
            question = review(document, namespace=namespace)
            after_failure = failed(document, engine, namespace=namespace)
            for answer in (after_failure, ask(question, engine)):
                outcomes.add(answer.verdict.outcome)
                check(answer)
    assert outcomes >= {GATED, DENIED, SKIPPED}


def check(answer):
    if not answer.response["allowed"]:
        assert answer.verdict.outcome == DENIED
        return
    before, after = answer.before, jsonpatch.apply_patch(answer.before, answer.operations)
    for part in ("metadata", "spec"):
        for field, value in before[part].items():
            if field not in {"annotations", "schedulingGates"}:
                assert after[part][field] == value
    gates = after["spec"].get("schedulingGates")
    is_gated = isinstance(gates, list) and GATE in gates
    metadata, spec = before["metadata"], before["spec"]
    need_not = (
        not metadata["ownerReferences"]
        or metadata["ownerReferences"] == [{"name": "x"}]
        or (isinstance(spec.get("nodeName"), str) and spec["nodeName"])
        or isinstance(metadata.get("deletionTimestamp"), str)
    )
    assert is_gated or need_not, answer


def test_an_unreadable_object_is_told_in_one_line():
    with pytest.raises(MalformedError) as raised:
        handlers.fixed_gating(b"[", "ns1", None, GateRules())
    assert "\n" not in str(raised.value)
