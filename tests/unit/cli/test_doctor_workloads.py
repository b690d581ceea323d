"""Metrics without values, blocked versions, and pods that differ from their reviews."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    CLUSTER_POLICIES,
    CORE_EVENTS,
    DEPLOYMENTS,
    JOBS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
    MUTATING_POLICIES,
    MUTATING_POLICY_BINDINGS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli.installed import CONTROLLER
from harbourmaster.gates.metadata import PARENT_KEY, UNRESOLVED
from harbourmaster.gates.release import CHECKS_KEY, HELD_BY_KEY, NONE
from harbourmaster.gates.waits import WAIT_FOR_KEY
from helpers.broken_installations import ASKED, policy
from helpers.delegation import FIRST, SECOND, binding, mutation
from helpers.examined import HOME, NAME, ExaminedCluster, examine, findings
from helpers.lifecycle_objects import owners
from helpers.objects import cluster_policy

CHECKS = {
    "keptn.sh/workload": "cart",
    "keptn.sh/version": "1",
    "keptn.sh/pre-deployment-tasks": "migrate",
}
LATER, EARLIER = "2026-03-01T12:00:00Z", "2026-03-01T11:00:00Z"
GATES = {"schedulingGates": [{"name": "keptn-prechecks-gate"}]}


@pytest.fixture
def cluster():
    return ExaminedCluster()


async def warned(cluster, check):
    return findings(await examine(cluster), check)


# Metrics


def provider(cluster, name, **spec):
    metadata = {"name": name, "namespace": "shop"}
    cluster.put(METRICS_PROVIDERS, {"metadata": metadata, "spec": {"type": name, **spec}})


def metric(cluster, name, provider, created=EARLIER, **status):
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": created}
    spec = {"query": "up", "fetchIntervalSeconds": 5, "provider": {"name": provider}}
    cluster.put(KEPTN_METRICS, {"metadata": metadata, "spec": spec, "status": status})


async def test_metrics_with_errors_or_old_values_are_told(cluster, assert_golden):
    provider(cluster, "prometheus", targetServer="https://prometheus.example.com")
    now = cluster.now.isoformat(timespec="seconds").replace("+00:00", "Z")
    fresh = {"value": "1", "rawValue": "MQ==", "lastUpdated": now}
    metric(cluster, "fresh", "prometheus", **fresh)
    metric(cluster, "new", "prometheus", created=now)
    metric(cluster, "failing", "prometheus", **fresh, errMsg="connection refused")
    metric(cluster, "stale", "prometheus", value="1", rawValue="MQ==", lastUpdated=EARLIER)
    metric(cluster, "lost", "nowhere", errMsg="provider nowhere not found")
    told = await warned(cluster, "metrics")
    assert_golden([re.sub(r"(?<=is )\S+(?= old)", "…", line) for line in told])


async def test_an_error_that_names_its_secret_is_not_told_with_it_again(cluster, assert_golden):
    provider(cluster, "datadog", secretKeyRef={"name": "access", "key": "TOKEN"})
    fault = "Secret shop/access does not contain the key TOKEN: correct it"
    metric(cluster, "load", "datadog", errMsg=fault)
    assert_golden(await warned(cluster, "metrics"))


async def test_a_wrong_key_of_a_secret_is_told_once_for_all_metrics(cluster, assert_golden):
    secret = {"secretKeyRef": {"name": "datadog", "key": "APP_KEY"}}
    provider(cluster, "datadog", **secret)
    fault = "secret does not contain DD_CLIENT_APP_KEY"
    for name in ("load", "cost"):
        metric(cluster, name, "datadog", errMsg=fault)
    assert_golden(await warned(cluster, "metrics"))


# Versions


def version(cluster, number, **status):
    owner = {"uid": "o", "kind": "ReplicaSet", "name": "o"}
    spec = {"app": "shop", "version": number, "resourceReference": owner}
    spec["preDeploymentTasks"] = ["migrate"]
    metadata = {"name": f"cart-cart-{number}", "namespace": "shop"}
    named = {**spec, "workloadName": "cart-cart"}
    cluster.put(WORKLOAD_VERSIONS, {"metadata": metadata, "spec": named, "status": status})
    return spec


FAILED = {
    "status": "Failed",
    "preDeploymentStatus": "Failed",
    "preDeploymentTaskStatus": [{"definitionName": "migrate", "status": "Failed"}],
    "endTime": LATER,
}


async def test_a_blocked_version_is_told_while_it_is_the_current_one(cluster, assert_golden):
    version(cluster, "1", **FAILED)
    spec = version(cluster, "2", **FAILED)
    metadata = {"name": "cart-cart", "namespace": "shop"}
    cluster.put(WORKLOADS, {"metadata": metadata, "spec": spec})
    assert_golden(await warned(cluster, "workloads"))


async def test_a_blocked_version_of_an_app_is_told(cluster, assert_golden):
    metadata = {"name": "shop", "namespace": "shop"}
    cluster.put(APPS, {"metadata": metadata, "spec": {"version": "1"}})
    spec = {"appName": "shop", "version": "1", "preDeploymentTasks": ["migrate"]}
    metadata = {"name": "shop-1", "namespace": "shop"}
    cluster.put(APP_VERSIONS, {"metadata": metadata, "spec": spec, "status": FAILED})
    assert_golden(await warned(cluster, "workloads"))


# Pods


def pod(cluster, name, annotations=None, *, labels=None, phase="Running", of="ReplicaSet", **spec):
    owner = {"apiVersion": "apps/v1", "kind": of, "name": "cart-5d4f8", "uid": "rs"}
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": name,
        "creationTimestamp": LATER,
        "labels": {"app": "cart", "pod-template-hash": "5d4f8", **(labels or {})},
        "annotations": annotations or {},
        "ownerReferences": [{**owner, "controller": True}],
    }
    given = {"containers": [{"name": "cart", "image": "cart:1"}], "nodeName": "node-1", **spec}
    cluster.put(PODS, {"metadata": metadata, "spec": given, "status": {"phase": phase}})


def opt_in(cluster):
    cluster.at(NAMESPACES, "shop")["metadata"]["annotations"] = ASKED
    cluster.at(NAMESPACES, "shop")["metadata"]["labels"]["gates.harbourmaster.dev/enabled"] = "true"


async def test_pods_without_gate_whose_workload_names_checks_are_told_once(cluster, assert_golden):
    opt_in(cluster)
    pod(cluster, "cart-1", CHECKS)
    pod(cluster, "cart-2", CHECKS)
    assert_golden(await warned(cluster, "workloads"))


async def test_pods_without_gate_whose_deployment_names_checks_are_told(cluster, assert_golden):
    opt_in(cluster)
    up = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "cart", "uid": "d"}
    deployment = {"name": "cart", "namespace": "shop", "uid": "d", "annotations": CHECKS}
    cluster.put(DEPLOYMENTS, {"metadata": deployment, "spec": {}})
    replica_set = {"name": "cart-5d4f8", "namespace": "shop", "uid": "rs"}
    cluster.put(REPLICA_SETS, {"metadata": {**replica_set, "ownerReferences": [up]}})
    pod(cluster, "cart-1")
    assert_golden(await warned(cluster, "workloads"))


@pytest.mark.parametrize(
    ("annotations", "spec"),
    [
        ({"keptn.sh/workload": "cart", "keptn.sh/version": "1"}, {}),
        ({**CHECKS, HELD_BY_KEY: "cart-cart-1"}, {}),
        ({**CHECKS, "keptn.sh/scheduling-gate-removed": "true"}, {}),
        (CHECKS, GATES),
        (CHECKS, {"schedulerName": "keptn-scheduler"}),
        (CHECKS, {"phase": "Succeeded"}),
    ],
    ids=["no checks", "held", "released", "gated", "waits in the scheduler", "ended"],
)
async def test_pods_that_had_their_gate_or_need_none_are_fine(cluster, annotations, spec):
    opt_in(cluster)
    pod(cluster, "cart-1", annotations, **spec)
    assert await warned(cluster, "workloads") == []


async def test_pods_without_gate_of_a_passed_version_or_without_opt_in_are_fine(cluster):
    pod(cluster, "cart-1", CHECKS)
    assert await warned(cluster, "workloads") == []
    opt_in(cluster)
    passed = dict.fromkeys(("preDeploymentStatus", "preDeploymentEvaluationStatus"), "Succeeded")
    version(cluster, "1", deploymentStatus="Progressing", **passed)
    assert await warned(cluster, "workloads") == []


def select(cluster, name, created=EARLIER, **spec):
    selector = {"matchLabels": {"app": "cart"}}
    policy(cluster, name, {"podSelector": selector, "namespaceSelector": {}, **spec})
    cluster.at(CLUSTER_POLICIES, name)["metadata"]["creationTimestamp"] = created


async def test_pods_without_what_an_older_policy_sets_are_told(cluster, assert_golden):
    select(cluster, "disks", nodeSelector={"disk": "ssd"})
    pod(cluster, "cart-1")
    pod(cluster, "cart-2", nodeSelector={"disk": "ssd"})
    assert_golden(await warned(cluster, "workloads"))


async def test_pods_that_are_older_than_a_policy_or_sent_to_no_webhook_are_fine(cluster):
    select(cluster, "disks", LATER, nodeSelector={"disk": "ssd"})
    pod(cluster, "cart-1")
    assert await warned(cluster, "workloads") == []
    select(cluster, "disks", nodeSelector={"disk": "ssd"})
    for entry in cluster.at(MUTATING_WEBHOOKS, NAME)["webhooks"]:
        entry["objectSelector"] = {"matchLabels": {"team": "a"}}
    assert await warned(cluster, "workloads") == []


async def test_daemons_without_node_constraints_are_noted_and_restarted_with_care(
    cluster, assert_golden
):
    tolerations = [{"key": "pool", "operator": "Exists"}]
    select(cluster, "disks", nodeSelector={"disk": "ssd"}, tolerations=tolerations)
    pod(cluster, "cart-1", of="DaemonSet")
    assert_golden(await warned(cluster, "workloads"))


async def test_policies_that_contradict_each_other_are_told_once(cluster, assert_golden):
    select(cluster, "disks", nodeSelector={"disk": "ssd"})
    select(cluster, "disks-too", nodeSelector={"disk": "hdd"}, schedulerName="other")
    for name in ("cart-1", "cart-2"):
        pod(cluster, name, nodeSelector={"disk": "ssd"}, schedulerName="other")
    assert_golden(await warned(cluster, "workloads"))


async def test_policies_that_require_what_no_node_has_are_told(cluster, assert_golden):
    for name, value in (("east", "a"), ("west", "b")):
        zone = {"key": "zone", "operator": "In", "values": [value]}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        select(cluster, name, LATER, affinity={"nodeAffinity": required})
    pod(cluster, "cart-1")
    assert_golden(await warned(cluster, "workloads"))


async def test_pods_whose_waits_are_blocked_are_warned_of_once(cluster, assert_golden):
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    job = {"name": "seed", "namespace": "shop"}
    cluster.put(JOBS, {"metadata": job, "status": {"conditions": [failed]}})
    for name, text in (("a-1", "job/seed"), ("a-2", "job/seed"), ("b-1", "jbo/x"), ("c", "cm/x")):
        annotations = {WAIT_FOR_KEY: text, CHECKS_KEY: NONE}
        metadata = {"name": name, "namespace": "shop", "annotations": annotations}
        cluster.put(PODS, {"metadata": metadata, "spec": GATES, "status": {"phase": "Pending"}})
    assert_golden(await warned(cluster, "waits"))


@pytest.mark.parametrize("second", ["1", "2"])
async def test_a_workload_of_two_deployments_is_told_with_both(cluster, assert_golden, second):
    spec = version(cluster, "1")
    owned = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": uid}
        for name, uid in (("blue-5d4f8", "o"), ("green-7c9b4", "p"))
    ]
    others = {"gates.harbourmaster.dev/other-owners": f'{{"p":["{second}","{LATER}"]}}'}
    metadata = {"name": "cart-cart", "namespace": "shop", "ownerReferences": owned}
    metadata["annotations"] = others
    status = {"owners": [owner["uid"] for owner in owned]}
    cluster.put(WORKLOADS, {"metadata": metadata, "spec": spec, "status": status})
    version(cluster, second, **FAILED)
    assert_golden([*await warned(cluster, "waits"), *await warned(cluster, "workloads")])


def held(cluster, part, number, kind="ReplicaSet", **annotations):
    """A pod of a Deployment that waits at its gate, created an hour ago."""
    keys = {**CHECKS, "keptn.sh/workload": part, **annotations}
    metadata = {
        "name": f"{part}-5d4f8-{number}",
        "namespace": "shop",
        "uid": f"{part}-{number}",
        "creationTimestamp": (cluster.now - timedelta(hours=1)).isoformat(timespec="seconds"),
        "labels": {"pod-template-hash": "5d4f8"},
        "annotations": {key: value for key, value in keys.items() if value},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": kind, "name": f"{part}-5d4f8", "uid": part}
        ],
    }
    cluster.put(PODS, {"metadata": metadata, "spec": GATES, "status": {"phase": "Pending"}})


async def test_pods_that_nothing_will_release_are_told_once_for_each_workload(
    cluster, assert_golden
):
    """``why`` pointed to this command, which said that all works."""
    for number in (1, 2):
        held(cluster, "listed", number)
        held(cluster, "versioned", number)
        held(cluster, "owned", number, **{PARENT_KEY: UNRESOLVED})
        held(cluster, "orphaned", number, kind="Job")
    spec = version(cluster, "1")
    metadata = {"name": "listed-listed-1", "namespace": "shop", **owners()}
    spec = {**spec, "app": "listed", "workloadName": "listed-listed"}
    cluster.put(WORKLOAD_VERSIONS, {"metadata": metadata, "spec": spec})
    text = (
        "KeptnWorkloadVersion versioned-versioned-1 is not generated: delete it / Namespace: shop"
    )
    event = {
        "metadata": {"name": "event", "namespace": "shop"},
        "involvedObject": {"uid": "versioned-1"},
        "type": "Warning",
        "reason": "CreateWorkloadVersionFailed",
        "reportingComponent": "harbourmaster.dev/lifecycle",
        "message": text,
    }
    cluster.put(CORE_EVENTS, event)
    assert_golden(await warned(cluster, "waits"))


async def test_a_kind_that_the_controller_may_not_watch_is_a_fault(cluster):
    deployment = cluster.objects[DEPLOYMENTS, HOME, CONTROLLER]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    flags = ["--lifecycle-wait-kinds=pods,widgets.v1.example.com"]
    container["args"] = [*container.get("args", []), *flags]
    cluster.refused.add(("watch", "widgets"))
    assert "watch widgets.example.com" in str(await warned(cluster, "rights"))


async def test_compiled_policies_that_are_gone_or_unused_are_reported(cluster, assert_golden):
    cluster.put(CLUSTER_POLICIES, cluster_policy("here", nodeSelector={"a": "b"}))
    hashes = {"ClusterPodSchedulingPolicy here": "1", "ClusterPodSchedulingPolicy gone": "2"}
    for result in (FIRST, SECOND):
        cluster.put(MUTATING_POLICIES, mutation(hashes, result))
    cluster.put(MUTATING_POLICY_BINDINGS, binding())
    assert_golden(await warned(cluster, "policies"))
