"""``why`` names the origin of a requirement that no node meets."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.resources import CLUSTER_POLICIES, DEPLOYMENTS, NODES, PODS, REPLICA_SETS
from helpers.explanations import NAMESPACE, pod, put_owner, reference, template
from helpers.objects import cluster_policy
from helpers.rescheduling.objects import node

MESSAGE = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
CREATED, LATER = "2026-03-01T12:00:00Z", "2026-03-01T13:00:00Z"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def stage(api, *nodes, made=None, applied=None, **spec):
    """An unschedulable pod, whose template has ``made``, of what was ``applied``."""
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": MESSAGE,
        "lastTransitionTime": CREATED,
    }
    pod_object = pod(owner=reference("ReplicaSet", "cart"), **spec)
    api.put(PODS, {**pod_object, "status": {"phase": "Pending", "conditions": [unschedulable]}})
    api.get(PODS, "cart-1", NAMESPACE)["metadata"]["creationTimestamp"] = CREATED
    above = [reference("Deployment", "cart")]
    put_owner(api, REPLICA_SETS, template(**(made or {})), ownerReferences=above)
    given = {} if applied is None else {"spec": {"template": {"spec": applied}}}
    notes = {} if applied is None else {LAST_APPLIED: json.dumps(given)}
    put_owner(api, DEPLOYMENTS, template(**(made or {})), annotations=notes)
    for obj in nodes:
        api.put(NODES, obj)


def with_labels(name, **labels):
    node_object = node(name)
    node_object["metadata"]["labels"] = labels
    return node_object


def tainted(name, key):
    node_object = node(name)
    node_object["spec"] = {"taints": [{"key": key, "value": "till", "effect": "NoSchedule"}]}
    return node_object


def affinity(*terms):
    given = [{"matchExpressions": [{"key": k, "operator": "In", "values": v}]} for k, v in terms]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": given}}}


@pytest.fixture
def scheduling(why):
    async def ask():
        _, out, _ = await why("pod", f"{NAMESPACE}/cart-1", "-o", "json")
        return next(
            section for section in json.loads(out)["sections"] if section["name"] == "scheduling"
        )

    return ask


@pytest.mark.parametrize(
    ("applied", "who"),
    [
        ({}, "cluster policy disks requires"),
        ({"nodeSelector": {"disk": "ssd"}}, "the template and cluster policy disks require"),
        (None, "the template and cluster policy disks require"),
    ],
)
async def test_what_no_node_has_is_told_with_who_requires_it(api, scheduling, applied, who):
    selector = {"nodeSelector": {"disk": "ssd"}}
    stage(
        api, with_labels("n1", disk="hdd"), node("n2"), made=selector, applied=applied, **selector
    )
    section = await scheduling()
    assert (section["code"], section["state"]) == ("no-node-matches", "fault")
    assert section["summary"] == f"no node has disk=ssd, which {who}"
    assert section["detail"]["message"] == MESSAGE


async def test_a_node_that_matches_leaves_the_word_to_the_scheduler(api, scheduling):
    stage(api, with_labels("n1", disk="ssd"), node("n2"), nodeSelector={"disk": "ssd"})
    section = await scheduling()
    assert (section["code"], section["summary"]) == ("unschedulable", MESSAGE)


async def test_requirements_that_hold_on_different_nodes_only_are_told_together(api, scheduling):
    zone = affinity(("zone", ["a"]))
    stage(
        api,
        with_labels("n1", disk="ssd"),
        with_labels("n2", zone="a"),
        nodeSelector={"disk": "ssd"},
        affinity=zone,
    )
    assert (await scheduling())["summary"] == "no node has all of disk=ssd and zone=a"


async def test_terms_of_which_none_is_met_are_told_as_one(api, scheduling):
    stage(api, node("n1"), affinity=affinity(("zone", ["a"]), ("zone", ["b", "c"])))
    summary = (await scheduling())["summary"]
    assert summary == "no node has zone=a or zone in (b, c); no current policy requires it"


async def test_taints_that_are_not_tolerated_are_counted(api, scheduling):
    stage(api, tainted("n1", "pool"), tainted("n2", "pool"))
    section = await scheduling()
    assert (section["code"], section["state"]) == ("node-excluded", "fault")
    assert section["summary"] == "2 of 2 nodes: untolerated taint pool=till:NoSchedule"
    assert "add a toleration" in section["next"]


async def test_without_permission_to_read_nodes_the_scheduler_is_quoted(api, scheduling):
    api.forbid("list", NODES)
    stage(api, nodeSelector={"disk": "ssd"})
    assert (await scheduling())["summary"] == MESSAGE


# Who wrote what is there.


@pytest.mark.parametrize(
    ("applied", "who"),
    [
        ({}, "cluster policy disks"),
        ({"nodeSelector": {"disk": "ssd"}}, "the template and cluster policy disks"),
    ],
)
async def test_what_is_there_already_names_who_wrote_it(api, why, applied, who):
    selector = {"nodeSelector": {"disk": "ssd"}}
    stage(api, made=selector, applied=applied, **selector)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert f'finds  nodeSelector["disk"] = ssd, there already ({who})' in out


@pytest.mark.parametrize(
    ("applied", "who"),
    [
        ({}, "cluster policy disks"),
        ({"nodeSelector": {"disk": "ssd"}}, "the object itself and cluster policy disks"),
        (None, "the object itself or cluster policy disks"),
    ],
)
async def test_a_workload_says_whether_the_object_itself_has_it(api, why, applied, who):
    stage(api, made={"nodeSelector": {"disk": "ssd"}}, applied=applied)
    _, out, _ = await why("deployment", f"{NAMESPACE}/cart")
    assert f"there already ({who})" in out


@pytest.mark.parametrize(
    ("made", "applied", "command"),
    [
        (
            {"nodeSelector": {"disk": "sdd"}},
            {},
            (
                f"kubectl -n {NAMESPACE} patch deployment cart --type=json -p "
                '[{"op":"remove","path":"/spec/template/spec/nodeSelector/disk"}]'
            ),
        ),
        ({}, {}, f"kubectl -n {NAMESPACE} rollout restart deployment/cart"),
    ],
    ids=["the template has the old value", "only the pod has it"],
)
async def test_a_policy_that_was_corrected_has_the_command_that_applies_it(
    api, why, made, applied, command
):
    stage(api, made=made, applied=applied, nodeSelector={"disk": "sdd"})
    changed = cluster_policy("disks", pods={"app": "cart"}, nodeSelector={"disk": "ssd"})
    changed["metadata"]["managedFields"] = [{"time": LATER, "fieldsV1": {"f:spec": {}}}]
    api.put(CLUSTER_POLICIES, changed)
    api.get(CLUSTER_POLICIES, "disks")["metadata"]["generation"] = 2
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert f"older than the policy's change ({LATER}): {command}" in out.replace("'[", "[").replace(
        "]'", "]"
    )
