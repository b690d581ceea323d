"""Kinds that a policy leaves out by its annotations, and pods of DaemonSets."""

from __future__ import annotations

import json

import msgspec
import pytest

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.enforcement import policy_hash
from harbourmaster.policies.targets import (
    ALL_CONTROLLERS,
    EXCLUDED_KEY,
    KIND_NAMES,
    TARGETS_KEY,
)
from harbourmaster.webhook.policy_objects import convert_policy, project_policy
from harbourmaster.webhook.verdict import INVALID, MUTATED, UNCHANGED, UNMATCHED, VALID
from helpers.admission import (
    ask,
    engine_of,
    owner,
    pod,
    policy_engine,
    record_of,
    replayed_response,
)
from helpers.objects import RESOURCES, cluster_policy, required, review, workload
from helpers.oracles import NODE_REQUIRED

TOLERATION = {"key": "pool", "operator": "Exists"}
DAEMON = "system:serviceaccount:kube-system:daemon-set-controller"
REPLICAS = "system:serviceaccount:kube-system:replicaset-controller"
EVERYTHING = {
    "nodeSelector": {"pool": "apps"},
    "affinity": {
        **required({"zone": "a"}),
        "podAntiAffinity": {NODE_REQUIRED: [{"topologyKey": "zone"}]},
    },
    "nodeName": "node-1",
    "tolerations": [TOLERATION],
}


def annotated(document=None, **annotations):
    document = document or cluster_policy(**EVERYTHING)
    keys = {"targets": TARGETS_KEY, "excluded": EXCLUDED_KEY}
    document["metadata"]["annotations"] = {keys[name]: annotations[name] for name in annotations}
    return document


def created_by(user, document):
    return review(document, userInfo={"username": user, "groups": ["system:authenticated"]})


def fields_set(answered):
    patch = msgspec.json.decode(answered.verdict.response.patch or b"[]")
    return {operation["path"].split("/spec/")[-1].split("/")[0] for operation in patch}


def changed_kinds(document):
    engine = policy_engine(document)
    outcomes = {kind: ask(review(workload(kind)), engine).verdict.outcome for kind in RESOURCES}
    assert set(outcomes.values()) <= {MUTATED, UNMATCHED}
    return {kind for kind, outcome in outcomes.items() if outcome == MUTATED}


@pytest.mark.parametrize(
    ("annotations", "left_out"),
    [
        ({}, set()),
        ({"targets": "PodsAndTemplates"}, set()),
        ({"targets": "Pods"}, set(RESOURCES) - {"Pod"}),
        ({"excluded": "DaemonSet"}, {"DaemonSet"}),
        ({"excluded": " StatefulSet ,DaemonSet,"}, {"StatefulSet", "DaemonSet"}),
        # Otherwise the controller of Deployments would replace changed ReplicaSets for ever.
        ({"excluded": "Deployment"}, {"Deployment", "ReplicaSet"}),
        ({"excluded": "CronJob"}, {"CronJob", "Job"}),
        ({"excluded": "Job"}, {"Job"}),
        ({"excluded": "Pod"}, {"Pod"}),
        ({"excluded": ""}, set()),
        ({"targets": "Pods", "excluded": "Pod"}, set(RESOURCES)),
    ],
)
def test_annotations_leave_kinds_out(annotations, left_out):
    assert changed_kinds(annotated(**annotations)) == set(RESOURCES) - left_out


@pytest.mark.parametrize(
    ("annotations", "value", "key", "left_out"),
    [
        ({"targets": "pods"}, "pods", TARGETS_KEY, set()),
        ({"targets": ""}, "", TARGETS_KEY, set()),
        ({"excluded": "daemonset"}, "daemonset", EXCLUDED_KEY, set()),
        ({"excluded": "DaemonSet;Pod"}, "DaemonSet;Pod", EXCLUDED_KEY, set()),
        ({"excluded": "DaemonSet,Rollout"}, "Rollout", EXCLUDED_KEY, {"DaemonSet"}),
        ({"excluded": "x" * 5000}, "x" * 40, EXCLUDED_KEY, set()),
    ],
)
def test_an_unsupported_value_is_refused_and_a_stored_one_warned_of(
    annotations, value, key, left_out
):
    document = annotated(**annotations)
    refused = ask(review(document), policy_engine())
    assert refused.verdict.outcome == INVALID
    reason = refused.response["status"]["reason"]
    assert reason.startswith(f"metadata.annotations[{key}]: Unsupported value: ")
    assert changed_kinds(document) == set(RESOURCES) - left_out
    (warning,) = ask(review(workload()), policy_engine(document)).response["warnings"]
    assert f'ClusterPodSchedulingPolicy c1: unsupported value "{value}" of {key}, so ' in warning
    assert "\n" not in warning
    assert len(warning) <= 256


def test_many_unsupported_names_are_one_error():
    names = ",".join(f"k{number}" for number in range(30_000))
    assert len(compile_policy(convert_policy(annotated(excluded=names))).remark) < 256


def test_each_kind_is_supported():
    assert set(KIND_NAMES) == set(RESOURCES)
    accepted = ask(review(annotated(excluded=",".join(KIND_NAMES))), policy_engine())
    assert accepted.verdict.outcome == VALID


