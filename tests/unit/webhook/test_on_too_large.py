"""Pods that are too large for a policy that must not be skipped."""

from __future__ import annotations

import json

import pytest
import yaml

from harbourmaster.cli.main import main
from harbourmaster.policies.model import ON_TOO_LARGE
from harbourmaster.webhook.snapshot import Namespace
from harbourmaster.webhook.verdict import DENIED, GATED, INVALID, MUTATED, SKIPPED, UNCHANGED, VALID
from helpers.admission import ask, engine_of, keys, pod, policy_engine, record_of, replayed_response
from helpers.objects import cluster_policy, policy, required, review, workload
from helpers.oracles import NODE_REQUIRED

POOLS = required({"pool": "a"}, {"pool": "b"})


def with_annotation(document, value="Deny"):
    document["metadata"]["annotations"] = {ON_TOO_LARGE: value, "example.com/team": "secret"}
    return document


def harmless(count=300, length=1):
    """Node affinity that every node meets, with ``count`` terms."""
    terms = [
        {"matchExpressions": [{"key": f"k{i}{'x' * length}", "operator": "DoesNotExist"}]}
        for i in range(count)
    ]
    return {"nodeAffinity": {NODE_REQUIRED: {"nodeSelectorTerms": terms}}}


MANY = {"affinity": harmless()}
LONG = {"affinity": required({"a": "x" * 260 * 1024})}
HUGE = {"affinity": harmless(count=9000, length=100)}
PLATFORM = with_annotation(cluster_policy("platform", affinity=POOLS))
OWN = with_annotation(policy("own", affinity=POOLS))
PODS = {"many terms": MANY, "long term": LONG, "huge": HUGE}


@pytest.mark.claim("O24")
@pytest.mark.parametrize("spec", PODS.values(), ids=PODS)
@pytest.mark.parametrize("asked", [PLATFORM, OWN], ids=["cluster", "namespaced"])
def test_a_pod_that_is_too_large_for_a_policy_that_denies_is_refused(spec, asked):
    answered = ask(review(workload("Pod", **spec)), policy_engine(asked))
    assert answered.verdict.outcome == DENIED
    assert not answered.response["allowed"]
    said = answered.response["status"]["reason"]
    name = asked["metadata"]["name"] if asked is PLATFORM else "ns1/own"
    assert said.startswith(f"pods without {asked['kind']} {name} are refused: ")
    assert said.endswith(
        "give the pod fewer or shorter entries, or set harbourmaster.dev/on-too-large of the "
        "policy to Warn"
    )
    assert "\n" not in said


@pytest.mark.parametrize("value", ["Warn", "deny", ""])
@pytest.mark.parametrize("spec", PODS.values(), ids=PODS)
def test_any_other_value_warns(spec, value):
    asked = with_annotation(cluster_policy(affinity=POOLS), value)
    answered = ask(review(workload("Pod", **spec)), policy_engine(asked))
    assert answered.response["allowed"]
    assert answered.response["warnings"]


def test_only_matching_valid_policies_count_and_not_the_annotations_of_others():
    engine = policy_engine(
        with_annotation(cluster_policy("a", affinity=POOLS, pods={"app": "other"})),
        with_annotation(cluster_policy("b", affinity=POOLS, nodeSelector={"no key!": "x"})),
        cluster_policy("c", affinity=POOLS),
    )
    document = with_annotation(workload("Pod", **MANY))
    assert ask(review(document), engine).verdict.outcome == UNCHANGED
    elsewhere = engine_of((), PLATFORM, namespaces=[{"metadata": {"name": "ns1"}}])
    assert ask(review(document, namespace="ns2"), elsewhere).verdict.outcome == SKIPPED
    assert ask(review(document), policy_engine(PLATFORM, features=[])).response["allowed"]


@pytest.mark.parametrize("spec", [MANY, HUGE], ids=["many terms", "huge"])
def test_what_is_never_changed_is_not_refused(spec):
    document = workload("Pod", **spec)
    engine = policy_engine(PLATFORM)
    assert ask(review(document, operation="UPDATE"), engine).response["allowed"]
    document["metadata"]["deletionTimestamp"] = "2026-03-01T12:00:00Z"
    assert ask(review(document), engine).response["allowed"]


