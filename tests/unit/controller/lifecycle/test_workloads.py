"""Each version of a workload has an object (keptn-spec 3.4)."""

from __future__ import annotations

import pytest

from harbourmaster.api.resources import WORKLOAD_VERSIONS, WORKLOADS
from harbourmaster.controller.lifecycle import watches
from harbourmaster.gates.names import version_name
from helpers.gated import PROD, names, owners_of, put, version_of, workload_of
from helpers.lifecycle import await_signal, running
from helpers.lifecycle_objects import owners


def workload(name="shop-waiter", version="1.0", uid="w-1", owner="rs-1", **spec):
    return {
        "metadata": {
            "name": name,
            "namespace": PROD,
            "uid": uid,
            "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "waiter", "uid": owner}
            ],
        },
        "spec": {
            "app": "shop",
            "version": version,
            "resourceReference": {"uid": owner, "kind": "ReplicaSet", "name": "waiter"},
            **spec,
        },
        "status": {"owners": [owner]},
    }


def change(api, name="shop-waiter", **spec):
    changed = workload_of(api, name)
    api.put(WORKLOADS, {**changed, "spec": {**changed["spec"], **spec}})


async def current(world, api, text, name="shop-waiter"):
    await world.until(
        lambda: workload_of(api, name).get("status", {}).get("currentVersion") == text
    )


async def test_a_changed_spec_is_handed_on_and_what_is_done_stays(api, client):
    put(api, WORKLOADS, workload(preDeploymentTasks=["a"]))
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, "1.0")
        done = {"status": "Succeeded", "preDeploymentStatus": "Succeeded"}
        api.put(WORKLOAD_VERSIONS, {**version_of(api), "status": done})
        reference = {"uid": "rs-2", "kind": "ReplicaSet", "name": "waiter-2"}
        change(api, resourceReference=reference, preDeploymentTasks=["b"])
        await world.until(lambda: version_of(api)["spec"]["resourceReference"] == reference)
    version = version_of(api)
    assert version["spec"]["preDeploymentTasks"] == ["b"]
    assert version["status"] == done
    assert owners_of(api) == ["rs-1", "rs-2"]
    assert names(api, WORKLOAD_VERSIONS) == ["shop-waiter-1.0"]


async def test_a_version_that_is_there_is_taken_over(api, client):
    spec = {**workload()["spec"], "workloadName": "shop-waiter"}
    put(
        api,
        WORKLOAD_VERSIONS,
        {
            "metadata": {"name": "shop-waiter-1.0", "namespace": PROD, **owners(uid="w-1")},
            "spec": spec,
        },
    )
    put(api, WORKLOADS, workload())
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, "1.0")
    assert not api.seen("create")


async def test_a_version_of_a_former_workload_goes_first(api, client):
    spec = {**workload()["spec"], "workloadName": "shop-waiter"}
    former = {"apiVersion": "v1", "kind": "KeptnWorkload", "name": "shop-waiter", "uid": "w-0"}
    metadata = {
        "name": "shop-waiter-1.0",
        "namespace": PROD,
        "uid": "v-0",
        "ownerReferences": [{**former, "controller": True}],
    }
    put(api, WORKLOAD_VERSIONS, {"metadata": metadata, "spec": spec})
    put(api, WORKLOADS, workload())
    async with running(client, watches.WORKLOADS) as world:
        put(api, WORKLOADS, workload("shop-zoo", uid="w-2"))
        await current(world, api, "1.0", "shop-zoo")
        assert "currentVersion" not in workload_of(api)["status"]
        api.remove(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)
        await current(world, api, "1.0")
    assert version_of(api)["metadata"]["uid"] != "v-0"


async def test_a_version_deleted_by_hand_comes_again(api, client):
    put(api, WORKLOADS, workload())
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, "1.0")
        before = version_of(api)["metadata"]["uid"]
        await world.until(lambda: len(world.caches.workload_versions.store))
        api.remove(WORKLOAD_VERSIONS, "shop-waiter-1.0", PROD)
        await world.until(
            lambda: names(api, WORKLOAD_VERSIONS) and version_of(api)["metadata"]["uid"] != before
        )


@pytest.mark.parametrize("version", ["1.0+b", "a b", "-" * 3])
async def test_any_version_gives_an_object(api, client, version):
    put(api, WORKLOADS, workload(version=version))
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, version)
    assert version_of(api, version_name("shop-waiter", version))["spec"]["version"] == version


async def test_what_the_api_refuses_is_told_and_not_tried_again(api, client):
    api.fail_next("create", "/keptnworkloadversions$", None, status=422)
    put(api, WORKLOADS, workload())
    async with running(client, watches.WORKLOADS) as world:
        await await_signal(world, "CreateWorkloadVersionFailed")
        api.heal()
        change(api, version="2.0")
        await current(world, api, "2.0")
    assert len(api.seen("create")) == 2


