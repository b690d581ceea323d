"""Pods that a held stage lacks, and those that stay after an undo, are reported."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.controller.lifecycle.held_stages import HeldStages
from harbourmaster.controller.lifecycle.metric_values import MetricValues
from harbourmaster.controller.lifecycle.staged_releases import decode_staged
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersionReconciler
from harbourmaster.gates.owners import DEPLOYMENT
from harbourmaster.lifecycle.model import (
    ResourceReference,
    StageResult,
    StageStatus,
    WorkloadVersionStatus,
)
from helpers.gated import PROD, keptn, owner_ref, pod
from helpers.lifecycle import context_of
from helpers.phased import NOW, STAMP, workload_version
from helpers.signals import RecordedSignals
from helpers.simulated_server import Mirrored, Server, owner

NAME = "shop-cart-2.0"
KEY = ("prod", NAME)
UNAVAILABLE = "WorkloadStagePodsUnavailable"
HELD = StageStatus(
    number=1,
    of=2,
    state="Held",
    message="task probe failed",
    since=STAMP,
    wanted=12,
    allowed=1,
    released=1,
    results=(StageResult(number=1, state="Failed"),),
)
PASSED = {"pre_deployment_status": "Succeeded", "pre_deployment_evaluation_status": "Succeeded"}
DESIRED = {"deployment.kubernetes.io/desired-replicas": "12"}


def held(kind, name, stage=HELD):
    """A version with a stage whose pods the owner with that kind and name has."""
    status = WorkloadVersionStatus(
        **PASSED,
        deployment_status="Progressing",
        status="Progressing",
        current_phase="WorkloadDeploy",
        start_time=STAMP,
        deployment_start_time=STAMP,
        stage=stage,
    )
    version = workload_version(status=status, stages="1")
    reference = ResourceReference(uid="rs-1", kind=kind, name=name)
    return replace(version, spec=replace(version.spec, resource_reference=reference))


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def life(server):
    return Mirrored(server, WorkloadVersionReconciler, now=lambda: NOW)


def put_deployment(server, available, **strategy):
    """A Deployment of 12 pods, most of which are of the former ReplicaSet."""
    above = [(DEPLOYMENT, "cart")]
    server.put(DEPLOYMENTS, {"metadata": {"name": "cart"}, "spec": {"strategy": strategy}})
    for name, uid, number in (("cart-1", "rs-1", 1), ("cart-0", "rs-0", available - 1)):
        made = owner(name, uid=uid, owners=above, availableReplicas=number)
        made["metadata"]["annotations"] = DESIRED
        server.put(REPLICA_SETS, made)
    return held("ReplicaSet", "cart-1")


def put_stateful_set(server, available, **strategy):
    made = owner("cart", wanted=12, availableReplicas=available)
    made["spec"]["updateStrategy"] = strategy
    server.put(STATEFUL_SETS, made)
    return held("StatefulSet", "cart")


def put_daemon_set(server, available, **strategy):
    made = owner("cart", wanted=None, desiredNumberScheduled=12, numberReady=available)
    made["spec"]["updateStrategy"] = strategy
    server.put(DAEMON_SETS, made)
    return held("DaemonSet", "cart")


def limited(number):
    return {"rollingUpdate": {"maxUnavailable": number}}


@pytest.mark.parametrize(
    ("make", "strategy", "allowed"),
    [
        (put_deployment, {}, 3),
        (put_deployment, limited("20%"), 2),
        (put_deployment, limited(0), 0),
        (put_stateful_set, {}, 1),
        (put_stateful_set, {"rollingUpdate": {"partition": 0}}, 1),
        (put_daemon_set, limited("20%"), 3),
        (put_daemon_set, limited(2), 2),
    ],
)
async def test_pods_beyond_those_that_the_strategy_allows(server, life, make, strategy, allowed):
    def excess():
        return MetricValues(life.caches).read_gauges().excess_pods

    server.put(WORKLOAD_VERSIONS, make(server, 12 - allowed, **strategy))
    life.sync()
    await life.sweep()
    assert (excess(), life.signals.reasons) == ({}, [])
    for available in (11 - allowed, 10 - allowed):
        make(server, available, **strategy)
        life.sync()
        await life.sweep()
        assert excess() == {KEY: 12 - allowed - available}
    (report,) = life.signals.kept
    assert (report.reason, report.warning) == (UNAVAILABLE, True)
    assert "cart are unavailable than its maxUnavailable allows" in report.text
    # It is over, and reported when it comes again.
    for available in (12, 11 - allowed):
        make(server, available, **strategy)
        life.sync()
        await life.sweep()
    assert life.signals.reasons == [UNAVAILABLE] * 2


async def test_only_a_held_version_is_looked_at(server, life):
    server.put(WORKLOAD_VERSIONS, put_stateful_set(server, 2))
    life.sync()
    await life.sweep()
    gauges = MetricValues(life.caches).read_gauges()
    assert (gauges.excess_pods, gauges.stages) == ({KEY: 9}, {"Held": 1})
    released = replace(HELD, state="Releasing", results=())
    server.put(WORKLOAD_VERSIONS, held("StatefulSet", "cart", released))
    life.sync()
    await life.sweep()
    gauges = MetricValues(life.caches).read_gauges()
    assert (gauges.excess_pods, gauges.stages) == ({}, {"Releasing": 1})
    asked = len(server.requests)
    await life.sweep()
    assert not [request for request in server.requests[asked:] if request[1] == STATEFUL_SETS]


async def test_no_metric_counts_a_version_that_was_superseded_while_it_was_held(server, life):
    server.put(WORKLOAD_VERSIONS, put_stateful_set(server, 2))
    life.sync()
    await life.sweep()
    assert MetricValues(life.caches).read_gauges().excess_pods == {KEY: 9}
    reference = {"uid": "rs-2", "kind": "StatefulSet", "name": "cart"}
    spec = {"app": "shop", "version": "1.0", "resourceReference": reference}
    server.put(WORKLOADS, {"metadata": {"name": "shop-cart"}, "spec": spec})
    server.remove(STATEFUL_SETS, "cart")
    life.sync()
    await life.sweep()
    gauges = MetricValues(life.caches).read_gauges()
    assert life.workload_version(NAME).status.status == "Deprecated"
    assert (gauges.excess_pods, dict(gauges.stages)) == ({}, {})


def member(name, version="2.0", ready="False"):
    """A staged pod of the StatefulSet that has a node."""
    made = pod(
        name,
        keptn("cart", version),
        owners=[owner_ref("StatefulSet", "cart", "rs-1")],
        gates=(),
        labels={"gates.harbourmaster.dev/staged": "true"},
    )
    condition = {"type": "Ready", "status": ready, "lastTransitionTime": STAMP}
    return {**made, "status": {"phase": "Running", "conditions": [condition]}}


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
async def test_after_an_undo_the_pod_to_delete_is_named(api, client, policy):
    metadata = {"name": "cart", "namespace": PROD}
    api.put(STATEFUL_SETS, {"metadata": metadata, "spec": {"podManagementPolicy": policy}})
    signals = RecordedSignals()
    context = context_of(client, now=lambda: NOW, signals=signals)
    for name, *more in (("cart-11",), ("cart-10", "2.0", "True"), ("cart-9", "1.0")):
        raw = json.dumps(member(name, *more))
        context.caches.staged_pods.store.put(f"{PROD}/{name}", decode_staged(raw))
    context.caches.staged_releases.observe({"prod/cart-9", "prod/cart-10", "prod/cart-11"})
    reporter = HeldStages(context)
    await reporter.report_stuck(held("ReplicaSet", "cart"))
    await reporter.report_stuck(held("StatefulSet", "cart"))
    if policy == "Parallel":
        assert signals.kept == []
        return
    assert [report.obj.metadata.name for report in signals.kept] == [NAME, "cart-11"]
    assert {report.reason for report in signals.kept} == {"WorkloadStagePodStuck"}
    assert signals.kept[0].text.endswith("run kubectl -n prod delete pod cart-11")
