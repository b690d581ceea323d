from __future__ import annotations

import pytest

from helpers.cluster import create, pod_spec, required_terms, workload
from helpers.objects import policy, required
from helpers.patience import WAIT

pytestmark = pytest.mark.gate

GATES = [{"name": "example.com/checks"}]
# Fields that are younger than the projects whose policies we serve.
YOUNG_POD = {
    "automountServiceAccountToken": False,
    "initContainers": [
        {
            "name": "proxy",
            "image": "registry.example.com/proxy:1",
            "restartPolicy": "Always",
            "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
        }
    ],
    "schedulingGates": GATES,
    "hostUsers": False,
    "os": {"name": "linux"},
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "minDomains": 2,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"example.com/app": "ledger"}},
            "matchLabelKeys": ["pod-template-hash"],
            "nodeAffinityPolicy": "Honor",
            "nodeTaintsPolicy": "Honor",
        }
    ],
}
FAILURE_POLICY = {
    "rules": [
        {
            "action": "FailIndex",
            "onExitCodes": {"containerName": "ledger", "operator": "In", "values": [42]},
        },
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
}


@pytest.fixture(scope="module")
def nodes(control_plane):
    """Two nodes of which policies ask for the first."""
    right = control_plane.add_nodes(1, labels={"example.com/berth": "right"})
    wrong = control_plane.add_nodes(1, labels={"example.com/berth": "wrong"})
    return right[0], wrong[0]


def test_the_scheduler_binds_only_where_the_policy_allows(kubectl, server, served_namespace, nodes):
    server.add_policies(
        policy("berth", served_namespace, affinity=required({"example.com/berth": "right"}))
    )
    deployment = workload("Deployment", served_namespace)
    deployment["spec"]["replicas"] = 6
    create(kubectl, deployment)
    create(kubectl, workload("Pod", served_namespace))
    inside = f"--namespace={served_namespace}"
    kubectl("rollout", "status", "deployment/ledger", WAIT, inside)
    kubectl("wait", "--for=condition=Ready", "pod/ledger", WAIT, inside)
    bound = kubectl("get", "pods", "-o=jsonpath={.items[*].spec.nodeName}", inside)
    assert bound.stdout.split() == [nodes[0]] * 7


def test_the_scheduler_leaves_a_pod_pending_that_asks_for_another_node(
    kubectl, server, served_namespace, nodes
):
    server.add_policies(
        policy("berth", served_namespace, affinity=required({"example.com/berth": "right"}))
    )
    wrong = {"kubernetes.io/hostname": nodes[1]}
    create(kubectl, workload("Pod", served_namespace, nodeSelector=wrong))
    inside = f"--namespace={served_namespace}"
    unscheduled = "--for=jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}"
    kubectl("wait", f"{unscheduled}=Unschedulable", "pod/ledger", WAIT, inside)
    bound = kubectl("get", "pod/ledger", "-o=jsonpath={.status.phase} {.spec.nodeName}", inside)
    assert bound.stdout.split() == ["Pending"]


def test_a_node_name_binds_a_pod_without_the_scheduler(kubectl, server, served_namespace, nodes):
    server.add_policies(policy("berth", served_namespace, nodeName=nodes[1]))
    (stored,) = create(kubectl, workload("Pod", served_namespace))
    assert stored["spec"]["nodeName"] == nodes[1]


def test_a_node_name_becomes_a_field_of_a_gated_pod(kubectl, server, served_namespace, nodes):
    server.add_policies(policy("berth", served_namespace, nodeName=nodes[1]))
    (stored,) = create(kubectl, workload("Pod", served_namespace, schedulingGates=GATES))
    assert "nodeName" not in stored["spec"]
    assert required_terms(stored["spec"]) == [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [nodes[1]]}]}
    ]
    inside = f"--namespace={served_namespace}"
    ungate = '[{"op": "remove", "path": "/spec/schedulingGates"}]'
    kubectl("patch", "pod/ledger", "--type=json", f"--patch={ungate}", inside)
    kubectl("wait", "--for=condition=Ready", "pod/ledger", WAIT, inside)
    bound = kubectl("get", "pod/ledger", "-o=jsonpath={.spec.nodeName}", inside)
    assert bound.stdout == nodes[1]


@pytest.mark.parametrize("kind", ["Pod", "Deployment", "Job"])
def test_young_fields_survive(kubectl, server, served_namespace, namespace, kind):
    server.add_policies(policy("rules", served_namespace, nodeSelector={"example.com/disk": "ssd"}))
    created = []
    for place in (namespace, served_namespace):
        manifest = workload(kind, place, **YOUNG_POD)
        if kind == "Job":
            manifest["spec"]["podFailurePolicy"] = FAILURE_POLICY
            manifest["spec"] |= {
                "completionMode": "Indexed",
                "completions": 2,
                "backoffLimitPerIndex": 1,
            }
        created += create(kubectl, manifest)
    plain, ruled = created
    assert pod_spec(plain)["initContainers"][0]["restartPolicy"] == "Always"
    assert pod_spec(ruled) == {
        **pod_spec(plain),
        "nodeSelector": {"example.com/disk": "ssd"},
    }
    assert ruled["spec"].get("podFailurePolicy") == plain["spec"].get("podFailurePolicy")
    assert (kind == "Job") == ("podFailurePolicy" in ruled["spec"])