async def test_missing_rights_are_told_and_tried_again(api, client):
    api.forbid("create", WORKLOAD_VERSIONS)
    put(api, WORKLOADS, workload())
    async with running(client, watches.WORKLOADS) as world:
        await await_signal(world, "CreateWorkloadVersionFailed")
        assert not workload_of(api, "shop-waiter").get("status", {}).get("currentVersion")
        api.heal()
        await current(world, api, "1.0")


async def test_another_version_of_that_name_is_left_alone(api, client):
    spec = {**workload(version="1_0")["spec"], "workloadName": "shop-waiter"}
    metadata = {"name": "shop-waiter-1-0", "namespace": PROD}
    put(api, WORKLOAD_VERSIONS, {"metadata": metadata, "spec": spec})
    put(api, WORKLOADS, workload(version="1-0"))
    async with running(client, watches.WORKLOADS) as world:
        await await_signal(world, "CreateWorkloadVersionFailed")
    assert version_of(api, "shop-waiter-1-0")["spec"]["version"] == "1_0"
    assert "currentVersion" not in workload_of(api)["status"]


async def test_a_workload_that_ends_is_left_alone(api, client):
    ending = workload()
    ending["metadata"] |= {"deletionTimestamp": "2026-03-01T10:00:00Z", "finalizers": ["a/b"]}
    put(api, WORKLOADS, ending)
    put(api, WORKLOADS, workload("shop-other", uid="w-2"))
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, "1.0", "shop-other")
    assert names(api, WORKLOAD_VERSIONS) == ["shop-other-1.0"]


@pytest.mark.claim("O20")
async def test_a_workload_made_by_hand_gets_a_version_that_is_not_generated(api, client):
    by_hand = workload()
    del by_hand["metadata"]["ownerReferences"]
    put(api, WORKLOADS, by_hand)
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, "1.0")
    (owner,) = version_of(api)["metadata"]["ownerReferences"]
    assert (owner["uid"], "controller" in owner) == ("w-1", False)


@pytest.mark.claim("O20")
async def test_the_version_of_a_workload_made_by_hand_is_replaced_once_it_has_pods(api, client):
    by_hand = workload()
    owners = by_hand["metadata"].pop("ownerReferences")
    put(api, WORKLOADS, by_hand)
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, "1.0")
        before = version_of(api)["metadata"]["uid"]
        made = workload_of(api, "shop-waiter")
        api.put(WORKLOADS, {**made, "metadata": {**made["metadata"], "ownerReferences": owners}})

        def is_replaced():
            by_hand = names(api, WORKLOAD_VERSIONS) and version_of(api)["metadata"]
            return by_hand and by_hand["uid"] != before and by_hand["ownerReferences"]

        (owner,) = await world.until(is_replaced)
    assert owner["controller"] is True


@pytest.mark.claim("O20")
@pytest.mark.parametrize("lost", ["workload", "version"])
async def test_a_spec_is_not_handed_on_from_or_to_what_lost_its_owner(api, client, lost):
    """A tenant can change an object that ``kubectl delete --cascade=orphan`` of its owner left."""
    put(api, WORKLOADS, workload(preDeploymentTasks=["a"]))
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, "1.0")
        resource = WORKLOADS if lost == "workload" else WORKLOAD_VERSIONS
        orphan = workload_of(api, "shop-waiter") if lost == "workload" else version_of(api)
        metadata = {**orphan["metadata"], "ownerReferences": []}
        api.put(resource, {**orphan, "metadata": metadata})
        change(api, preDeploymentTasks=[])
        put(api, WORKLOADS, workload("shop-other"))
        await current(world, api, "1.0", "shop-other")
    assert version_of(api)["spec"]["preDeploymentTasks"] == ["a"]
    assert ("CreateWorkloadVersionFailed" in world.signals.reasons) == (lost == "version")


async def test_a_superseded_version_goes_on_when_its_workload_returns_to_it(api, client):
    put(api, WORKLOADS, workload())
    async with running(client, watches.WORKLOADS) as world:
        await current(world, api, "1.0")
        status = {"status": "Deprecated", "preDeploymentStatus": "Succeeded", "endTime": "2026"}
        rest = {"deploymentStatus": "Deprecated", "currentPhase": "WorkloadDeploy"}
        put(api, WORKLOAD_VERSIONS, {**version_of(api), "status": {**status, **rest}})
        await world.until(lambda: version_of(api)["status"]["status"] == "Progressing")
    assert version_of(api)["status"]["preDeploymentStatus"] == "Succeeded"
    assert version_of(api)["status"].get("deploymentStatus", "Pending") == "Pending"
