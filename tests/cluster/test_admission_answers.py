from __future__ import annotations

import json
import re

import pytest

from harbourmaster.policies.model import ON_TOO_LARGE, REQUIRED
from harbourmaster.serving.definitions import unknown_fields
from helpers.cluster import (
    eventually,
    keep_registered,
    read,
    required_terms,
    selecting,
    webhook_configuration,
    workload,
)
from helpers.objects import cluster_policy, policy, required
from helpers.server import Server

pytestmark = pytest.mark.gate

VALID = {
    "affinity": required({"example.com/pool": "ledger"}),
    "nodeSelector": {"example.com/disk": "ssd"},
    "schedulerName": "ledger-scheduler",
    "tolerations": [{"key": "example.com/pool", "operator": "Exists"}],
}
INVALID = {
    "spec.nodeName": {"nodeName": "No Name"},
    "spec.nodeSelector": {"nodeSelector": {"no key!": "x"}},
    "spec.tolerations[1].operator": {
        "tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Near"}]
    },
    "spec.podSelector.matchExpressions[0].operator": {
        "podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}
    },
}


@pytest.fixture(params=["PodSchedulingPolicy", "ClusterPodSchedulingPolicy"])
def make(request, served_namespace):
    """A function that makes a policy of one of the two kinds, of a name of its own."""
    if request.param == "PodSchedulingPolicy":
        return lambda **spec: policy("tested", served_namespace, **spec)
    # Nobody serves the policies in the API, so this one selects nothing.
    return lambda **spec: cluster_policy(served_namespace, **spec)


def test_a_valid_policy_is_stored_without_a_word(kubectl, make):
    manifest = json.dumps(make(**VALID))
    created = kubectl("create", "-f=-", stdin=manifest)
    assert created.stderr == ""
    (stored,) = read(kubectl, manifest).values()
    assert stored["spec"] == make(**VALID)["spec"]


@pytest.mark.parametrize("field", INVALID)
@pytest.mark.claim("O2")
def test_an_invalid_policy_is_denied_with_the_field(kubectl, make, field):
    manifest = json.dumps(make(**INVALID[field]))
    created = kubectl("create", "-f=-", stdin=manifest, check=False)
    assert created.returncode == 1
    assert 'admission webhook "validate.harbourmaster.example.com" denied' in created.stderr
    assert f"{field}: " in created.stderr
    assert read(kubectl, manifest) == {}


def test_unknown_fields_are_those_that_strict_validation_rejects(kubectl, make):
    term = {"topologyKey": "a", "labelSelector": {"matchLabel": {}}, "matchLabelKeys": ["b"]}
    body = make(
        podSelectr={},
        nodeSelecto={"a": "b"},
        namespaceSelector={},
        tolerations=[{"operator": "Exists"}, {"kee": "a", "operator": "Exists"}],
        affinity={"podAffinity": {REQUIRED: [term]}},
    )
    body["metadata"] |= {"lables": {}, "uid": "u", "creationTimestamp": "2026-03-01T12:00:00Z"}
    manifest = json.dumps({**body, "statu": {}})
    created = kubectl("create", "--dry-run=server", "-f=-", stdin=manifest, check=False)
    assert created.returncode == 1
    rejected = re.findall(r'unknown field "([^"]+)"', created.stderr)
    assert sorted(rejected) == sorted(unknown_fields(json.loads(manifest)))
    assert {"spec.podSelectr", "spec.nodeSelecto", "statu"} <= set(rejected)


def test_an_update_to_an_invalid_policy_is_denied(kubectl, make):
    manifest = json.dumps(make(**VALID))
    kubectl("create", "-f=-", stdin=manifest)
    worse = json.dumps(make(**INVALID["spec.nodeName"]))
    applied = kubectl("replace", "-f=-", stdin=worse, check=False)
    assert applied.returncode == 1
    assert "spec.nodeName: " in applied.stderr
    (stored,) = read(kubectl, manifest).values()
    assert "nodeName" not in stored["spec"]


def test_an_odd_policy_is_stored_with_a_warning(kubectl, make):
    manifest = json.dumps(make())
    created = kubectl("create", "-f=-", stdin=manifest)
    assert created.stderr.startswith("Warning: harbourmaster: spec: has no effect, it sets no ")
    assert len(read(kubectl, manifest)) == 1


@pytest.fixture
def contradiction(kubectl, server, served_namespace):
    """kubectl's output for a Deployment that excludes what a policy requires, and the object."""
    server.add_policies(
        policy("ledger", served_namespace, affinity=required({"example.com/pool": "ledger"}))
    )
    own = required({"example.com/pool": "own"})
    manifest = json.dumps(workload("Deployment", served_namespace, affinity=own))
    said = kubectl("create", "-f=-", stdin=manifest).stderr
    return said, read(kubectl, manifest)["Deployment"]


