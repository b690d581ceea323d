"""S16, S17 and S19: objects that are left alone or skipped visibly, and strict matching."""

from __future__ import annotations

import json

import pytest

from harbourmaster.policies.index import policy_set
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Namespace, Snapshot
from harbourmaster.webhook.sources import read_policy
from helpers.objects import RESOURCES, body, cluster_policy, policy, required, workload
from helpers.oracles import NODE_REQUIRED, apply_patch, decode_patch

OWN = "harbourmaster-system"
ANY = cluster_policy(
    nodeSelector={"disk": "ssd"},
    tolerations=[{"key": "pool", "operator": "Exists"}],
    affinity=required({"pool": "etcd"}),
)


def engine(*policies, namespaces=("web", OWN)):
    known = {name: Namespace({"kubernetes.io/metadata.name": name}) for name in namespaces}
    compiled = policy_set(read_policy(policy)[0] for policy in policies)
    return Engine(Snapshot(compiled, known, frozenset((OWN,))), AdmissionSettings())


def respond(document, *policies, namespace="web", **request):
    question = body(document, namespace=namespace, **request)
    result, decision = answer(question, engine(*(policies or (ANY,))))
    return json.loads(result)["response"], decision.verdict


def test_s16_a_mirror_pod_is_the_kubelets():
    pod = workload("Pod")
    pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "3f1c"}
    response, verdict = respond(pod)
    assert response["allowed"]
    assert "patch" not in response
    assert verdict.outcome == "unmatched"
    # The annotation of any other name is no protection.
    pod["metadata"]["annotations"] = {"example.com/config.mirror": "3f1c"}
    assert "patch" in respond(pod)[0]


@pytest.mark.parametrize("kind", RESOURCES)
def test_s16_our_own_namespace_is_never_touched(kind):
    response, verdict = respond(workload(kind), namespace=OWN)
    assert response["allowed"]
    assert "patch" not in response
    assert "warnings" not in response
    assert verdict.outcome == "unmatched"
    assert "patch" in respond(workload(kind))[0]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "CronJob"])
def test_s16_an_object_being_deleted_is_left_alone(kind):
    document = workload(kind)
    assert "patch" in respond(document, operation="UPDATE")[0]
    document["metadata"]["deletionTimestamp"] = "2026-11-21T10:00:00Z"
    assert "patch" not in respond(document, operation="UPDATE")[0]


@pytest.mark.parametrize("kind", RESOURCES)
def test_s16_a_dry_run_gets_the_same_answer(kind):
    assert respond(workload(kind), dryRun=True)[0] == respond(workload(kind))[0]


def test_s16_a_daemonset_pod_keeps_its_node():
    node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-7"]}]}
    affinity = {"nodeAffinity": {NODE_REQUIRED: {"nodeSelectorTerms": [node]}}}
    pod = workload("Pod", affinity=affinity)
    response, _ = respond(pod)
    (term,) = apply_patch(pod, response)["spec"]["affinity"]["nodeAffinity"][NODE_REQUIRED][
        "nodeSelectorTerms"
    ]
    assert term["matchFields"] == node["matchFields"]
    assert term["matchExpressions"] == [{"key": "pool", "operator": "In", "values": ["etcd"]}]


@pytest.mark.claim("O3")
def test_s17_a_namespace_that_is_not_known_is_skipped_visibly():
    response, verdict = respond(workload("Pod"), namespace="unheard")
    assert response["allowed"]
    assert "patch" not in response
    assert response["warnings"] == ['harbourmaster: namespace "unheard" is not known']
    assert response["auditAnnotations"] == {"namespace-unknown": 'namespace "unheard" is not known'}
    assert verdict.codes == ("namespace-unknown",)


LABEL_VALUES = {
    "equal": ("web", True),
    "prefix": ("we", False),
    "suffix": ("eb", False),
    "substring": ("e", False),
    "longer": ("web2", False),
    "case": ("Web", False),
    "space": ("web ", False),
    "wide letters": ("\uff57\uff45\uff42", False),
    "combining": ("we\u0301b", False),
    "zero width": ("web\u200b", False),
    "empty": ("", False),
    "glob": ("*", False),
    "pattern": ("w.b", False),
}


@pytest.mark.parametrize("name", LABEL_VALUES)
def test_s19_label_values_are_compared_whole(name):
    value, is_equal = LABEL_VALUES[name]
    selecting = cluster_policy(pods={"app": "web"}, nodeSelector={"disk": "ssd"})
    response, _ = respond(workload("Pod", {"app": value}), selecting)
    assert bool(decode_patch(response)) == is_equal


@pytest.mark.parametrize(("length", "is_valid"), [(63, True), (64, False)])
def test_s19_a_value_has_63_characters_at_most(length, is_valid):
    value = "v" * length
    selecting = cluster_policy("long", pods={"app": value}, nodeSelector={"disk": "ssd"})
    response, verdict = respond(workload("Pod", {"app": value}), selecting)
    assert bool(decode_patch(response)) == is_valid
    assert verdict.codes == (() if is_valid else ("policy-invalid",))


@pytest.mark.parametrize("wanted", ["", "v"])
def test_s19_an_empty_value_is_a_value(wanted):
    selecting = policy("empty", "web", nodeSelector={"disk": "ssd"})
    selecting["spec"]["podSelector"] = {"matchLabels": {"app": wanted}}
    assert bool(decode_patch(respond(workload("Pod", {"app": ""}), selecting)[0])) == (wanted == "")
    # Without the label there is no empty value.
    assert not decode_patch(respond(workload("Pod", {"other": ""}), selecting)[0])


def test_s19_a_namespace_is_matched_by_its_whole_name():
    local = policy("local", "web", nodeSelector={"disk": "ssd"})
    question = body(workload("Pod"), namespace="web-2")
    result, _ = answer(question, engine(local, namespaces=("web", "web-2")))
    assert "patch" not in json.loads(result)["response"]
