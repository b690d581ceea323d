"""Whom ``harbourmaster why`` names for a field of a pod: its template, a policy, Kubernetes."""

from __future__ import annotations

from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    DAEMON_SETS,
    PODS,
    POLICIES,
    REPLICA_SETS,
    ROLLOUTS,
)
from helpers.explanations import NAMESPACE, pod, put_owner, reference, template
from helpers.objects import cluster_policy


def fields_in(out):
    """The lines of fields by their path."""
    return {line.split()[0]: line for line in out.splitlines() if line.startswith("    ")}


async def test_node_constraints_that_a_daemon_does_not_get_are_explained(api, why):
    owner = reference("DaemonSet", "cart")
    api.put(PODS, pod(owner=owner))
    put_owner(api, DAEMON_SETS, template())
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "skips" in out
    assert "node constraints of ClusterPodSchedulingPolicy disks are left out" in out


async def test_fields_name_the_template_or_the_policy_that_set_them(api, why):
    selector = {"disk": "ssd", "zone": "a", "odd": "1"}
    default = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    owner = reference("ReplicaSet", "cart")
    api.put(PODS, pod(owner=owner, nodeSelector=selector, tolerations=[default]))
    put_owner(api, REPLICA_SETS, template(nodeSelector={"zone": "a"}))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    lines = fields_in(out)
    assert lines['nodeSelector["disk"]'].endswith("cluster policy disks")
    assert lines['nodeSelector["zone"]'].endswith("the template")
    assert lines['nodeSelector["odd"]'].endswith("no current policy")
    assert lines["tolerations[0]"].endswith("Kubernetes, for every pod")


async def test_a_value_that_yields_is_not_reported_as_present(api, why):
    api.remove(POLICIES, "local", NAMESPACE)
    api.put(PODS, pod(nodeSelector={"disk": "hdd"}))
    api.put(PODS, pod("cart-2", nodeSelector={"disk": "ssd"}))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "1 of 2 selects the pod; it changes nothing" in out
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-2")
    assert "1 of 2 selects the pod; everything that it sets is present" in out


async def test_a_missing_owner_is_reported_and_not_confused_with_one_of_its_name(api, why):
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart"), nodeSelector={"zone": "a"}))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "its owner, ReplicaSet cart, is gone\n" in out
    put_owner(api, REPLICA_SETS, template(nodeSelector={"zone": "a"}))
    api.get(REPLICA_SETS, "cart", NAMESPACE)["metadata"]["uid"] = "another"
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "its owner, ReplicaSet cart, is gone: another one has its name" in out
    assert "the template" not in out


async def test_a_nearer_owner_counts_where_the_next_is_unknown(api, why):
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart"), nodeSelector={"zone": "a"}))
    owner = {**reference("Rollout", "cart"), "apiVersion": "argoproj.io/v1alpha1"}
    pod_template = template(nodeSelector={"zone": "a"})
    put_owner(api, REPLICA_SETS, pod_template, ownerReferences=[owner])
    api.undefine(ROLLOUTS)
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "its owner, Rollout cart, is of a kind that the cluster no longer knows" in out
    assert "install its definition" not in out
    assert 'nodeSelector["zone"] a the template' in " ".join(out.split())


async def test_fields_that_the_daemonset_controller_sets_name_it(api, why):
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    node = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    key = "node.kubernetes.io/unschedulable"
    toleration = {"key": key, "operator": "Exists", "effect": "NoSchedule"}
    own = {"affinity": {"nodeAffinity": node}, "tolerations": [toleration]}
    api.put(PODS, pod(owner=reference("DaemonSet", "cart"), **own))
    put_owner(api, DAEMON_SETS, template())
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    lines = fields_in(out)
    for path in ("tolerations[0]", "affinity.nodeAffinity.required"):
        assert lines[path].endswith("the DaemonSet controller")


async def test_required_terms_that_a_policy_narrowed_name_the_template_too(api, why):
    def affinity(*asked):
        result = [{"key": key, "operator": "In", "values": [value]} for key, value in asked]
        node = {"nodeSelectorTerms": [{"matchExpressions": result}]}
        return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": node}}

    narrow = cluster_policy("narrow", pods={"app": "cart"}, affinity=affinity(("disk", "ssd")))
    api.put(CLUSTER_POLICIES, narrow)
    both = affinity(("zone", "a"), ("disk", "ssd"))
    api.put(PODS, pod(owner=reference("ReplicaSet", "cart"), affinity=both))
    put_owner(api, REPLICA_SETS, template(affinity=affinity(("zone", "a"))))
    _, out, _ = await why("pod", f"{NAMESPACE}/cart-1")
    assert "zone=a and disk=ssd  the template and cluster policy narrow" in out
