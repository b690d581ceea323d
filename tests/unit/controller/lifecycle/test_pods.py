"""Gated pods on a fake API server get workloads and apps, and are released by their checks."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.api.resources import (
    APP_CREATION_REQUESTS,
    APPS,
    DAEMON_SETS,
    DEPLOYMENTS,
    PODS,
    REPLICA_SETS,
    ROLLOUTS,
    STATEFUL_SETS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.controller.lifecycle import watches
from harbourmaster.controller.lifecycle.owners import decode_owner, has_other_revision
from harbourmaster.lifecycle.gated_pods import decode_pod
from helpers.gated import (
    CREATED,
    GATE,
    LATER,
    MINE,
    PROD,
    PROVISIONAL,
    REMOVED,
    annotations_of,
    deployment,
    gates,
    keptn,
    let_pass,
    make,
    names,
    owner_ref,
    owners_of,
    pod,
    put,
    release,
    replica_set,
    tick,
    version_of,
    version_there,
    waiting,
    workload_of,
)
from helpers.lifecycle import await_signal, running

PATCHES = "/pods/"


pytestmark = pytest.mark.usefixtures("pod_owners")


async def test_what_a_pod_stands_for_is_made_once_and_it_goes_when_checks_passed(api, client):
    make(api, *(pod(f"waiter-{number}") for number in range(1, 40)))
    async with running(client, *MINE) as world:
        await version_there(api, world)
        assert len(waiting(api)) == 39
        await release(api, world)
    written = [seen.path.rpartition("/")[2] for seen in api.seen("create")]
    # Of a request a second is tried, and refused, until the watch brings the first.
    assert written.count("keptnappcreationrequests") < 5
    assert sorted({*written}) == [
        "keptnappcreationrequests",
        "keptnworkloads",
        "keptnworkloadversions",
    ]
    assert written.count("keptnworkloads") == written.count("keptnworkloadversions") == 1
    assert len(api.seen("patch", PATCHES)) == 39
    assert not api.seen("patch", "/keptnworkloads/shop-waiter$")


async def test_a_newer_replica_set_of_the_version_becomes_its_reference(api, client):
    make(api, pod())
    async with running(client, *MINE) as world:
        await version_there(api, world)
        await release(api, world)
        put(api, REPLICA_SETS, replica_set("waiter-rs2", "rs-2", "2"))
        put(api, DEPLOYMENTS, deployment(revision="2"))
        owners = [owner_ref("ReplicaSet", "waiter-rs2", "rs-2")]
        make(api, pod("waiter-2", owners=owners, created=LATER))
        await world.until(lambda: not waiting(api))
        await world.until(lambda: version_of(api)["spec"]["resourceReference"]["uid"] == "rs-2")
        # A pod of the old one, evicted perhaps, goes and changes nothing.
        make(api, pod("waiter-3", created="2026-03-01T10:00:09Z"))
        await world.until(lambda: not waiting(api))
    assert workload_of(api)["spec"]["resourceReference"]["uid"] == "rs-2"
    (reference,) = workload_of(api)["metadata"]["ownerReferences"]
    assert reference["uid"] == "rs-2"
    assert set(owners_of(api)) == {"rs-1", "rs-2"}


def sets(kind, revision):
    """Return the resource and a StatefulSet or DaemonSet at a revision."""
    metadata = {"name": "store", "namespace": PROD, "uid": "s-1"}
    if kind == "StatefulSet":
        status = {"observedGeneration": 1, "updateRevision": f"store-{revision}"}
        return STATEFUL_SETS, {"metadata": metadata, "status": status}
    annotations = {"deprecated.daemonset.template.generation": str(revision)}
    return DAEMON_SETS, {"metadata": {**metadata, "annotations": annotations}}


def of_set(kind, name, version, revision, created=CREATED):
    label = (
        {"controller-revision-hash": f"store-{revision}"}
        if kind == "StatefulSet"
        else {"pod-template-generation": str(revision)}
    )
    owners = [owner_ref(kind, "store", "s-1")]
    return pod(name, keptn(version=version), owners=owners, labels=label, created=created)


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
async def test_a_new_version_of_one_owner_waits_and_the_old_one_does_not(api, client, kind):
    put(api, *sets(kind, 1))
    make(api, of_set(kind, "store-1", "0.4", 1))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-waiter-0.4")
        await release(api, world, "shop-waiter-0.4")
        put(api, *sets(kind, 2))
        make(api, of_set(kind, "store-2", "0.5", 2, LATER))
        await version_there(api, world, "shop-waiter-0.5")
        # One of the old revision comes back in the middle of the rollout.
        make(api, of_set(kind, "store-3", "0.4", 1, "2026-03-01T10:00:09Z"))
        await world.until(lambda: waiting(api) == ["store-2"])
        assert workload_of(api)["spec"]["version"] == "0.5"
        assert version_of(api, "shop-waiter-0.5")["spec"]["previousVersion"] == "0.4"
        await release(api, world, "shop-waiter-0.5")


async def test_a_former_replica_set_that_is_older_than_its_gates_keeps_its_pods(api, client):
    """A stage that holds the new version must not take the pods that serve meanwhile."""

    def put_former(available):
        former = {**replica_set(), "status": {"replicas": 4, "availableReplicas": available}}
        put(api, REPLICA_SETS, former)

    put_former(0)
    put(api, REPLICA_SETS, replica_set("waiter-rs2", "rs-2", "2"))
    put(api, DEPLOYMENTS, deployment(revision="2"))
    owners = [owner_ref("ReplicaSet", "waiter-rs2", "rs-2")]
    make(api, pod("waiter-2", keptn(version="2.0"), owners=owners))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-waiter-2.0")
        make(api, pod("waiter-1", created=LATER))
        await await_signal(world, "CreateWorkloadVersionFailed")
        assert waiting(api) == ["waiter-1", "waiter-2"]
        put_former(3)
        make(api, pod("waiter-3", created="2026-03-01T10:00:09Z"))
        await world.until(lambda: "waiter-3" not in waiting(api))
        assert "waiter-2" in waiting(api)
    assert names(api, WORKLOAD_VERSIONS) == ["shop-waiter-2.0"]


async def test_a_pod_below_the_partition_gets_a_version_that_was_never_checked(api, client):
    def put_partition(partition, generation):
        resource, stateful_set = sets("StatefulSet", 2)
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}
        stateful_set["spec"] = {"updateStrategy": rolling, "ordinals": {"start": 5}}
        stateful_set["status"]["observedGeneration"] = generation
        put(api, resource, stateful_set)
        assert api.get(resource, "store", PROD)["metadata"]["generation"] == generation

    put_partition(0, 1)
    make(api, of_set("StatefulSet", "store-7", "0.5", 2))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-waiter-0.5")
        await release(api, world, "shop-waiter-0.5")
        # Gates were switched on between both revisions.
        make(api, of_set("StatefulSet", "store-6", "0.4", 1, LATER))
        await await_signal(world, "CreateWorkloadVersionFailed")
        step = "of its pods was never checked: delete pod store-6"
        assert world.signals.kept[-1].text.endswith(f"version 0.4 {step}")
        put_partition(2, 2)
        make(api, of_set("StatefulSet", "store-5", "0.4", 1, LATER))
        await version_there(api, world, "shop-waiter-0.4")
        await release(api, world, "shop-waiter-0.4")
        # A pod of the new revision takes the workload, and one of the former does not.
        make(api, of_set("StatefulSet", "store-8", "0.5", 2, "2026-03-01T10:00:09Z"))
        await world.until(lambda: workload_of(api)["spec"]["version"] == "0.5")
        make(api, of_set("StatefulSet", "store-4", "0.4", 1, "2026-03-01T10:00:10Z"))
        await world.until(lambda: not waiting(api))
        assert workload_of(api)["spec"]["version"] == "0.5"


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
async def test_a_pod_that_is_replaced_only_on_delete_gets_a_version(api, client, kind):
    """Nothing replaces it, so without its checks it would wait forever."""
    resource, owner = sets(kind, 2)
    put(api, resource, {**owner, "spec": {"updateStrategy": {"type": "OnDelete"}}})
    make(api, of_set(kind, "store-1", "0.5", 2))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-waiter-0.5")
        await release(api, world, "shop-waiter-0.5")
        make(api, of_set(kind, "store-0", "0.4", 1, LATER))
        await version_there(api, world, "shop-waiter-0.4")
        await release(api, world, "shop-waiter-0.4")
        assert waiting(api) == []


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
async def test_a_waiting_pod_takes_the_workload_back_after_a_rollback(api, client, kind):
    """A StatefulSet whose pod is not ready replaces none: an older pod is of its template again."""
    put(api, *sets(kind, 1))
    make(api, of_set(kind, "store-0", "0.4", 1))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-waiter-0.4")
        put(api, *sets(kind, 2))
        make(api, of_set(kind, "store-1", "0.5", 2, LATER))
        await world.until(lambda: workload_of(api)["spec"]["version"] == "0.5")
        await version_there(api, world, "shop-waiter-0.5")
        resource, owner = sets(kind, 1)
        template = {"metadata": {"annotations": keptn(version="0.4")}}
        put(api, resource, {**owner, "spec": {"template": template}})
        await world.until(lambda: workload_of(api)["spec"]["version"] == "0.4")


ON_DELETE = {"type": "OnDelete"}


@pytest.mark.parametrize(
    ("name", "revision", "strategy", "is_other"),
    [
        ("store-5", "store-2", None, False),
        ("store-5", "store-1", None, True),
        ("store-5", "store-1", 0, True),
        ("store-5", "store-1", 1, False),
        ("store-6", "store-1", 1, True),
        ("store-5", "store-0", 1, True),
        ("store-5", "store-1", ON_DELETE, True),
        ("store-5", "", None, False),
    ],
    ids=[
        "newest",
        "rolling update",
        "no partition",
        "below the partition",
        "above the partition",
        "neither revision",
        "on delete",
        "unknown revision",
    ],
)
def test_a_deleted_pod_of_a_statefulset_may_get_another_revision(
    name, revision, strategy, is_other
):
    if isinstance(strategy, int):
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": strategy}}
    status = {
        "observedGeneration": 1,
        "currentRevision": "store-1",
        "updateRevision": "store-2",
    }
    stateful_set = {
        "metadata": {"name": "store", "uid": "s-1", "generation": 1},
        "spec": {"ordinals": {"start": 5}, **({"updateStrategy": strategy} if strategy else {})},
        "status": status,
    }
    labels = {"controller-revision-hash": revision} if revision else {}
    owners = [owner_ref("StatefulSet", "store", "s-1")]
    held = decode_pod(msgspec.json.encode(pod(name, labels=labels, owners=owners)))
    decoded = decode_owner(msgspec.json.encode(stateful_set))
    assert has_other_revision(held, decoded) == is_other
    for change in ({"generation": 2}, {"uid": "s-2"}):
        changed = {**stateful_set, "metadata": {**stateful_set["metadata"], **change}}
        assert not has_other_revision(held, decode_owner(msgspec.json.encode(changed)))


def with_image(owner, image):
    spec = owner.get("spec", {})
    template = {"spec": {"containers": [{"name": "main", "image": image}]}}
    return {**owner, "spec": {**spec, "template": template}}


@pytest.mark.parametrize(("image", "is_same"), [("cart:1", True), ("cart:2", False)])
async def test_a_version_in_other_case_is_the_same_only_with_the_same_images(
    api, client, image, is_same
):
    put(api, REPLICA_SETS, with_image(replica_set(), "cart:1"))
    put(api, REPLICA_SETS, with_image(replica_set("other-rs", "rs-2", above=None), image))
    make(api, pod(annotations=keptn(version="1.0-RC1")))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-waiter-1.0-rc1")
        await release(api, world, "shop-waiter-1.0-rc1")
        owners = [owner_ref("ReplicaSet", "other-rs", "rs-2")]
        make(api, pod("other-1", keptn(version="1.0-rc1"), owners=owners))
        # A pod of the first ReplicaSet is released at any time.
        make(api, pod("waiter-2", keptn(version="1.0-RC1")))
        if is_same:
            await world.until(lambda: not waiting(api))
            return
        await await_signal(world, "CreateWorkloadVersionFailed")
        await world.until(lambda: waiting(api) == ["other-1"])
    assert world.signals.kept[-1].text == (
        'version "1.0-rc1" differs only in upper and lower case from that of ReplicaSet '
        "waiter-rs, and its images differ: change the version"
    )
    assert list(owners_of(api, "shop-waiter-1.0-rc1")) == ["rs-1"]


async def test_a_template_of_one_owner_that_changes_the_case_alone_waits(api, client):
    put(api, *sets("StatefulSet", 1))
    make(api, of_set("StatefulSet", "store-1", "0.4-RC", 1))
    async with running(client, *MINE) as world:
        await version_there(api, world, "shop-waiter-0.4-rc")
        await release(api, world, "shop-waiter-0.4-rc")
        put(api, *sets("StatefulSet", 2))
        make(api, of_set("StatefulSet", "store-2", "0.4-rc", 2, LATER))
        await await_signal(world, "CreateWorkloadVersionFailed")
        assert waiting(api) == ["store-2"]


async def test_two_deployments_of_two_versions_are_checked_side_by_side(api, client):
    put(api, REPLICA_SETS, replica_set("canary-rs", "rs-2", above=None))
    canary = [owner_ref("ReplicaSet", "canary-rs", "rs-2")]
    configuration = {"creation_request_timeout": 0.0}
    async with running(client, *MINE, configuration=configuration) as world:
        for number in range(20):
            make(api, pod(f"stable-{number}"))
            make(api, pod(f"canary-{number}", keptn(version="2.0"), owners=canary))
        await version_there(api, world)
        await version_there(api, world, "shop-waiter-2.0")
        let_pass(api)
        await release(api, world, "shop-waiter-2.0")
        await world.until(
            lambda: (
                len(names(api, APPS)) and len(api.get(APPS, "shop", PROD)["spec"]["workloads"]) == 2
            )
        )
        (event,) = (
            signal for signal in world.signals.kept if signal.reason == "UpdateWorkloadOwnersShared"
        )
        patches = api.seen("patch", "/keptnworkloads/shop-waiter$")
        app = api.get(APPS, "shop", PROD)
        # Replaced and scaled pods are of versions that were checked.
        for number in range(20, 25):
            make(api, pod(f"stable-{number}", created=LATER))
            make(api, pod(f"canary-{number}", keptn(version="2.0"), owners=canary, created=LATER))
        await world.until(lambda: not waiting(api))
        assert api.get(APPS, "shop", PROD) == app
        assert len(api.seen("patch", "/keptnworkloads/shop-waiter$")) == len(patches) <= 2
    for text in ("ReplicaSet waiter-rs (version 1.0)", "ReplicaSet canary-rs (version 2.0)"):
        assert text in event.text
    assert {entry["version"] for entry in app["spec"]["workloads"]} == {"1.0", "2.0"}
    assert {owner["uid"] for owner in workload_of(api)["metadata"]["ownerReferences"]} == {
        "rs-1",
        "rs-2",
    }


@pytest.mark.parametrize("first", ["waiter-1", "waiter-2"])
async def test_of_two_replica_sets_of_one_second_the_newer_revision_counts(api, client, first):
    put(api, REPLICA_SETS, replica_set("waiter-rs2", "rs-2", "2"))
    second = [owner_ref("ReplicaSet", "waiter-rs2", "rs-2")]
    # The Deployment's controller writes its own revision after that of the ReplicaSet.
    pods = {"waiter-1": pod(), "waiter-2": pod("waiter-2", owners=second)}
    make(api, pods.pop(first))
    async with running(client, *MINE) as world:
        await version_there(api, world)
        make(api, *pods.values())
        await world.until(lambda: set(owners_of(api)) == {"rs-1", "rs-2"})
        await world.until(lambda: workload_of(api)["spec"]["resourceReference"]["uid"] == "rs-2")
        put(api, DEPLOYMENTS, deployment(revision="2"))
        await release(api, world)
        await world.until(lambda: not waiting(api))
    references = workload_of(api)["metadata"]["ownerReferences"]
    assert "rs-2" in {reference["uid"] for reference in references}
    assert workload_of(api)["spec"]["resourceReference"]["uid"] == "rs-2"
    assert len(api.seen("patch", "/keptnworkloads/shop-waiter$")) <= 1


async def test_a_pod_that_changes_under_our_hands_is_read_anew(api, client):
    make(api, pod(gates=(GATE, "example.com/quota")))
    async with running(client, *MINE) as world:
        await version_there(api, world)
        api.silence()
        moved = pod(gates=("example.com/quota", GATE))
        api.put(PODS, moved)
        let_pass(api)
        api.release()
        await world.until(lambda: not waiting(api))
    assert gates(api) == ["example.com/quota"]


@pytest.mark.parametrize(
    ("kind", "owner", "objects"),
    [
        ("Deployment", owner_ref("ReplicaSet", "waiter-rs", "rs-1"), []),
        (
            "Rollout",
            owner_ref("ReplicaSet", "waiter-rs", "rs-1"),
            [(REPLICA_SETS, replica_set(above=("Rollout", "waiter", "d-1")))],
        ),
        ("StatefulSet", owner_ref("StatefulSet", "waiter", "d-1"), []),
        ("DaemonSet", owner_ref("DaemonSet", "waiter", "d-1"), []),
    ],
)
@pytest.mark.parametrize("above", [{}, keptn("fleet", "3", None)], ids=["free", "held"])
async def test_a_provisional_gate(api, client, kind, owner, objects, above):
    resource = {
        "Deployment": DEPLOYMENTS,
        "Rollout": ROLLOUTS,
        "StatefulSet": STATEFUL_SETS,
        "DaemonSet": DAEMON_SETS,
    }[kind]
    for obj in objects:
        if kind == "Rollout":
            obj[1]["metadata"]["ownerReferences"] = [
                owner_ref("Rollout", "waiter", "d-1", "argoproj.io/v1alpha1")
            ]
        put(api, *obj)
    put(api, resource, deployment(annotations=above))
    make(api, pod(annotations=dict(PROVISIONAL), owners=[owner]))
    async with running(client, *MINE) as world:
        if above:
            await version_there(api, world, "fleet-fleet-3")
            assert waiting(api) == ["waiter-1"]
            let_pass(api, "fleet-fleet-3")
        await world.until(lambda: not waiting(api))
    annotations = annotations_of(api)
    assert PROVISIONAL.keys().isdisjoint(annotations)
    assert annotations[REMOVED] == "true"
    assert annotations.get("keptn.sh/app") == ("fleet" if above else None)
    assert names(api, WORKLOADS) == (["fleet-fleet"] if above else [])


async def test_a_provisional_pod_with_a_workload_of_its_own(api, client):
    own = {"keptn.sh/workload": "own", **PROVISIONAL}
    make(api, pod(annotations=own, image="registry.example.com/nginx:1.25"))
    async with running(client, *MINE) as world:
        await world.until(lambda: names(api, WORKLOAD_VERSIONS))
    (name,) = names(api, WORKLOAD_VERSIONS)
    assert name == f"own-own-{annotations_of(api)['keptn.sh/version']}"
    assert not api.seen("get", "/replicasets/")


@pytest.mark.parametrize(
    "owners",
    [[], [owner_ref("Job", "j", "j-1")], [owner_ref("Deployment", "waiter", "d-1")]],
    ids=["none", "job", "deployment"],
)
async def test_a_provisional_pod_that_nobody_would_gate_is_let_go(api, client, owners):
    make(api, pod(annotations=dict(PROVISIONAL), owners=owners))
    async with running(client, *MINE) as world:
        await world.until(lambda: not waiting(api))
    assert names(api, WORKLOADS) == []


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ((REPLICA_SETS, "waiter-rs"), "ReplicaSet waiter-rs"),
        ((DEPLOYMENTS, "waiter"), "Deployment"),
    ],
)
@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_provisional_pod_whose_owner_is_gone_stays_and_is_reported(
    api, client, gone, named, is_replaced
):
    api.remove(*gone, PROD)
    if is_replaced:
        another = replica_set(uid="rs-9") if gone[0] is REPLICA_SETS else deployment(uid="d-9")
        put(api, gone[0], another)
    make(api, pod(annotations=dict(PROVISIONAL)))
    async with running(client, *MINE) as world:
        await world.until(lambda: world.signals.reasons == ["GateOrphaned"] or tick(world))
    assert waiting(api) == ["waiter-1"]
    assert named in world.signals.kept[0].text


async def test_a_fault_of_the_api_is_tried_again(api, client):
    make(api, pod(annotations=dict(PROVISIONAL)))
    api.fail_next("get", "/replicasets/", 2, status=500)
    api.fail_next("patch", PATCHES, 1, status=500)
    async with running(client, *MINE) as world:
        await world.until(lambda: not waiting(api))


async def test_an_app_that_lacks_the_workload_is_asked_for_whoever_took_the_request(api, client):
    make(api, pod())
    configuration = {"creation_request_timeout": 0.0}
    async with running(client, *MINE, configuration=configuration) as world:
        await world.until(lambda: names(api, APPS) == ["shop"])
        await world.until(lambda: not names(api, APP_CREATION_REQUESTS))
        # Somebody deletes the app while the pod waits for it.
        api.remove(APPS, "shop", PROD)
        await world.until(lambda: names(api, APPS) == ["shop"])
        # A request that was fulfilled just before this workload came.
        spec = {"appName": "shop"}
        metadata = {"name": "shop", "namespace": PROD, "creationTimestamp": "2999-01-01T00:00:00Z"}
        await world.until(lambda: not names(api, APP_CREATION_REQUESTS))
        put(api, APP_CREATION_REQUESTS, {"metadata": metadata, "spec": spec})
        make(api, pod("passer-1", keptn("passer"), uid="p"))
        await version_there(api, world, "shop-passer-1.0")
        api.remove(APP_CREATION_REQUESTS, "shop", PROD)
        await world.until(
            lambda: len(api.get(APPS, "shop", PROD)["spec"].get("workloads", ())) == 2
        )


async def test_a_single_service_is_marked(api, client):
    single = {**keptn(app=None), "keptn.sh/app": "waiter"}
    make(api, pod(annotations={**single, "gates.harbourmaster.dev/app-type": "single-service"}))
    async with running(client, watches.GATES) as world:
        await world.until(lambda: names(api, APP_CREATION_REQUESTS))
        # Nothing waits for nothing.
        make(api, pod("passer-1", keptn("passer"), uid="p"))
        await world.until(lambda: len(names(api, APP_CREATION_REQUESTS)) == 2)
    stored = api.get(APP_CREATION_REQUESTS, "waiter", PROD)
    assert stored["metadata"]["annotations"] == {"keptn.sh/app-type": "single-service"}
    assert not api.get(APP_CREATION_REQUESTS, "shop", PROD)["metadata"].get("annotations")
