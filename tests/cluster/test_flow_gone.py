"""Flows whose workloads go: owners that are deleted, or whose pods name another workload."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import APP_VERSIONS, APPS, WORKLOAD_VERSIONS
from harbourmaster.gates.names import app_version_name
from helpers.flow.manifests import container_task, deployment, keptn, owner

pytestmark = pytest.mark.gate
SHOP = {"app": "shop"}


@pytest.fixture(autouse=True)
async def short_request_timeout(harbour, client):
    """Let an app follow its workloads after a second."""
    async with harbour.use_config(client, keptnAppCreationRequestTimeoutSeconds=1):
        yield


async def to_template(flow, kind, name, **annotations):
    """Change annotations of an owner's pods; None removes one."""
    given = {f"keptn.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    await flow.change(kind, name, {"spec": {"template": {"metadata": {"annotations": given}}}})


async def until_listed(flow, *entries):
    """Wait until the app lists exactly these workloads, and its newest version has succeeded."""

    def is_listed():
        app = flow.find(APPS, "shop")
        listed = app and {(item["name"], item["version"]) for item in app["spec"]["workloads"]}
        return app if listed == set(entries) else None

    def why():
        return f"the app does not list {entries}: {flow.find(APPS, 'shop')}"

    app = await flow.until(is_listed, why=why)
    metadata, version = app["metadata"], app["spec"]["version"]
    name = app_version_name("shop", version, metadata["generation"])
    await flow.until_ended(APP_VERSIONS, name)
    return app


async def test_a_renamed_workload_whose_check_failed_fails_no_later_version(flow):
    await flow.create(
        container_task("failing", "fail"),
        deployment("pay", keptn("pay", "1", **SHOP)),
        deployment("cart", keptn("cart", "1", pre_deployment_tasks="failing", **SHOP)),
    )
    await flow.until_ended(WORKLOAD_VERSIONS, "shop-cart-1", "Failed")
    failed = await flow.until(lambda: flow.all(APP_VERSIONS, {"status": {"status": "Failed"}}))
    await to_template(flow, "Deployment", "cart", workload="cart-api", pre_deployment_tasks=None)
    await until_listed(flow, ("pay", "1"), ("cart-api", "1"))
    await to_template(flow, "Deployment", "pay", version="2")
    await until_listed(flow, ("pay", "2"), ("cart-api", "1"))
    assert flow.all(APP_VERSIONS, {"status": {"status": "Failed"}}) == failed
    reasons = [event["reason"] for event in flow.events(type="Warning")]
    assert reasons.count("AppCompletedFailed") == len(failed)


@pytest.mark.full
async def test_a_rollback_brings_the_former_workload_back(flow):
    await flow.create(
        deployment("cart", keptn("cart", "1", **SHOP)), deployment("pay", keptn("pay", "1", **SHOP))
    )
    await until_listed(flow, ("cart", "1"), ("pay", "1"))
    await to_template(flow, "Deployment", "cart", workload="cart-api")
    before = await until_listed(flow, ("cart-api", "1"), ("pay", "1"))
    await to_template(flow, "Deployment", "cart", workload="cart")
    after = await until_listed(flow, ("cart", "1"), ("pay", "1"))
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await flow.until_released("cart")


@pytest.mark.full
async def test_a_renamed_workload_of_a_statefulset_leaves_the_app(flow):
    await flow.create(owner("StatefulSet", "db", keptn("db", "1", **SHOP), replicas=2))
    await until_listed(flow, ("db", "1"))
    await to_template(flow, "StatefulSet", "db", workload="store", version="2")
    await until_listed(flow, ("store", "2"))


async def test_an_app_follows_deleted_deployments_and_goes_with_the_last_one(flow):
    await flow.create(
        container_task("hanging", "hang"),
        deployment("pay", keptn("pay", "1", pre_deployment_tasks="hanging", **SHOP)),
        deployment("cart", keptn("cart", "1", **SHOP)),
    )
    await flow.until_released("cart")
    (waiting,) = await flow.until_all(APP_VERSIONS, {"status": {"currentPhase": "AppDeploy"}})
    await flow.delete("Deployment", "pay")
    await until_listed(flow, ("cart", "1"))
    await flow.until_ended(APP_VERSIONS, waiting["metadata"]["name"], "Deprecated")
    await flow.delete("Deployment", "cart")
    await flow.until(lambda: flow.find(APPS, "shop") is None)
    await flow.until(lambda: not (flow.all(APP_VERSIONS) or flow.all(WORKLOAD_VERSIONS)))
    await flow.until_told("DeleteAppFinished", "shop", type="Normal")
