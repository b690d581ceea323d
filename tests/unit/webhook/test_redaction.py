from __future__ import annotations

import json

import pytest

from harbourmaster.telemetry.metrics import NOT_KEPT, TOO_LARGE, UNFAITHFUL, WRITTEN
from harbourmaster.webhook.cases import answer_case
from harbourmaster.webhook.redaction import REDACTED, blank, redact
from helpers.admission import (
    CANARY,
    asked_by,
    engine_of,
    family,
    keys,
    owner,
    pod,
    record_of,
    replayed_response,
    secret_annotations,
    secretive,
)
from helpers.objects import cluster_policy, policy, review, workload

KINDS = ["Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"]
POLICIES = (
    cluster_policy("a", nodeSelector={"disk": "ssd"}),
    policy("b", tolerations=[{"key": "pool", "operator": "Exists"}]),
)


def pod_of(document):
    """The pod, or the pod template, of an object."""
    if document["kind"] == "Pod":
        return document
    spec = document["spec"]
    return spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec["template"]


def with_secrets(document):
    pod = pod_of(document)
    pod["spec"] = secretive(pod["spec"])
    held = [pod["metadata"], document["metadata"]]
    if document["kind"] == "CronJob":
        held.append(document["spec"]["jobTemplate"].setdefault("metadata", {}))
    for metadata in held:
        metadata["annotations"] = secret_annotations()
    managed = {"manager": "m", "fieldsV1": {f'v:"{CANARY}"': {}}}
    document["metadata"]["managedFields"] = [managed]
    document["status"] = {"message": CANARY}
    return document


def faithful(question, engine, **options):
    """The line of a review, by which it is answered again and which has no secret; the response."""
    line, response, outcome = record_of(question, engine, **options)
    assert outcome == WRITTEN
    assert CANARY.encode() not in line
    assert replayed_response(line) == response
    return line, response


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.claim("K1")
def test_no_secret_of_a_workload_is_kept_and_the_answer_is_the_same(kind):
    question = review(with_secrets(workload(kind)), **asked_by())
    _, response = faithful(question, engine_of((), *POLICIES))
    assert b'"patch"' in response


@pytest.mark.parametrize("kind", KINDS)
def test_what_decides_and_what_references_a_secret_is_kept(kind):
    document = with_secrets(workload(kind, nodeSelector={"a": "b"}, schedulerName="s2"))
    kept = redact(review(document))["request"]["object"]
    pod = pod_of(kept)
    assert pod["metadata"]["labels"] == {"app": "web"}
    assert pod["metadata"]["annotations"]["keptn.sh/version"] == "1.0"
    assert pod["metadata"]["annotations"]["example.com/token"] == REDACTED
    spec = pod["spec"]
    assert (spec["nodeSelector"], spec["schedulerName"]) == ({"a": "b"}, "s2")
    variables = spec["containers"][0]["env"]
    assert variables == [
        {"name": "TOKEN", "value": REDACTED},
        {"name": "REF", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
    ]
    assert spec["containers"][0]["envFrom"] == [{"secretRef": {"name": "s"}}]


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap", "Widget"])
def test_of_an_object_that_nobody_handles_only_its_name_is_kept(kind):
    document = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": "one", "annotations": secret_annotations()},
        "data": {"password": CANARY},
        "stringData": {"password": CANARY},
    }
    line, _ = faithful(review(document, **asked_by()), engine_of())
    kept = json.loads(line)["review"]["request"]["object"]
    assert kept == {"apiVersion": "v1", "kind": kind, "metadata": {"name": "one"}}


def test_a_kind_that_is_only_checked_is_not_recorded():
    document = {
        "apiVersion": "lifecycle.keptn.sh/v1",
        "kind": "KeptnTaskDefinition",
        "metadata": {"name": "one"},
        "spec": {"deno": {"inline": {"code": CANARY}}},
    }
    assert record_of(review(document), engine_of())[::2] == (None, NOT_KEPT)


