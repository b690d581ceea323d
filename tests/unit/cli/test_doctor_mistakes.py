"""Mistakes that skip checks are lines of ``harbourmaster doctor``, with what to do."""

from __future__ import annotations

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
from harbourmaster.cli.doctor.checks.workloads import check_mistakes
from harbourmaster.cli.doctor.run import lines
from harbourmaster.cli.live.installation import Installation
from helpers.broken_installations import ASKED
from helpers.examined import HOME, ExaminedCluster, examined

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
            (finding.subject, finding.text, finding.remedy)
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
async def test_an_opt_in_that_has_no_effect_is_told_in_place_of_ok(cluster, value):
    request_gates(cluster, annotations={"keptn.sh/lifecycle-toolkit": value})
    put(cluster, PODS, "cart-1", owner="ReplicaSet", annotations=TYPO)
    assert await found(cluster) == []
    (told,) = [
        finding for finding in (await examined(cluster)).findings if finding.check == "gates"
    ]
    fault = f'namespace "shop" has no gates: annotation keptn.sh/lifecycle-toolkit is "{value}"'
    to_do = "kubectl annotate --overwrite namespace shop keptn.sh/lifecycle-toolkit=enabled"
    assert (told.subject, told.text, told.remedy) == ("namespace shop", fault, to_do)


async def test_unknown_keys_and_empty_lists_are_told_once_for_each_owner(cluster):
    request_gates(cluster)
    put(cluster, DEPLOYMENTS, "cart", annotations=TYPO)
    for name in ("cart-1", "cart-2"):
        keys = {**KEPTN, "keptn.sh/pre-deployment-tasks": ","}
        put(cluster, PODS, name, owner="ReplicaSet", annotations=keys)
    assert await found(cluster) == [
        (
            "Deployment shop/cart",
            'key "keptn.sh/pre-deployment-task" is unknown and has no effect: metadata.annotations',
            'did you mean "keptn.sh/pre-deployment-tasks"?',
        ),
        (
            "pod shop/cart-1",
            'key "keptn.sh/pre-deployment-tasks" names no check: metadata.annotations',
            "name definitions, separated by commas, or remove it",
        ),
    ]


async def test_pods_that_are_never_checked_are_told(cluster):
    request_gates(cluster)
    put(cluster, PODS, "bare", annotations=KEPTN)
    put(cluster, PODS, "job", owner="Job", annotations=KEPTN)
    put(cluster, PODS, "elsewhere", annotations=KEPTN, namespace="default")
    faults = [(subject, text) for subject, text, _ in await found(cluster)]
    assert faults == [
        ("pod shop/bare", "a pod without an owner is never checked: metadata.ownerReferences"),
        ("pod shop/job", "pods of the kind Job are never checked: metadata.ownerReferences"),
    ]


async def test_a_target_and_a_provider_that_cannot_be_used_are_told(cluster):
    reference = {"keptnMetricRef": {"name": "load"}, "evaluationTarget": "=>5"}
    put(cluster, EVALUATION_DEFINITIONS, "ready", objectives=[reference])
    provider(cluster, "prometheus")
    provider(cluster, "shared", "monitoring")
    metric(cluster, "load", "promtheus")
    metric(cluster, "cost", "billing")
    metric(cluster, "rate", "shared")
    target, load, cost, rate = await found(cluster)
    assert target[0] == "KeptnEvaluationDefinition shop/ready"
    assert target[2] == "did you mean '>=5'?"
    fault = 'KeptnMetricsProvider "promtheus" not found in namespace shop'
    assert load == ("KeptnMetric shop/load", fault, 'did you mean "prometheus"?')
    assert cost[2].startswith("create it; kubectl -n shop get keptnmetricsproviders ")
    assert rate[2] == "one exists in namespace monitoring: create it in shop"


async def test_definitions_that_do_not_exist_are_told_once_with_what_is_meant(cluster):
    request_gates(cluster)
    keys = {**KEPTN, "keptn.sh/pre-deployment-tasks": "migrat, notify"}
    for name in ("cart-1", "cart-2"):
        put(cluster, PODS, name, owner="ReplicaSet", annotations=keys)
    container = {"container": {"name": "it", "image": "it"}}
    put(cluster, TASK_DEFINITIONS, "migrate", **container)
    put(cluster, TASK_DEFINITIONS, "notify", namespace=HOME, **container)
    migrate = await found(cluster)
    fault = f'KeptnTaskDefinition "migrat" not found in namespace shop or {HOME} or keptn-system'
    assert migrate == [("pod shop/cart-1", fault, 'did you mean "migrate"?')]


@pytest.mark.parametrize(("status", "count"), [("Progressing", 2), ("Succeeded", 0)])
async def test_what_a_version_refers_to_is_missed_until_it_has_ended(cluster, status, count):
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
    told = await found(cluster)
    assert len(told) == count
    assert {line[0] for line in told} <= {"KeptnWorkloadVersion shop/shop-cart-1"}


async def test_metrics_and_apps_that_are_named_wrongly_are_told(cluster):
    provider(cluster, "prometheus", "monitoring")
    given = {"query": "up", "fetchIntervalSeconds": 5, "provider": {"name": "prometheus"}}
    put(cluster, KEPTN_METRICS, "load", namespace="monitoring", **given)
    targets = [{"keptnMetricRef": {"name": "load"}, "evaluationTarget": "<5"}]
    put(cluster, EVALUATION_DEFINITIONS, "ready", objectives=targets)
    put(cluster, APPS, "checkout", version="1")
    put(cluster, APP_CONTEXTS, "chekout")
    put(cluster, APP_CONTEXTS, "later")
    told = await found(cluster)
    assert [(subject, remedy) for subject, _, remedy in told] == [
        ("KeptnAppContext shop/chekout", 'did you mean "checkout"?'),
        (
            "KeptnEvaluationDefinition shop/ready",
            "one exists in namespace monitoring: create it in shop",
        ),
    ]


async def test_durations_that_are_not_used_as_written_are_told(cluster):
    put(cluster, EVALUATION_DEFINITIONS, "ready", retryInterval="0.5")
    container = {"container": {"name": "it", "image": "it"}}
    put(cluster, TASK_DEFINITIONS, "migrate", timeout="30", **container)
    provider(cluster, "prometheus")
    metric(cluster, "load", "prometheus", range={"interval": "30"})
    told = {subject: (text, remedy) for subject, text, remedy in await found(cluster)}
    text, remedy = told["KeptnEvaluationDefinition shop/ready"]
    assert text == ('spec.retryInterval: Invalid value: "0.5": it is not a duration, so 5s is used')
    assert remedy == "write for example 30s, 5m or 1h30m"
    assert 'spec.timeout: Invalid value: "30"' in told["KeptnTaskDefinition shop/migrate"][0]
    assert 'spec.range.interval: Invalid value: "30"' in told["KeptnMetric shop/load"][0]


async def test_of_many_mistakes_the_first_ten_are_lines(cluster):
    request_gates(cluster)
    for number in range(14):
        put(cluster, PODS, f"bare-{number}", annotations=KEPTN)
    report = await examined(cluster)
    told = [line for line in lines(report) if line[10:17] == "checks "]
    assert len(told) == 11
    assert told[-1] == "note      checks          4 more: -o json has all"
    assert len([finding for finding in report.findings if finding.check == "checks"]) == 14
