"""Gated pods, workloads and apps on the real API server, without admission and without phases.

Pods get their gate by their template. What phases would come to, the tests write: the reconcilers
of gates, workloads, apps and creation requests run in this process.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_CONTEXTS,
    APP_CREATION_REQUESTS,
    APP_VERSIONS,
    APPS,
    DEPLOYMENTS,
    EVENTS,
    PODS,
    STATEFUL_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.api.times import parse
from harbourmaster.cli.main import main
from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.controller import connected
from helpers.gate_place import Place, annotations, gates
from helpers.gated import CHECKED, FAILED, GATE, MINE
from helpers.lifecycle import running
from helpers.patience import COLLECTED

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

FOREIGN = "example.com/quota"
COMPLETED = {**CHECKED, "deploymentStatus": "Succeeded", "status": "Succeeded"}


@pytest.fixture
async def client(control_plane):
    async with connected(control_plane.kubeconfig) as found:
        yield found


@pytest.fixture
async def place(request, client, kubectl):
    name = fresh_namespace(kubectl, request.node.name)
    async with Place(client, name) as found:
        yield found
    delete_namespace(kubectl, name)


async def test_a_pod_becomes_a_workload_a_version_and_an_app_and_goes_when_checks_passed(
    place, client
):
    given = annotations("Front_End", "V1_RC", None, metadata="a=1,b=2=3,c,d=")
    given["keptn.sh/pre-deployment-tasks"] = "t1, t2,"
    async with running(client, *MINE) as world:
        await place.deploy(given=given, gates=(FOREIGN, GATE, "example.com/last"))
        version = await place.until_version(world, "front-end-front-end-v1-rc")
        workload = await place.get(WORKLOADS, "front-end-front-end")
        (pod,) = await place.pods()
        owner = pod["metadata"]["ownerReferences"][0]
        assert workload["spec"] == {
            "app": "front-end",
            "version": "v1_rc",
            "preDeploymentTasks": ["t1", "t2"],
            "metadata": {"a": "1", "d": ""},
            "resourceReference": {"kind": "ReplicaSet", "name": owner["name"], "uid": owner["uid"]},
        }
        (reference,) = workload["metadata"]["ownerReferences"]
        assert reference == {key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}
        (controller,) = version.metadata.owner_references
        assert (controller.kind, controller.name, controller.uid) == (
            "KeptnWorkload",
            "front-end-front-end",
            workload["metadata"]["uid"],
        )
        assert (controller.controller, controller.block_owner_deletion) == (True, True)
        app = await world.until(lambda: world.caches.apps.store.get(place.key("front-end")))
        assert app.metadata.labels == {"app.kubernetes.io/managed-by": "keptn"}
        assert app.metadata.annotations == {"keptn.sh/app-type": "single-service"}
        assert app.spec.version == "v1_rc"
        assert [(one.name, one.version) for one in app.spec.workloads] == [("front-end", "v1_rc")]
        await world.until(
            lambda: world.caches.app_versions.store.get(place.key("front-end-v1-rc-6b86b273"))
        )
        await world.until(lambda: not place.all(world.caches.creation_requests))
        await world.until(lambda: len(place.told(world)) >= 4)
        assert place.gated(world)
        await place.status(WORKLOAD_VERSIONS, version.metadata.name, **CHECKED)
        await world.until(lambda: not place.gated(world))
        (pod,) = await place.pods()
        assert gates(pod) == [FOREIGN, "example.com/last"]
        assert pod["metadata"]["annotations"]["keptn.sh/scheduling-gate-removed"] == "true"
        workload = await place.get(WORKLOADS, "front-end-front-end")
        assert workload["status"]["currentVersion"] == "v1_rc"
        assert [each.reason for each in place.told(world)] == ["created"] * 4


async def test_failed_checks_keep_the_gate_also_after_a_restart(place, client):
    async with running(client, *MINE) as world:
        await place.deploy()
        await place.until_version(world, "shop-waiter-1.0")
        await place.status(WORKLOAD_VERSIONS, "shop-waiter-1.0", **FAILED)
        await world.until(
            lambda: (
                world.caches.workload_versions.store.get(
                    place.key("shop-waiter-1.0")
                ).status.is_finished
            )
        )
    async with running(client, *MINE) as world:
        # What passed beside it shows that all was looked at.
        await place.deploy("passer", annotations("passer", app="passer"))
        await place.until_version(world, "passer-passer-1.0")
        await place.status(WORKLOAD_VERSIONS, "passer-passer-1.0", **CHECKED)
        await world.until(lambda: len(place.gated(world)) == 1)
        assert gates((await place.pods("1.0"))[0]) or gates((await place.pods("1.0"))[1])
        assert {pod.annotations["keptn.sh/workload"] for pod in place.gated(world)} == {"waiter"}


async def test_two_replica_sets_of_one_version_both_go_and_a_scale_up_goes_at_once(place, client):
    async with running(client, *MINE) as world:
        await place.deploy("blue", replicas=2)
        await place.deploy("green", replicas=2)
        await place.until_version(world, "shop-waiter-1.0")
        await world.until(lambda: len(place.gated(world)) == 4)
        await place.status(WORKLOAD_VERSIONS, "shop-waiter-1.0", **COMPLETED)
        await world.until(lambda: not place.gated(world))
        before = (await place.get(WORKLOADS, "shop-waiter"))["metadata"]
        assert before["generation"] <= 3
        await place.patch(DEPLOYMENTS, "blue", {"spec": {"replicas": 5}})
        await place.until_free(7)
        version = await place.get(WORKLOAD_VERSIONS, "shop-waiter-1.0")
        owners = version["metadata"]["annotations"]["gates.harbourmaster.dev/owners"].split(",")
        assert len(owners) == 2


async def test_a_new_version_of_a_stateful_set_waits_and_the_old_one_does_not(place, client):
    async with running(client, *MINE) as world:
        await place.deploy("store", annotations(version="0.4"), resource=STATEFUL_SETS)
        await place.until_version(world, "shop-waiter-0.4")
        await place.status(WORKLOAD_VERSIONS, "shop-waiter-0.4", **COMPLETED)
        await world.until(lambda: not place.gated(world))
        await place.template_is("store", annotations(version="0.5"), resource=STATEFUL_SETS)
        # The pod of the old revision never gets ready without a node, so it is taken away, where
        # the StatefulSet's controller did not do so.
        await place.client.delete(PODS, "store-0", place.namespace, missing_ok=True)
        version = await place.until_version(world, "shop-waiter-0.5")
        assert version.spec.previous_version == "0.4"
        (pod,) = await world.until(lambda: place.gated(world, "0.5"))
        workload = await world.until(
            lambda: (
                (
                    found := world.caches.workloads.store.get(place.key("shop-waiter"))
                ).status.current_version
                == "0.5"
                and found
            )
        )
        assert workload.spec.resource_reference.uid == pod.owner_references[0].uid
        assert place.gated(world, "0.5")
        await place.status(WORKLOAD_VERSIONS, "shop-waiter-0.5", **CHECKED)
        await world.until(lambda: not place.gated(world))


async def test_a_rollback_to_a_completed_version_goes_at_once_and_takes_the_app_back(place, client):
    single = {"app": None}
    async with running(client, *MINE) as world:
        await place.deploy(given=annotations(version="1.0", **single))
        await place.until_version(world, "waiter-waiter-1.0")
        await place.status(WORKLOAD_VERSIONS, "waiter-waiter-1.0", **COMPLETED)
        await world.until(lambda: not place.gated(world))
        await place.template_is("waiter", annotations(version="2.0", **single))
        await place.until_version(world, "waiter-waiter-2.0")
        app = place.key("waiter")
        await world.until(lambda: world.caches.apps.store.get(app).spec.version == "2.0")
        assert place.gated(world, "2.0")
        # The times of pods are whole seconds, and only a newer pod takes the workload back.
        await asyncio.sleep(1.0)
        await place.delete_pods("1.0")
        # A pod of the old ReplicaSet, while the rollout goes on, takes nothing back.
        await place.until_free(1, "1.0")
        assert world.caches.apps.store.get(app).spec.version == "2.0"
        await asyncio.sleep(1.0)
        await place.template_is("waiter", annotations(version="1.0", **single))
        await place.delete_pods("1.0")
        await world.until(lambda: world.caches.apps.store.get(app).spec.version == "1.0")
        await place.until_free(1, "1.0")
        workload = await place.get(WORKLOADS, "waiter-waiter")
        assert workload["spec"]["version"] == "1.0"


async def test_the_generations_of_an_app(place, client):
    async with running(client, *MINE) as world:
        versions = world.caches.app_versions.store
        await place.create(APP_CONTEXTS, "shop", {"preDeploymentTasks": ["warm"]})
        await place.create(APPS, "shop", {"version": "1.0", "workloads": []})
        first = await world.until(lambda: versions.get(place.key("shop-1.0-6b86b273")))
        assert (first.spec.previous_version, first.spec.app_name) == ("", "shop")
        assert first.spec.pre_deployment_tasks == ("warm",)
        assert (first.metadata.controller.kind, first.metadata.controller.name) == (
            "KeptnApp",
            "shop",
        )
        await world.until(
            lambda: world.caches.apps.store.get(place.key("shop")).status.current_version == "1.0"
        )
        await place.patch(APP_CONTEXTS, "shop", {"spec": {"preDeploymentTasks": ["cool"]}})
        await place.patch(APPS, "shop", {"metadata": {"labels": {"example.com/a": "b"}}})
        await place.patch(APPS, "shop", {"spec": {"version": "2.0"}})
        second = await world.until(lambda: versions.get(place.key("shop-2.0-d4735e3a")))
        assert (second.spec.previous_version, second.spec.pre_deployment_tasks) == (
            "1.0",
            ("cool",),
        )
        # The first one was not finished, and nobody waits for it any more.
        await world.until(
            lambda: versions.get(place.key("shop-1.0-6b86b273")).status.status == "Deprecated"
        )
        await place.status(
            APP_VERSIONS, "shop-2.0-d4735e3a", status="Succeeded", currentPhase="Completed"
        )
        await world.until(
            lambda: versions.get(place.key("shop-2.0-d4735e3a")).status.status == "Succeeded"
        )
        await world.until(
            lambda: world.caches.apps.store.get(place.key("shop")).status.current_version == "2.0"
        )
        await place.patch(APPS, "shop", {"spec": {"revision": 2}})
        third = await world.until(lambda: versions.get(place.key("shop-2.0-4e074085")))
        assert third.spec.previous_version == ""
        await world.until(
            lambda: versions.get(place.key("shop-2.0-d4735e3a")).status.status == "Deprecated"
        )
        ended = (await place.get(APP_VERSIONS, "shop-2.0-d4735e3a"))["status"]
        assert {value for key, value in ended.items() if key.endswith("tatus")} == {"Deprecated"}
        assert ended["currentPhase"] == "Completed"
        assert len(place.all(world.caches.app_versions)) == 3


async def test_the_app_of_several_workloads_comes_when_its_time_has_come(place, client):
    timeout = {"creation_request_timeout": 3.0}
    async with running(client, *MINE, configuration=timeout) as world:
        await place.deploy("a", annotations("a", "1"))
        await place.deploy("b", annotations("b", "2"))
        app = await world.until(lambda: world.caches.apps.store.get(place.key("shop")))
        assert app.spec.version == "0d12cea1c0"
        assert [(one.name, one.version) for one in app.spec.workloads] == [("a", "1"), ("b", "2")]
        workload = await place.get(WORKLOADS, "shop-a")
        waited = parse(app.metadata.creation_timestamp) - parse(
            workload["metadata"]["creationTimestamp"]
        )
        assert waited.total_seconds() >= 3
        # One goes, and another request: what is left is listed anew.
        await place.client.delete(DEPLOYMENTS, "b", place.namespace, propagation="Background")
        await world.until(
            lambda: place.key("shop-b") not in world.caches.workloads.store, COLLECTED
        )
        await place.create(APP_CREATION_REQUESTS, "shop", {"appName": "shop"})
        app = await world.until(
            lambda: (
                (found := world.caches.apps.store.get(place.key("shop"))).spec.version == "1"
                and found
            )
        )
        assert [(one.name, one.version) for one in app.spec.workloads] == [("a", "1")]


async def test_an_app_without_workloads_and_an_app_of_a_person(place, client):
    timeout = {"creation_request_timeout": 1.0}
    async with running(client, *MINE, configuration=timeout) as world:
        apps = world.caches.apps.store
        await place.create(APP_CREATION_REQUESTS, "void", {"appName": "void"})
        app = await world.until(lambda: apps.get(place.key("void")))
        assert (app.spec.version, app.spec.workloads) == ("e3b0c44298", ())
        mine = {"version": "7", "workloads": [{"name": "x", "version": "1"}]}
        await place.create(APPS, "shop", mine)
        await place.create(APP_CREATION_REQUESTS, "shop", {"appName": "shop"})
        await place.deploy()
        await world.until(
            lambda: (
                not place.all(world.caches.creation_requests)
                and world.caches.workload_versions.store.get(place.key("shop-waiter-1.0"))
            )
        )
        found = await place.get(APPS, "shop")
        assert found["spec"] == {**mine, "revision": 1}


@pytest.mark.parametrize(
    ("above", "is_held"), [({}, False), (annotations("fleet", "3", None), True)], ids=["bare", "of"]
)
async def test_a_pod_gated_before_its_owner_was_known(place, client, above, is_held):
    provisional = {"gates.harbourmaster.dev/parent": "unresolved"}
    async with running(client, *MINE) as world:
        await place.create(
            DEPLOYMENTS,
            "fleet",
            {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "waiter"}},
                "template": place.template(provisional),
            },
            annotations=above,
        )
        if is_held:
            await place.until_version(world, "fleet-fleet-3")
            (pod,) = await place.pods()
            found = pod["metadata"]["annotations"]
            assert "gates.harbourmaster.dev/parent" not in found
            assert (found["keptn.sh/app"], found["keptn.sh/version"]) == ("fleet", "3")
            assert gates(pod) == [GATE]
            await place.status(WORKLOAD_VERSIONS, "fleet-fleet-3", **CHECKED)
        (pod,) = await place.until_free()
        found = pod["metadata"]["annotations"]
        assert found["keptn.sh/scheduling-gate-removed"] == "true"
        assert "gates.harbourmaster.dev/parent" not in found
        assert bool(place.all(world.caches.workloads)) == is_held


async def test_a_pod_with_labels_alone_is_let_go(place, client):
    labels = {"keptn.sh/workload": "labelled", "keptn.sh/version": "1"}
    async with running(client, *MINE) as world:
        metadata = {"labels": {"app": "waiter", **labels}}
        template = {**place.template({}), "metadata": metadata}
        spec = {"selector": {"matchLabels": {"app": "waiter"}}, "template": template}
        await place.create(DEPLOYMENTS, "labelled", spec)
        await place.until_version(world, "labelled-labelled-1")
        (pod,) = await place.pods()
        assert "annotations" not in pod["metadata"]
        await place.status(WORKLOAD_VERSIONS, "labelled-labelled-1", **CHECKED)
        await world.until(lambda: not place.gated(world))
        (pod,) = await place.pods()
        assert pod["metadata"]["annotations"] == {"keptn.sh/scheduling-gate-removed": "true"}


async def test_names_that_the_api_refuses_are_told_and_nothing_is_let_go(place, client):
    async with running(client, *MINE) as world:
        await place.deploy("blank", annotations("no name!", app=None))
        await place.deploy("plus", annotations("plus", "1.0+b", None))
        long = "a" * 300
        await place.deploy("long", annotations("w", app=long))
        versions = world.caches.workload_versions
        await world.until(lambda: len(place.gated(world)) == 3)
        await world.until(lambda: place.all(versions))
        failed = await world.until(
            lambda: len(found := place.told(world, "CreateWorkloadFailed")) == 2 and found
        )
        assert {one.about.split()[0] for one in failed} == {"Pod"}
        assert len(place.gated(world)) == 3
        assert [len(name) for name in place.all(versions)] == [253]


async def test_a_deleted_namespace_is_left_alone(place, client, kubectl):
    async with running(client, *MINE) as world:
        await place.deploy(replicas=3)
        await place.until_version(world, "shop-waiter-1.0")
        delete_namespace(kubectl, place.namespace)
        await world.until(lambda: not place.gated(world), COLLECTED)
        assert {one.reason for one in place.told(world)} == {"created"}


async def test_five_thousand_would_be_one_workload(place, client):
    """As many pods as the control plane starts in a moment: one workload, one version."""
    async with running(client, *MINE) as world:
        await place.deploy(replicas=60)
        await world.until(lambda: len(place.gated(world)) == 60)
        await place.until_version(world, "shop-waiter-1.0")
        await place.status(WORKLOAD_VERSIONS, "shop-waiter-1.0", **CHECKED)
        await world.until(lambda: not place.gated(world))
        workload = await place.get(WORKLOADS, "shop-waiter")
        assert workload["metadata"]["generation"] == 1
        version = await place.get(WORKLOAD_VERSIONS, "shop-waiter-1.0")
        assert version["metadata"]["generation"] == 1
        await world.until(lambda: len(place.told(world, "created")) >= 2)
        created = [one.about for one in place.told(world, "created")]
        assert sorted(created) == [
            "Workload shop-waiter",
            "WorkloadVersion shop-waiter-1.0",
        ]


async def test_a_workload_survives_the_end_of_its_old_replica_set(place, client):
    async with running(client, *MINE) as world:
        await place.deploy(given=annotations(version="0.1"))
        await place.until_version(world, "shop-waiter-0.1")
        await place.status(WORKLOAD_VERSIONS, "shop-waiter-0.1", **COMPLETED)
        await world.until(lambda: not place.gated(world))
        await place.patch(DEPLOYMENTS, "waiter", {"spec": {"revisionHistoryLimit": 0}})
        await place.template_is("waiter", annotations(version="0.2"))
        await place.until_version(world, "shop-waiter-0.2")
        workload = world.caches.workloads.store.get(place.key("shop-waiter"))
        (pod,) = place.gated(world, "0.2")
        assert [one.uid for one in workload.metadata.owner_references] == [
            pod.owner_references[0].uid
        ]


async def test_a_deleted_workload_comes_again_with_its_checks(place, client):
    # No app of itself, however long the garbage collector takes.
    timeout = {"creation_request_timeout": 2 * COLLECTED}
    async with running(client, *MINE, configuration=timeout) as world:
        await place.deploy()
        before = await place.until_version(world, "shop-waiter-1.0")
        await place.status(WORKLOAD_VERSIONS, "shop-waiter-1.0", **FAILED)
        await place.client.delete(WORKLOADS, "shop-waiter", place.namespace)
        after = await world.until(
            lambda: (
                (found := world.caches.workload_versions.store.get(place.key("shop-waiter-1.0")))
                and found.metadata.uid != before.metadata.uid
                and found
            ),
            COLLECTED,
        )
        assert after.status.status == "Pending"
        # Told after the write, which the watch may have brought before.
        created = await world.until(
            lambda: len(found := place.told(world, "created")) >= 4 and found
        )
        both = ["Workload shop-waiter", "WorkloadVersion shop-waiter-1.0"]
        assert [one.about for one in created] == both * 2


async def test_the_command_lets_a_pod_go_and_says_who_did_it(place, control_plane, capsys):
    await place.deploy("orphans", {"example.com/a": "b"})
    connection = f"--kubeconfig={control_plane.kubeconfig}"
    (pod,) = await place.until_gated()
    name = pod["metadata"]["name"]

    def run(*arguments):
        return main(["gate", *arguments, connection])

    assert await asyncio.to_thread(run, "list", "-n", place.namespace) == 0
    assert f"{place.namespace}/{name}" in (out := capsys.readouterr().out)
    assert "ORPHANED" in out
    release = ("release", place.key(name), "--reason", "incident 4711")
    assert await asyncio.to_thread(run, *release) == 0
    said = capsys.readouterr()
    who = said.out.strip().removeprefix(f"released {place.key(name)} for ")
    assert (said.err, "unknown" in who) == ("", False)
    (pod,) = await place.until_free()
    assert pod["metadata"]["annotations"]["gates.harbourmaster.dev/released-by"] == who
    page = await place.client.list(EVENTS, place.namespace)
    found = [msgspec.json.decode(each) for each in page.items]
    (event,) = [one for one in found if one["reason"] == "GateReleased"]
    assert event["note"] == f"released without its checks by {who}: incident 4711"
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    assert await asyncio.to_thread(run, *release) == 1
    assert "carries no gate" in capsys.readouterr().err