def test_a_template_is_allowed_and_warns_that_its_pods_are_refused():
    answered = ask(review(workload(**MANY)), policy_engine(PLATFORM))
    assert answered.response["allowed"]
    (warning,) = answered.response["warnings"]
    assert "pods without ClusterPodSchedulingPolicy platform are refused: " in warning
    assert warning.endswith("to Warn")
    assert ask(review(workload(**HUGE)), policy_engine(PLATFORM)).verdict.outcome == SKIPPED


def test_a_pod_is_refused_for_the_policy_that_denies_whatever_else_applies():
    others = [
        cluster_policy("a", nodeSelector={"disk": "ssd"}),
        cluster_policy("b", affinity=POOLS),
    ]
    engine = policy_engine(*others, PLATFORM)
    reason = ask(review(workload("Pod", **MANY)), engine).response["status"]["reason"]
    assert "ClusterPodSchedulingPolicy platform" in reason
    assert ask(review(workload("Pod")), engine).verdict.outcome == MUTATED


def test_a_pod_that_would_wait_is_refused_too():
    document = pod(keys(workload="web", version="1"), **MANY)
    assert ask(review(document), engine_of((), PLATFORM)).verdict.outcome == DENIED
    assert ask(review(pod(keys(workload="web", version="1"))), engine_of((), PLATFORM)).gates
    huge = pod(keys(workload="web", version="1"), **HUGE)
    assert ask(review(huge), engine_of((), PLATFORM)).verdict.outcome == DENIED
    assert ask(review(huge), engine_of(())).verdict.outcome == GATED


@pytest.mark.parametrize("asked", [PLATFORM, OWN], ids=["cluster", "namespaced"])
@pytest.mark.parametrize(("value", "outcome"), [("Warn", VALID), ("Deny", VALID), ("x", INVALID)])
def test_a_policy_with_another_value_is_refused(asked, value, outcome):
    document = {**asked, "metadata": {**asked["metadata"], "annotations": {ON_TOO_LARGE: value}}}
    answered = ask(review(document), policy_engine())
    assert answered.verdict.outcome == outcome
    if outcome == INVALID:
        assert answered.response["status"]["reason"].startswith(
            "metadata.annotations[harbourmaster.dev/on-too-large]: Unsupported value: "
        )


def test_replay_answers_the_same():
    engine = engine_of((), PLATFORM, namespaces=[{"metadata": {"name": "ns1"}}])
    line, response, _ = record_of(review(workload("Pod", **MANY)), engine)
    assert not json.loads(response)["allowed"]
    assert replayed_response(line) == response
    assert b"secret" not in line
    line, response, _ = record_of(review(PLATFORM), engine)
    assert replayed_response(line) == response


@pytest.mark.parametrize("command", ["render", "replay", "why", "preview"])
def test_commands_say_the_same(tmp_path, capsys, command):
    policies, manifest = tmp_path / "policies.yaml", tmp_path / "pod.yaml"
    policies.write_text(yaml.safe_dump(PLATFORM))
    question = tmp_path / "review.json"
    document = workload("Pod", **MANY)
    document["metadata"]["namespace"] = "ns1"
    manifest.write_text(yaml.safe_dump(document))
    question.write_text(json.dumps(review(document)))
    given = ["--policies", str(policies)]
    code = main(
        {
            "render": ["render", *given, "-f", str(manifest)],
            "replay": ["replay", *given, str(question)],
            "why": ["why", *given, "-f", str(manifest)],
            "preview": ["preview", "-f", str(policies), f"--dump={manifest}"],
        }[command]
    )
    printed = capsys.readouterr()
    assert "pods without ClusterPodSchedulingPolicy platform are refused: " in (
        printed.out + printed.err
    )
    assert code == (1 if command == "render" else 0)


def test_namespaces_have_no_say():
    known = {"ns1": Namespace({ON_TOO_LARGE: "Deny"})}
    engine = policy_engine(cluster_policy(affinity=POOLS), namespaces=known)
    assert ask(review(workload("Pod", **MANY)), engine).response["allowed"]
