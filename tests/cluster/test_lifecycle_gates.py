"""Gated pods, workloads and apps on the real API server, without admission and without phases.

Pods get their gate by their template. What phases would come to, the tests write: the reconcilers
of gates, workloads, apps and creation requests run in this process.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from harbourmaster.api.resources import (
    DEPLOYMENTS,
    EVENTS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.cli.main import main
from helpers.cluster import (
    delete_namespace,
    fresh_namespace,
)
from helpers.controller import connected
from helpers.gated import CHECKED, FAILED, GATE, MINE
from helpers.gated_namespace import GatedNamespace, annotations, gates
from helpers.lifecycle import running
from helpers.patience import COLLECTED

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

FOREIGN = "example.com/quota"


@pytest.fixture
async def client(control_plane):
    async with connected(control_plane.kubeconfig) as found:
        yield found


@pytest.fixture
async def place(request, client, kubectl):
    name = fresh_namespace(kubectl, request.node.name)
    async with GatedNamespace(client, name) as found:
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


async def test_many_pods_of_one_version_make_one_workload(place, client):
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
    assert "does not have the gate" in capsys.readouterr().err
