"""A KeptnWorkload that a user creates in the place of a generated one decides nothing (D18)."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.resources import WORKLOAD_VERSIONS, WORKLOADS
from harbourmaster.controller.lifecycle import pod_workloads, watches
from harbourmaster.gates.owners import SUPPORTED
from helpers.gated import (
    MINE,
    PROD,
    keptn,
    make,
    names,
    owner_ref,
    pod,
    put,
    version_of,
    version_there,
    waiting,
    workload_of,
)
from helpers.lifecycle import await_signal, running

pytestmark = pytest.mark.usefixtures("pod_owners")

CHECKS = keptn(pre_deployment_tasks="scan")
FOREVER = {"gates.harbourmaster.dev/since": "9999-12-31T23:59:59Z"}
OTHERS = {"gates.harbourmaster.dev/other-owners": '{"rs-1":["1.0","9999-12-31T23:59:59Z"]}'}


def forge(api, *owners, version="1.0", annotations=FOREVER, **spec):
    """Create a workload without checks, as a user does who passes the guard."""
    reference = {"uid": "rs-1", "kind": "ReplicaSet", "name": "waiter-rs"}
    metadata = {"name": "shop-waiter", "namespace": PROD, "annotations": annotations}
    spec = {"app": "shop", "version": version, "resourceReference": reference, **spec}
    put(api, WORKLOADS, {"metadata": {**metadata, "ownerReferences": list(owners)}, "spec": spec})


async def assert_checked(api, world):
    """Assert that the version comes from the pod."""
    await version_there(api, world)
    version = version_of(api)
    assert version["spec"]["preDeploymentTasks"] == ["scan"]
    assert version["metadata"]["ownerReferences"][0]["controller"] is True
    workload = workload_of(api)
    assert workload["spec"]["preDeploymentTasks"] == ["scan"]
    assert [owner["uid"] for owner in workload["metadata"]["ownerReferences"]] == ["rs-1"]
    assert workload["metadata"]["annotations"] == {
        "gates.harbourmaster.dev/since": "2026-03-01T10:00:00Z",
        "gates.harbourmaster.dev/written-version": "1.0",
    }
    assert waiting(api) == ["waiter-1"]


@pytest.mark.claim("O32")
@pytest.mark.parametrize("uid", ["rs-1", "d-1", ""])
@pytest.mark.parametrize("kind", SUPPORTED)
async def test_a_workload_with_an_owner_that_was_not_recorded_gives_no_version(
    api, client, kind, uid
):
    forge(api, owner_ref(kind, "waiter", uid))
    async with running(client, *MINE) as world:
        put(api, WORKLOADS, {**workload_of(api), "metadata": {"name": "other", "namespace": PROD}})
        await world.until(lambda: "other-1.0" in names(api, WORKLOAD_VERSIONS))
        assert names(api, WORKLOAD_VERSIONS) == ["other-1.0"]
        make(api, pod(annotations=CHECKS))
        await assert_checked(api, world)
        await await_signal(world, "UpdateWorkloadOwnerUnknown")


@pytest.mark.claim("O32")
@pytest.mark.parametrize("annotations", [FOREVER, OTHERS, FOREVER | OTHERS])
@pytest.mark.parametrize("kind", [*SUPPORTED, None])
async def test_a_workload_that_comes_back_with_another_owner_is_not_trusted_after_a_restart(
    api, client, kind, annotations
):
    make(api, pod(annotations=CHECKS))
    async with running(client, *MINE) as world:
        await version_there(api, world)
    api.remove(WORKLOADS, "shop-waiter", PROD)
    api.remove(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)
    forge(api, *([owner_ref(kind, "waiter", "d-1")] if kind else ()), annotations=annotations)
    async with running(client, *MINE) as world:

        def is_replaced():
            versions = names(api, WORKLOAD_VERSIONS) and version_of(api)
            return versions and versions["spec"].get("preDeploymentTasks")

        await world.until(is_replaced)
        await assert_checked(api, world)


@pytest.mark.claim("O32")
async def test_an_owner_that_is_added_later_counts_no_more_than_the_recorded_ones(api, client):
    make(api, pod(annotations=CHECKS))
    async with running(client, *MINE) as world:
        await version_there(api, world)
        await world.until(lambda: workload_of(api).get("status", {}).get("currentVersion"))
        workload = workload_of(api)
        assert workload["status"] == {"currentVersion": "1.0", "owners": ["rs-1"]}
        forged = owner_ref("Rollout", "waiter", "ro-1")
        metadata = {**workload["metadata"], "annotations": OTHERS, "ownerReferences": [forged]}
        api.put(WORKLOADS, {**workload, "metadata": metadata, "spec": {**workload["spec"]}})
        api.remove(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)
        await version_there(api, world)
        await assert_checked(api, world)


@pytest.mark.claim("O32")
async def test_a_workload_of_keptn_or_of_a_former_release_goes_on(api, client):
    forge(api, owner_ref("ReplicaSet", "waiter-rs", "rs-1"), preDeploymentTasks=["scan"])
    stored = workload_of(api)
    api.put(WORKLOADS, {**stored, "status": {"currentVersion": "0.9"}})
    async with running(client, watches.WORKLOADS) as world:
        await version_there(api, world)
        await world.until(lambda: workload_of(api)["status"].get("owners"))
    assert version_of(api)["metadata"]["ownerReferences"][0]["controller"] is True
    assert workload_of(api)["status"] == {"currentVersion": "1.0", "owners": ["rs-1"]}


async def test_a_definition_without_the_record_is_told_with_what_to_do(api, client, monkeypatch):
    """The API server drops fields that an older definition does not know."""

    async def write_pruned(*_):
        return msgspec.json.encode({**workload_of(api), "status": {}})

    monkeypatch.setattr(pod_workloads, "write_status", write_pruned)
    async with running(client, *MINE) as world:
        make(api, pod(annotations=CHECKS))
        await await_signal(world, "UpdateWorkloadFailed")
        assert "kubectl apply --server-side -k deploy/crds" in str(world.signals.kept)
        assert names(api, WORKLOAD_VERSIONS) == []