@pytest.mark.parametrize("value", ["spoilt!", "good"])
def test_a_policy_is_kept_with_what_it_is_judged_by(value):
    document = cluster_policy(nodeSelector={"disk": value})
    document["metadata"]["annotations"] = {"example.com/token": CANARY}
    _, response = faithful(review(document), engine_of())
    assert json.loads(response)["allowed"] is (value == "good")


def test_a_version_that_was_made_of_secret_values_is_answered_again():
    document = pod(keys(workload="w"))
    document["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": CANARY}]
    line, response = faithful(review(document), engine_of(family(), *POLICIES))
    case = json.loads(line)
    # The answer holds the hash as well; without it replay gives another answer.
    del case["hash"]
    assert replayed_response(json.dumps(case).encode()) != response


def test_a_hash_that_the_answer_does_not_have_is_not_kept():
    document = pod(keys(workload="w", version="1"))
    document["spec"]["containers"][0]["env"] = [{"name": "TOKEN", "value": CANARY}]
    line, *_ = record_of(review(document), engine_of(family(), *POLICIES))
    assert "hash" not in json.loads(line)


def test_what_a_pod_inherits_is_kept_and_nothing_else_of_its_owners():
    inherited = {**keys(workload="w", version="1"), "example.com/token": CANARY}
    line, _ = faithful(review(pod()), engine_of(family(inherited)))
    assert {parent["kind"] for parent in json.loads(line)["parents"]} == {
        "ReplicaSet",
        "Deployment",
    }


@pytest.mark.parametrize(
    "question",
    [
        pytest.param(review(pod(owners=[owner("StatefulSet", "gone")])), id="owner unknown"),
        pytest.param(review(workload(), namespace="elsewhere"), id="namespace unknown"),
        pytest.param(review(workload(), operation="DELETE"), id="deletion"),
        pytest.param(review(workload(tolerations="x")), id="malformed"),
        pytest.param(review(pod(labels={"app": 7})), id="malformed and gated"),
        pytest.param({"kind": "AdmissionReview", "request": {"uid": "1"}}, id="no object"),
        pytest.param({"kind": "AdmissionReview"}, id="no request"),
    ],
)
@pytest.mark.parametrize("may_patch", [True, False])
def test_every_answer_is_given_again(question, may_patch):
    assert faithful(question, engine_of(family(), *POLICIES), may_patch=may_patch)


def test_a_policy_that_is_broken_warns_again():
    broken = cluster_policy("broken", nodeSelector={"disk": "not a value!"})
    _, response = faithful(review(workload()), engine_of((), *POLICIES, broken))
    assert b"broken" in response


def test_an_answer_that_can_not_be_given_again_is_no_line():
    # Containers of that size are not hashed here, but without the values they are small.
    document = pod(keys(workload="w"))
    document["spec"]["containers"][0]["env"] = [{"name": "A", "value": "x" * 140_000}]
    line, _, outcome = record_of(review(document), engine_of(family()))
    assert (line, outcome) == (None, UNFAITHFUL)


@pytest.mark.parametrize(("keys", "expected"), [(100, WRITTEN), (450, TOO_LARGE)])
def test_policies_that_would_hold_up_others_are_not_replayed(keys, expected, monkeypatch):
    policies = [
        cluster_policy(
            f"p{index}",
            tolerations=[{"key": f"{index}-{key}", "operator": "Exists"} for key in range(keys)],
        )
        for index in range(4)
    ]
    replays = []
    monkeypatch.setattr(
        "harbourmaster.webhook.recording.answer_case",
        lambda case: replays.append(case) or answer_case(case),
    )
    assert record_of(review(workload("Pod")), engine_of((), *policies))[2] == expected
    assert len(replays) == (expected == WRITTEN)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("secret", REDACTED),
        ("", ""),
        (None, None),
        (True, False),
        (123, 0),
        (1.5, 0.5),
        (["secret"], []),
        ({"secret": "secret"}, {}),
    ],
)
def test_a_value_gives_way_to_one_of_its_type(value, expected):
    blanked = blank(value)
    assert (blanked, type(blanked)) == (expected, type(expected))
