"""Workloads that several Deployments claim, or several ReplicaSets of one second."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    APPS,
    PODS,
    REPLICA_SETS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from helpers.flow.manifests import (
    IMAGE,
    OUTCOME,
    app,
    app_context,
    container_task,
    deployment,
    keptn,
)

pytestmark = pytest.mark.gate


def redis(component, **more):
    """One of two Deployments of a chart, which differ in their environment alone."""
    name = f"redis-{component}"
    env = [{"name": "REDIS_REPLICATION_MODE", "value": component}]
    containers = [{"name": "redis", "image": IMAGE, "env": env}]
    labels = {"app.kubernetes.io/name": "redis"}
    return deployment(name, labels=labels, containers=containers, **more)


async def until_both_ended(flow):
    """Wait until two versions of a workload, and a version of their app, have ended."""
    await flow.until_all(WORKLOAD_VERSIONS, {"status": {"status": "Succeeded"}}, 2)
    entries = {"spec": {"workloads": [{}, {}]}, "status": {"status": "Succeeded"}}
    await flow.until_all(APP_VERSIONS, entries)


async def test_pods_of_two_versions_are_replaced_and_scaled_without_another_check(flow):
    await flow.create(
        container_task("report"),
        app_context("redis", postDeploymentTasks=["report"]),
        redis("master"),
        redis("replicas"),
    )
    await until_both_ended(flow)
    checked, tasks = flow.find(APPS, "redis"), len(flow.all(TASKS))
    for part in ("redis-master", "redis-replicas"):
        (pod,) = await flow.until_released(part)
        await flow.delete("Pod", pod["metadata"]["name"])
        await flow.until(lambda pod=pod: flow.find(PODS, pod["metadata"]["name"]) is None)
        await flow.until_released(part)
    await flow.change("Deployment", "redis-master", {"spec": {"replicas": 3}})
    await flow.until_released("redis-master", 3)
    await flow.pass_through()
    assert len(flow.all(TASKS)) == tasks
    assert flow.find(APPS, "redis")["spec"] == checked["spec"]
    # One Deployment goes, and the other one keeps its version and its workload.
    workload = flow.find(WORKLOADS, "redis-redis")
    await flow.delete("Deployment", "redis-master", propagation="Background")
    await flow.until(
        lambda: len(flow.find(WORKLOADS, "redis-redis")["metadata"]["ownerReferences"]) == 1
    )
    (left,) = flow.pods("redis-replicas")
    version = left["metadata"]["annotations"]["keptn.sh/version"]
    await flow.change("Deployment", "redis-replicas", {"spec": {"replicas": 2}})
    await flow.until_like(WORKLOADS, "redis-redis", {"spec": {"version": version}})
    await flow.until_released("redis-replicas", 2)
    assert flow.find(WORKLOADS, "redis-redis")["metadata"]["uid"] == workload["metadata"]["uid"]


async def test_two_versions_of_one_workload_wait_for_their_app_and_are_both_released(flow):
    given = {"keptn.sh/app": "myapp", "keptn.sh/workload": "myapp"}
    await flow.create(
        container_task("slow"),
        app_context("myapp", preDeploymentTasks=["slow"]),
        *(
            deployment(name, given, containers=[{"name": name, "image": IMAGE}])
            for name in ("internal-app", "public-app")
        ),
    )
    await flow.until_released("internal-app")
    await flow.until_released("public-app")
    await until_both_ended(flow)
    assert len(flow.all(APP_VERSIONS)) == 1


async def test_a_shared_version_is_deployed_when_both_deployments_are(flow):
    given = keptn("myapp", "1.21.0", app="myapp", post_deployment_tasks="notify")
    await flow.create(
        container_task("notify"),
        deployment("internal-app", given, labels={OUTCOME: "never-ready"}),
        deployment("public-app", given),
    )
    await flow.until_released("internal-app")
    await flow.until_all(
        PODS,
        {
            "metadata": {"labels": {"example.com/part": "public-app"}},
            "status": {"phase": "Running"},
        },
    )
    await flow.pass_through()
    await flow.until_like(
        WORKLOAD_VERSIONS, "myapp-myapp-1.21.0", {"status": {"currentPhase": "WorkloadDeploy"}}
    )
    assert flow.all(TASKS) == []
    template = {"metadata": {"labels": {OUTCOME: None}}}
    await flow.change("Deployment", "internal-app", {"spec": {"template": template}})
    await flow.until_ended(WORKLOAD_VERSIONS, "myapp-myapp-1.21.0")
    await flow.delete("Deployment", "internal-app", propagation="Background")
    await flow.until(
        lambda: len(flow.find(WORKLOADS, "myapp-myapp")["metadata"]["ownerReferences"]) == 1
    )
    await flow.change("Deployment", "public-app", {"spec": {"replicas": 2}})
    await flow.until_released("public-app", 2)
    await flow.pass_through()
    assert len(flow.all(TASKS)) == 1


async def test_in_an_app_of_a_user_the_listed_version_goes_on(flow):
    await flow.create(
        app("shop", "1", ("cart", "1")),
        deployment("blue", keptn("cart", "1", app="shop")),
        deployment("green", keptn("cart", "2", app="shop")),
    )
    await flow.until_released("blue")
    await flow.until_ended(WORKLOAD_VERSIONS, "shop-cart-1")
    await flow.until_like(WORKLOAD_VERSIONS, "shop-cart-2", {"status": {"status": "Pending"}})
    await flow.stay_gated("green")
    await flow.change(
        "KeptnApp",
        "shop",
        {"spec": {"version": "2", "workloads": [{"name": "cart", "version": "2"}]}},
    )
    await flow.until_released("green")


async def test_a_workload_outlives_the_older_of_two_replicasets_of_one_second(flow):
    """A revisionHistoryLimit of 0 has the older one collected while the task runs."""
    given = keptn("web", "1", post_deployment_tasks="hanging")
    await flow.create(
        container_task("hanging", "hang"), deployment("web", given, revisionHistoryLimit=0)
    )
    await flow.until(lambda: flow.pods("web"))
    (older,) = flow.all(REPLICA_SETS)
    env = [{"name": "RESTARTED", "value": "1"}]
    container = {"name": "ledger", "image": IMAGE, "env": env}
    await flow.change(
        "Deployment", "web", {"spec": {"template": {"spec": {"containers": [container]}}}}
    )
    await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    await flow.until(lambda: flow.find(REPLICA_SETS, older["metadata"]["name"]) is None)
    (newer,) = flow.all(REPLICA_SETS)
    owner = {"uid": newer["metadata"]["uid"]}
    await flow.until_like(WORKLOADS, "web-web", {"metadata": {"ownerReferences": [owner]}})
    await flow.let_end()
    await flow.until_ended(WORKLOAD_VERSIONS, "web-web-1")
    await flow.until_ended(APP_VERSIONS, "web-1-6b86b273")
    assert len(flow.all(TASKS)) == 1
