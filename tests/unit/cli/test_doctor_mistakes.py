"""Mistakes that skip checks are lines of ``harbourmaster doctor``, with what to do."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from harbourmaster.api.resources import (
    APP_CONTEXTS,
    APPS,
    DEPLOYMENTS,
    EVALUATION_DEFINITIONS,
    KEPTN_METRICS,
    METRICS_PROVIDERS,
    NAMESPACES,
    PODS,
    TASK_DEFINITIONS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.api.times import format_rfc3339
from harbourmaster.cli.doctor.checks.workloads import check_mistakes
from harbourmaster.cli.doctor.run import lines
from harbourmaster.cli.live.installation import Installation
from helpers.broken_installations import ASKED
from helpers.examined import HOME, ExaminedCluster, examine, findings

TYPO = {"keptn.sh/pre-deployment-task": "migrate"}
KEPTN = {"keptn.sh/workload": "cart", "keptn.sh/version": "1"}


@pytest.fixture
def cluster():
    return ExaminedCluster()


def put(cluster, resource, name, *, owner=None, annotations=None, namespace="shop", **spec):
    metadata = {"name": name, "namespace": namespace, "uid": name}
    if annotations:
        metadata["annotations"] = annotations
    if owner:
        metadata["ownerReferences"] = [{"kind": owner, "name": "o", "uid": "o", "controller": True}]
    cluster.put(resource, {"metadata": metadata, "spec": spec})


def request_gates(cluster, name="shop", annotations=ASKED):
    cluster.at(NAMESPACES, name)["metadata"]["annotations"] = annotations


async def found(cluster):
    live = Installation(cluster, HOME)
    try:
        return [
            f"{finding.subject}: {finding.text} -> {finding.remedy}"
            async for finding in check_mistakes(live)
        ]
    finally:
        await live.close()


def metric(cluster, name, provider, **spec):
    given = {"query": "up", "fetchIntervalSeconds": 5, "provider": {"name": provider}}
    put(cluster, KEPTN_METRICS, name, **given, **spec)


def provider(cluster, name, namespace="shop"):
    server = {"type": "prometheus", "targetServer": "https://prometheus.example.com"}
    put(cluster, METRICS_PROVIDERS, name, namespace=namespace, **server)


async def test_a_sound_cluster_has_no_mistake(cluster):
    request_gates(cluster)
    put(cluster, PODS, "cart-1", owner="ReplicaSet", annotations=KEPTN)
    provider(cluster, "prometheus")
    metric(cluster, "load", "prometheus")
    assert await found(cluster) == []


@pytest.mark.parametrize("value", ["true", "Enabled"])
async def test_an_opt_in_that_has_no_effect_is_told_in_place_of_ok(cluster, assert_golden, value):
    request_gates(cluster, annotations={"keptn.sh/lifecycle-toolkit": value})
    put(cluster, PODS, "cart-1", owner="ReplicaSet", annotations=TYPO)
    assert await found(cluster) == []
    assert_golden(findings(await examine(cluster), "gates"))


async def test_unknown_keys_and_empty_lists_are_told_once_for_each_owner(cluster, assert_golden):
    request_gates(cluster)
    put(cluster, DEPLOYMENTS, "cart", annotations=TYPO)
    for name in ("cart-1", "cart-2"):
        keys = {**KEPTN, "keptn.sh/pre-deployment-tasks": ","}
        put(cluster, PODS, name, owner="ReplicaSet", annotations=keys)
    assert_golden(await found(cluster))


async def test_pods_that_are_never_checked_are_told(cluster, assert_golden):
    request_gates(cluster)
    put(cluster, PODS, "bare", annotations=KEPTN)
    put(cluster, PODS, "job", owner="Job", annotations=KEPTN)
    put(cluster, PODS, "elsewhere", annotations=KEPTN, namespace="default")
    assert_golden(await found(cluster))


async def test_a_target_and_a_provider_that_cannot_be_used_are_told(cluster, assert_golden):
    reference = {"keptnMetricRef": {"name": "load"}, "evaluationTarget": "=>5"}
    put(cluster, EVALUATION_DEFINITIONS, "ready", objectives=[reference])
    provider(cluster, "prometheus")
    provider(cluster, "shared", "monitoring")
    metric(cluster, "load", "promtheus")
    metric(cluster, "cost", "billing")
    metric(cluster, "rate", "shared")
    assert_golden(await found(cluster))


async def test_an_object_of_an_old_version_is_told_and_blinds_no_check(cluster):
    """It was accepted with a warning, and four checks said that they did not know."""
    old = {"name": "cpus", "query": "sum(kube_node_status_capacity)", "evaluationTarget": ">4"}
    put(cluster, EVALUATION_DEFINITIONS, "old-eval", source="prometheus", objectives=[old])
    report = await examine(cluster)
    others = [line for line in report.findings if line.severity not in {"ok", "note"}]
    (finding,) = others
    assert (finding.check, finding.severity) == ("checks", "warning")
    assert finding.subject == "KeptnEvaluationDefinition shop/old-eval"
    assert "spec.objectives[0]: object missing required field keptnMetricRef" in finding.text
    assert finding.remedy == "correct or delete it"


async def test_definitions_that_do_not_exist_are_told_once(cluster, assert_golden):
    request_gates(cluster)
    keys = {**KEPTN, "keptn.sh/pre-deployment-tasks": "migrat, notify"}
    for name in ("cart-1", "cart-2"):
        put(cluster, PODS, name, owner="ReplicaSet", annotations=keys)
    container = {"container": {"name": "it", "image": "it"}}
    put(cluster, TASK_DEFINITIONS, "migrate", **container)
    put(cluster, TASK_DEFINITIONS, "notify", namespace=HOME, **container)
    assert_golden(await found(cluster))


@pytest.mark.parametrize("status", ["Progressing", "Succeeded"])
async def test_a_version_needs_its_definitions_until_it_has_ended(cluster, assert_golden, status):
    spec = {
        "app": "shop",
        "workloadName": "shop-cart",
        "version": "1",
        "resourceReference": {"uid": "o", "kind": "ReplicaSet", "name": "o"},
        "preDeploymentEvaluations": ["ready"],
        "postDeploymentTasks": ["notify"],
    }
    put(cluster, WORKLOAD_VERSIONS, "shop-cart-1", **spec)
    cluster.at(WORKLOAD_VERSIONS, "shop-cart-1", "shop")["status"] = {"status": status}
    assert_golden(await found(cluster))


async def test_metrics_and_apps_that_are_named_wrongly_are_told(cluster, assert_golden):
    provider(cluster, "prometheus", "monitoring")
    given = {"query": "up", "fetchIntervalSeconds": 5, "provider": {"name": "prometheus"}}
    put(cluster, KEPTN_METRICS, "load", namespace="monitoring", **given)
    targets = [{"keptnMetricRef": {"name": "load"}, "evaluationTarget": "<5"}]
    put(cluster, EVALUATION_DEFINITIONS, "ready", objectives=targets)
    put(cluster, APPS, "checkout", version="1")
    put(cluster, APP_CONTEXTS, "chekout")
    put(cluster, APP_CONTEXTS, "later")
    put(cluster, APP_CONTEXTS, "before-its-app")
    own = cluster.at(APP_CONTEXTS, "before-its-app", "shop")["metadata"]
    own["creationTimestamp"] = format_rfc3339(datetime.now(UTC))
    assert_golden(await found(cluster))


async def test_durations_that_are_not_used_as_written_are_told(cluster, assert_golden):
    put(cluster, EVALUATION_DEFINITIONS, "ready", retryInterval="0.5")
    container = {"container": {"name": "it", "image": "it"}}
    put(cluster, TASK_DEFINITIONS, "migrate", timeout="30", **container)
    provider(cluster, "prometheus")
    metric(cluster, "load", "prometheus", range={"interval": "30"})
    assert_golden(await found(cluster))


async def test_of_many_mistakes_the_first_ten_are_lines(cluster):
    request_gates(cluster)
    for number in range(14):
        put(cluster, PODS, f"bare-{number}", annotations=KEPTN)
    report = await examine(cluster)
    told = [line for line in lines(report) if line[10:17] == "checks "]
    assert len(told) == 11
    assert told[-1] == "note      checks          4 more: -o json has all"
    assert len([finding for finding in report.findings if finding.check == "checks"]) == 14