def test_the_annotations_are_part_of_the_hash_and_of_the_stored_policy():
    documents = [annotated(), annotated(targets="Pods"), annotated(excluded="DaemonSet")]
    hashes = {policy_hash(convert_policy(document)) for document in documents}
    assert len(hashes) == 3
    assert policy_hash(convert_policy(cluster_policy(**EVERYTHING))) in hashes
    for document in documents[1:]:
        projected = json.loads(project_policy(msgspec.json.encode(document)))
        assert projected["metadata"]["annotations"] == document["metadata"]["annotations"]


@pytest.mark.claim("O31")
@pytest.mark.parametrize(
    ("user", "owners", "is_daemon"),
    [
        (DAEMON, (), True),
        (ALL_CONTROLLERS, [owner("DaemonSet", "agent", controller=True)], True),
        (ALL_CONTROLLERS, [owner(controller=True)], False),
        (REPLICAS, [owner("DaemonSet", "agent", controller=True)], False),
        ("system:serviceaccount:tenant:daemon-set-controller", [owner("DaemonSet", "a")], False),
        ("jane", [owner("DaemonSet", "agent", controller=True)], False),
        ("", [owner("DaemonSet", "agent", controller=True)], False),
    ],
)
def test_only_pods_of_the_daemonset_controller_get_no_node_constraints(user, owners, is_daemon):
    document = pod(owners=owners)
    answered = ask(created_by(user, document), policy_engine(cluster_policy(**EVERYTHING)))
    affinity = next(
        operation["value"]
        for operation in msgspec.json.decode(answered.verdict.response.patch)
        if operation["path"] == "/spec/affinity"
    )
    assert ("nodeAffinity" in affinity) is not is_daemon
    assert "podAntiAffinity" in affinity
    rest = {"affinity", "tolerations"} | (set() if is_daemon else {"nodeSelector", "nodeName"})
    assert fields_set(answered) == rest
    assert answered.verdict.codes == (("daemonset-node-constraints",) if is_daemon else ())


def test_a_daemon_whose_template_has_the_constraints_is_not_warned_of():
    document = pod(nodeSelector={"pool": "apps"}, affinity=required({"zone": "a"}))
    policies = [
        cluster_policy("a", nodeSelector={"pool": "apps"}, affinity=required({"zone": "a"})),
        cluster_policy("b", tolerations=[TOLERATION]),
    ]
    answered = ask(created_by(DAEMON, document), policy_engine(*policies))
    assert (fields_set(answered), answered.verdict.codes) == ({"tolerations"}, ())


def test_each_policy_whose_constraints_are_left_out_is_named():
    policies = [cluster_policy(name, nodeSelector={name: "x"}) for name in ("a", "b")]
    answered = ask(created_by(DAEMON, pod()), policy_engine(*policies))
    assert answered.verdict.outcome == UNCHANGED
    assert answered.response["warnings"] == [
        f"harbourmaster: node constraints of ClusterPodSchedulingPolicy {name} are left out: the "
        "template of the DaemonSet lacks them, so its pods for other nodes would stay Pending"
        for name in ("a", "b")
    ]


def test_a_daemon_and_another_pod_of_the_same_spec_get_their_own_answers():
    engine = policy_engine(cluster_policy(nodeSelector={"pool": "apps"}))
    fields = [fields_set(ask(created_by(user, pod()), engine)) for user in (DAEMON, "jane") * 2]
    assert fields == [set(), {"nodeSelector"}] * 2


@pytest.mark.parametrize("user", [DAEMON, REPLICAS, ALL_CONTROLLERS, "jane"])
def test_pods_of_every_creator_are_changed_where_only_templates_are_left_out(user):
    document = annotated(cluster_policy(tolerations=[TOLERATION]), targets="Pods")
    asked = created_by(user, pod(owners=[owner("StatefulSet", controller=True)]))
    assert ask(asked, policy_engine(document)).verdict.outcome == MUTATED


@pytest.mark.parametrize(
    ("excluded", "user", "is_changed"),
    [
        ("DaemonSet", DAEMON, False),
        ("DaemonSet", REPLICAS, True),
        ("Deployment", REPLICAS, False),
        ("StatefulSet", REPLICAS, True),
        ("ReplicaSet", "jane", True),
    ],
)
def test_a_kind_is_left_out_with_the_pods_that_its_controller_creates(excluded, user, is_changed):
    document = annotated(cluster_policy(tolerations=[TOLERATION]), excluded=excluded)
    # What a pod says of its owner does not count.
    asked = created_by(user, pod(owners=[owner("ReplicaSet", controller=True)]))
    outcome = ask(asked, policy_engine(document)).verdict.outcome
    assert outcome == (MUTATED if is_changed else UNMATCHED)


@pytest.mark.parametrize("user", [DAEMON, "jane"])
def test_a_record_has_the_user_of_a_controller_and_no_other(user):
    namespaces = [{"metadata": {"name": "ns1"}}]
    engine = engine_of((), cluster_policy(**EVERYTHING), namespaces=namespaces)
    line, response, _ = record_of(created_by(user, pod()), engine)
    assert replayed_response(line) == response
    assert (b"daemon-set-controller" in line) is (user == DAEMON)
    assert b"jane" not in line