def test_a_contradiction_warns_and_both_sides_hold(contradiction, served_namespace):
    said, stored = contradiction
    assert said.startswith(
        f"Warning: harbourmaster: PodSchedulingPolicy {served_namespace}/ledger requires "
        "example.com/pool In "
    )
    assert said.endswith("no node can satisfy both\n")
    assert said.index("ledger", said.index(" In ")) < said.index("own")
    (term,) = required_terms(stored["spec"]["template"]["spec"])
    assert sorted(expression["values"][0] for expression in term["matchExpressions"]) == [
        "ledger",
        "own",
    ]


def test_a_contradiction_is_in_the_audit_log(contradiction, control_plane, served_namespace):
    log = control_plane.layout.logs / "audit.log"

    def creations():
        events = map(json.loads, log.read_text().splitlines())
        return [
            event["annotations"]
            for event in events
            if event["verb"] == "create"
            and event["objectRef"].get("namespace") == served_namespace
            and event["objectRef"]["resource"] == "deployments"
        ]

    (annotations,) = eventually(creations)
    annotation = annotations["mutate.harbourmaster.example.com/affinity-conflict"]
    assert annotation.endswith("no node can satisfy both")


def test_a_broken_policy_warns_and_the_others_hold(kubectl, server, served_namespace):
    server.add_policies(
        policy("broken", served_namespace, nodeName="No Name"),
        policy("sound", served_namespace, nodeSelector={"example.com/disk": "ssd"}),
    )
    manifest = json.dumps(workload("Pod", served_namespace))
    said = kubectl("create", "-f=-", stdin=manifest).stderr
    assert said.startswith(
        f"Warning: harbourmaster: PodSchedulingPolicy {served_namespace}/broken is skipped, "
        "it is invalid: spec.nodeName: "
    )
    stored = read(kubectl, manifest)["Pod"]
    assert stored["spec"]["nodeSelector"] == {"example.com/disk": "ssd"}


@pytest.mark.claim("O24")
@pytest.mark.parametrize(("count", "values"), [(300, 1), (1, 4200)])
def test_a_tenant_cannot_escape_a_policy_that_denies_with_harmless_terms(
    kubectl, server, served_namespace, count, values
):
    document = cluster_policy(served_namespace, affinity=required({"pool": "a"}, {"pool": "b"}))
    document["metadata"]["annotations"] = {ON_TOO_LARGE: "Deny"}
    document["spec"]["namespaceSelector"] = {
        "matchLabels": {"kubernetes.io/metadata.name": served_namespace}
    }
    server.add_policies(document)
    role = ("--clusterrole=edit", "--user=tenant", f"--namespace={served_namespace}")
    kubectl("create", "rolebinding", "tenant", *role)
    terms = [
        {"matchExpressions": [{"key": f"k{i}", "operator": "NotIn", "values": ["x" * 63] * values}]}
        for i in range(count)
    ]
    harmless = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    manifest = json.dumps(workload("Pod", served_namespace, affinity=harmless))
    tried = kubectl("create", "--as=tenant", "-f=-", stdin=manifest, check=False)
    assert tried.returncode == 1
    said = f"pods without ClusterPodSchedulingPolicy {served_namespace} are refused: "
    assert said in tried.stderr
    assert read(kubectl, manifest) == {}


def test_a_policy_that_comes_while_serving_is_in_force_for_the_next_pod(
    kubectl, server, served_namespace
):
    stored = []
    for suffix in ("-before", "-after"):
        manifest = json.dumps(workload("Pod", served_namespace, suffix=suffix))
        kubectl("create", "-f=-", stdin=manifest)
        stored.append(read(kubectl, manifest)["Pod"]["spec"].get("nodeSelector"))
        server.add_policies(
            policy("late" + suffix, served_namespace, nodeSelector={"example.com/disk": "ssd"})
        )
    assert stored == [None, {"example.com/disk": "ssd"}]


def test_a_pod_of_an_unknown_namespace_is_stored_as_it_is_with_a_warning(
    kubectl, namespace, tmp_path
):
    known = tmp_path / "namespaces.yaml"
    known.write_text('{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}')
    manifest = json.dumps(workload("Pod", namespace))

    def create_pod(*options):
        return kubectl("create", "-f=-", *options, stdin=manifest).stderr

    policies = [cluster_policy(nodeSelector={"example.com/disk": "ssd"})]
    with Server(tmp_path / "server", f"--namespaces={known}", policies=policies) as own:
        configuration = webhook_configuration(
            "Mutating",
            own.url,
            own.bundle,
            name="harbourmaster-unknown",
            namespaceSelector=selecting(namespace),
        )
        with keep_registered(kubectl, configuration):
            eventually(lambda: create_pod("--dry-run=server"))
            warning = create_pod()
    assert warning == f'Warning: harbourmaster: namespace "{namespace}" is not known\n'
    assert "nodeSelector" not in read(kubectl, manifest)["Pod"]["spec"]
