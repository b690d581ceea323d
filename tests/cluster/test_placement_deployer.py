"""Applications on real member clusters: applied, pruned, moved, mended, cleaned up and deleted."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.patches import ApplyPatch, MergePatch
from harbourmaster.api.resources import (
    APPLICATIONS,
    CLUSTERS,
    CONFIG_MAPS,
    DEFINITIONS,
    DEPLOYMENTS,
    JOBS,
    MUTATING_WEBHOOKS,
    Resource,
)
from harbourmaster.placement.manifests import DOMAIN, UID_LABEL
from helpers.placement_flow import (
    Member,
    changed_kubeconfig,
    config_map,
    deployment,
    is_released,
    is_true,
    ready,
    reason_of,
    theirs,
)
from helpers.schemas import open_definition

CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")


def boats_of(namespace):
    """A kind of a group of the namespace's own."""
    return Resource(f"{namespace}.example.com", "v1", "boats", "Boat")


def boat_of(boats):
    metadata = {"name": "tug", "namespace": boats.group.partition(".")[0]}
    return {"apiVersion": boats.api_version, "kind": boats.kind, "metadata": metadata}


@pytest.fixture
async def both(world, planes):
    """The world with both clusters in it, and the controllers at work."""
    async with world.deploying():
        for name, plane in zip(("one", "two"), planes, strict=True):
            await world.cluster(name, plane)
        await world.until_online("one", "two")
        yield world


async def test_manifests_are_applied_pruned_and_updated(both, members):
    first, two = members
    await both.application(
        config_map("first", first.namespace, a="1"), config_map("second", first.namespace), to="one"
    )
    status = await both.until_running("one")
    assert await first.names() == {"first", "second"}
    assert {obj.name for obj in status.inventory[0].objects} == {"first", "second"}
    assert all(entry.uid for entry in status.inventory[0].objects)
    assert is_true(status, "Ready")
    assert status.phase == "Running"
    stored = await both.fetch()
    copy = await first.get(CONFIG_MAPS, "first")
    assert copy["metadata"]["labels"][UID_LABEL] == stored["metadata"]["uid"]
    await both.update(
        config_map("first", first.namespace, b="2"), config_map("third", first.namespace)
    )
    await both.until_running("one")
    assert await first.names() == {"first", "third"}
    assert (await first.get(CONFIG_MAPS, "first"))["data"] == {"b": "2"}
    assert await two.names() == set()


async def test_what_names_no_namespace_lands_where_the_kubeconfig_says(world, planes, members):
    first, _ = members

    def place(config):
        config["contexts"][0]["context"]["namespace"] = first.namespace

    async with world.deploying():
        await world.cluster("one", text=changed_kubeconfig(planes[0], place))
        await world.application(config_map("placed"), to="one")
        await world.until_running("one")
        assert await first.names() == {"placed"}


async def test_everything_leaves_the_old_cluster_before_anything_comes_to_the_new_one(
    both, members
):
    first, two = members
    manifests = [config_map(name, first.namespace) for name in ("first", "second")]
    await both.application(*manifests, to="one")
    await both.until_running("one")
    # One that does not go at once: the other cluster has to wait for it.
    await first.edit(CONFIG_MAPS, "first", {"metadata": {"finalizers": ["example.com/held"]}})
    await both.schedule("two")
    await first.until(CONFIG_MAPS, "first", lambda obj: obj["metadata"].get("deletionTimestamp"))
    await asyncio.sleep(1)
    assert await two.names() == set()
    status = await both.until(lambda status: status.phase == "Migrating")
    assert status.running_on.name == "one"
    await first.edit(CONFIG_MAPS, "first", {"metadata": {"finalizers": None}})
    await both.until_running("two")
    assert await first.names() == set()
    assert await two.names() == {"first", "second"}
    assert "Migrating" in both.reasons_of()


async def test_what_the_new_cluster_refuses_is_not_deleted_from_the_old_one(both, members):
    first, two = members
    await both.application(config_map("first", first.namespace), to="one")
    await both.until_running("one")
    foreign = {UID_LABEL: "somebody-else"}
    body = {**config_map("first"), "metadata": {"name": "first", "labels": foreign}}
    await two.client.create(CONFIG_MAPS, body, two.namespace)
    await both.schedule("two")
    message = await both.until_fault("ForeignObject")
    assert "ConfigMap" in message
    assert "first" in message
    assert await first.names() == {"first"}
    await two.client.delete(CONFIG_MAPS, "first", two.namespace)
    await both.until_running("two")


async def test_create_first_keeps_the_old_one_until_the_new_one_is_ready(both, members):
    first, two = members
    boats = boats_of(first.namespace)
    for member in members:
        await member.client.create(DEFINITIONS, open_definition(boats))
    kind = f"boats.{boats.group}"
    for name in ("one", "two"):
        await both.until_cluster(lambda status: kind in status.custom_resources, name)
    web = deployment("web", first.namespace)
    await both.application(web, boat_of(boats), to="one", migrationOrder="CreateFirst")
    await ready(first, "web")
    status = await both.until_running("one")
    await both.until(lambda status: is_true(status, "Ready"))
    await both.schedule("two")
    await two.until(DEPLOYMENTS, "web", lambda obj: obj is not None)
    await asyncio.sleep(0.5)
    assert await first.get(DEPLOYMENTS, "web") is not None
    status = await both.until(lambda status: len(status.inventory) == 2)
    assert status.running_on.name == "one"
    await ready(two, "web")
    # An operator that has not seen its object yet may still have to create what holds its data.
    await asyncio.sleep(0.5)
    assert await first.get(boats, "tug") is not None
    await two.edit(boats, "tug", {"status": {"phase": "Sailing"}}, "status")
    status = await both.until_running("two")
    assert await first.get(DEPLOYMENTS, "web") is None
    assert is_true(status, "Ready")


@pytest.mark.parametrize("policy", ["Force", "Abort"])
async def test_replicas_of_an_autoscaler_stay_and_a_new_image_arrives(both, members, policy):
    first, two = members
    web = deployment("web", first.namespace, replicas=2)
    await both.application(web, to="one", conflictPolicy=policy)
    await both.until_running("one")
    for count in (6, 7):
        await scale(both, first, count, of=2)
    newer = deployment("web", first.namespace, image="example.com/web:2", replicas=2)
    await both.update(newer)
    await both.until_running("one")
    obj = await first.get(DEPLOYMENTS, "web")
    assert obj["spec"]["template"]["spec"]["containers"][0]["image"] == "example.com/web:2"
    assert obj["spec"]["replicas"] == 7
    if policy == "Force":
        await both.update(deployment("web", first.namespace, replicas=4))
        await first.until(DEPLOYMENTS, "web", lambda obj: obj["spec"]["replicas"] == 4)
        await scale(both, first, 7, of=4)
    await both.schedule("two")
    await both.until_running("two")
    assert (await two.get(DEPLOYMENTS, "web"))["spec"]["replicas"] == 7
    assert not {"Drift"} & set(both.reasons_of())


async def scale(flow, member, replicas, of):
    """Scale as an autoscaler does, and wait until that was observed beside the manifest's value."""
    await member.edit(DEPLOYMENTS, "web", {"spec": {"replicas": replicas}}, "scale")
    await flow.until(
        lambda status: (
            [(seen.replicas, seen.scaled) for seen in status.observations] == [(of, replicas)]
        )
    )


async def test_a_job_that_finished_and_was_removed_does_not_run_again(both, members):
    first, two = members
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "migrate", "namespace": first.namespace},
        "spec": {
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [{"name": "a", "image": "example.com/migrate:1"}],
                }
            }
        },
    }
    await both.application(job, to="one")
    await both.until_running("one")
    time = "2026-03-01T12:00:00Z"
    done = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
    status = {"startTime": time, "completionTime": time, "succeeded": 1, "conditions": done}
    await first.edit(JOBS, "migrate", {"status": status}, "status")
    await first.client.delete(JOBS, "migrate", first.namespace, propagation="Background")
    status = await both.until(lambda status: is_true(status, "Ready"))
    assert status.observations[0].cluster == "one"
    await both.update(job, config_map("more", first.namespace))
    await both.until_running("one")
    await both.schedule("two")
    await both.until_running("two")
    for member in members:
        assert await member.get(JOBS, "migrate") is None
    # Another manifest is another Job, and one that vanishes before it finished was deleted.
    job["spec"]["template"]["spec"]["containers"][0]["image"] = "example.com/migrate:2"
    await both.update(job)
    uid = (await two.until(JOBS, "migrate", lambda obj: obj is not None))["metadata"]["uid"]
    await two.client.delete(JOBS, "migrate", two.namespace, propagation="Background")
    await two.until(JOBS, "migrate", lambda obj: obj and obj["metadata"]["uid"] != uid)


async def test_what_others_change_or_delete_is_mended(both, members):
    first, _ = members
    await both.application(config_map("kept", first.namespace, a="1"), to="one")
    await both.until_running("one")
    await first.edit(CONFIG_MAPS, "kept", {"data": {"a": "2", "foreign": "x"}})
    obj = await first.until(CONFIG_MAPS, "kept", lambda obj: obj["data"]["a"] == "1")
    # Fields that none of our manifests names belong to other writers.
    assert obj["data"]["foreign"] == "x"
    uid = obj["metadata"]["uid"]
    await first.client.delete(CONFIG_MAPS, "kept", first.namespace)
    obj = await first.until(CONFIG_MAPS, "kept", lambda obj: obj is not None)
    assert obj["metadata"]["uid"] != uid
    await first.edit(CONFIG_MAPS, "kept", {"metadata": {"labels": None}})
    await first.until(CONFIG_MAPS, "kept", lambda obj: "labels" in obj["metadata"])


async def test_an_unknown_kind_is_told_and_nothing_is_applied(both, members):
    first, _ = members
    boat = {"apiVersion": "example.com/v1", "kind": "Boat", "metadata": {"name": "tug"}}
    await both.application(config_map("first", first.namespace), boat, to="one")
    message = await both.until_fault("InvalidManifests")
    assert message == (
        "manifests[1]: Boat tug: the cluster does not serve kind Boat in example.com/v1: "
        "install its CustomResourceDefinition"
    )
    assert await first.names() == set()
    await both.update(config_map("first", first.namespace))
    await both.until_running("one")


async def test_cluster_scoped_objects_need_the_cluster_s_consent(world, planes, members):
    first, _ = members
    boats = boats_of(first.namespace)
    name = f"boats.{boats.group}"
    async with world.deploying():
        await world.cluster("one", planes[0])
        # The object comes before its kind: the order is ours to find.
        await world.application(boat_of(boats), open_definition(boats), to="one")
        message = await world.until_fault("InvalidManifests")
        assert "spec.allowClusterScoped" in message
        patch = {"spec": {"allowClusterScoped": True}}
        await Member(world.client, world.namespace).edit(CLUSTERS, "one", patch)
        await world.until_running("one")
        assert await first.get(boats, "tug") is not None
        await world.until_cluster(lambda status: name in status.custom_resources, "one")
        await world.delete()
        await world.until_gone()


async def test_an_object_of_another_application_is_not_taken(both, members):
    first, _ = members
    await both.application(config_map("shared", first.namespace, a="1"), name="first", to="one")
    await both.until_running("one", "first")
    await both.application(config_map("shared", first.namespace, a="2"), name="second", to="one")
    message = await both.until_fault("ForeignObject", "second")
    assert f"belongs to application {both.namespace}/first" in message
    assert (await first.get(CONFIG_MAPS, "shared"))["data"] == {"a": "1"}
    await both.delete(name="second")
    await both.until_gone(name="second")
    assert (await first.get(CONFIG_MAPS, "shared"))["data"] == {"a": "1"}


async def test_what_was_there_before_survives_a_move_and_a_deletion(both, members):
    first, two = members
    await theirs(first, a="theirs", b="precious")
    manifests = (
        config_map("settings", first.namespace, a="ours"),
        config_map("made", first.namespace),
    )
    await both.application(*manifests, to="one")
    status = await both.until_running("one")
    origins = {entry.name: entry.origin for entry in status.inventory[0].objects}
    assert origins == {"settings": "Adopted", "made": "Made"}
    await both.schedule("two")
    status = await both.until_running("two")
    assert {obj.origin for obj in status.inventory[0].objects} == {"Made"}
    assert await first.names() == {"settings"}
    left = await first.get(CONFIG_MAPS, "settings")
    # A value that we have set stays as it is; its former value is unknown.
    assert left["data"] == {"a": "ours", "b": "precious"}
    assert is_released(left)
    assert "Released" in both.reasons_of()
    await both.schedule("one")
    await both.until_running("one")
    assert await two.names() == set()
    await both.delete()
    await both.until_gone()
    assert await first.names() == {"settings"}
    assert is_released(await first.get(CONFIG_MAPS, "settings"))


async def test_a_move_and_a_deletion_announce_what_they_delete_and_what_stays(both, members):
    first, _ = members
    await theirs(first, a="theirs")
    place = first.namespace
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": place},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    manifests = config_map("settings", place), config_map("made", place), claim
    await both.application(*manifests, to="one")
    for cluster, member in zip(("one", "two"), members, strict=True):
        if cluster == "two":
            await both.schedule("two")
        await both.until_running(cluster)
        # Nobody here says that no pod uses it.
        await member.edit(CLAIMS, "data", {"metadata": {"finalizers": None}})
    gone = f"deletes PersistentVolumeClaim {place}/data, ConfigMap {place}/made"
    kept = f"keeps ConfigMap {place}/settings, which existed before"
    told = [event[-2:] for event in both.events.sent]
    assert ("Migrating", f"from cluster one to two; on one: {gone}; {kept}") in told
    await both.delete()
    await both.until_gone()
    told = [event[-2:] for event in both.events.sent]
    gone = f"{gone}, ConfigMap {place}/settings"
    assert told.count(("Deleting", f"on cluster two: {gone}")) == 1
    assert await first.names() == {"settings"}


async def test_an_object_made_in_the_place_of_ours_is_adopted(world, planes, members):
    first, _ = members
    async with world.deploying():
        await world.cluster("one", planes[0])
        await world.application(config_map("settings", first.namespace, a="ours"), to="one")
        await world.until_running("one")
    await first.client.delete(CONFIG_MAPS, "settings", first.namespace)
    await theirs(first, b="precious")
    async with world.deploying():
        await world.until(lambda status: status.inventory[0].objects[0].origin == "Adopted")
        await world.delete()
        await world.until_gone()
    assert (await first.get(CONFIG_MAPS, "settings"))["data"] == {"a": "ours", "b": "precious"}


async def test_what_an_earlier_version_recorded_is_deleted_only_where_it_is_surely_ours(
    world, planes, members
):
    first, two = members
    names = ("made", "shared", "old")
    await theirs(first, "old", a="theirs")
    async with world.deploying():
        await world.cluster("one", planes[0])
        await world.cluster("two", planes[1])
        # Times are whole seconds.
        await asyncio.sleep(1)
        manifests = [config_map(name, first.namespace, a="ours") for name in names]
        await world.application(*manifests, to="one")
        await world.until_running("one")
    await theirs(first, "shared", b="precious")
    for name in names:
        mark = {f"{DOMAIN}/adopted": None}
        await first.edit(CONFIG_MAPS, name, {"metadata": {"annotations": mark}})
    status = (await world.fetch())["status"]
    for obj in status["inventory"][0]["objects"]:
        obj.pop("origin", None)
    patch = MergePatch({"status": {"inventory": status["inventory"]}})
    await world.client.patch(APPLICATIONS, "app", patch, world.namespace, subresource="status")
    await world.schedule("two")
    async with world.deploying():
        await world.until_running("two")
        assert await first.names() == {"shared", "old"}
        assert await two.names() == set(names)
        told = [event for event in world.events.sent if event[-2] == "Released"]
        assert len(told) == 2
        assert all("no origin is recorded" in event[-1] for event in told)


async def test_abort_refuses_what_is_there_without_our_label(both, members):
    first, two = members
    await theirs(first, a="theirs")
    # No field is in conflict.
    ours = config_map("settings", first.namespace, b="ours")
    await both.application(ours, to="one", conflictPolicy="Abort")
    message = await both.until_fault("ObjectExists")
    assert message.startswith(f"ConfigMap {first.namespace}/settings: exists and ")
    assert "conflictPolicy" in message
    stored = await first.get(CONFIG_MAPS, "settings")
    assert stored["data"] == {"a": "theirs"}
    assert is_released(stored)
    # Nor is anything deleted elsewhere for the sake of it.
    await both.schedule("two")
    await both.until_running("two")
    await both.schedule("one")
    await both.until_fault("ObjectExists")
    assert await two.names() == {"settings"}
    await both.delete()
    await both.until_gone()
    assert await first.names() == {"settings"}
    assert await two.names() == set()


async def test_abort_goes_on_with_what_is_ours(both, members):
    first, _ = members
    ours = config_map("settings", first.namespace, a="ours")
    await both.application(ours, to="one", conflictPolicy="Abort")
    await both.until_running("one")
    # Somebody takes the label off: it is ours all the same.
    await first.edit(CONFIG_MAPS, "settings", {"metadata": {"labels": None}})
    await first.until(CONFIG_MAPS, "settings", lambda obj: "labels" in obj["metadata"])
    await both.until_running("one")


@pytest.mark.parametrize("policy", ["Force", "Abort"])
async def test_a_field_that_somebody_took_from_us_is_taken_back_or_told(both, members, policy):
    first, _ = members
    ours = config_map("settings", first.namespace, a="ours")
    await both.application(ours, to="one", conflictPolicy=policy)
    await both.until_running("one")
    taken = ApplyPatch(config_map("settings", first.namespace, a="theirs"), "somebody", force=True)
    await first.client.patch(CONFIG_MAPS, "settings", taken, first.namespace)
    if policy == "Force":
        await first.until(CONFIG_MAPS, "settings", lambda obj: obj["data"]["a"] == "ours")
    else:
        message = await both.until_fault("FieldConflict")
        assert message.startswith(f"ConfigMap {first.namespace}/settings: ")
        assert '"somebody"' in message
        assert ".data.a" in message
        assert (await first.get(CONFIG_MAPS, "settings"))["data"]["a"] == "theirs"
    await both.delete()
    await both.until_gone()
    assert await first.get(CONFIG_MAPS, "settings") is None


def plugin(config):
    config["users"][0]["user"] = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "touch"}
    }


async def test_a_kubeconfig_that_may_not_be_used_stops_nobody_else(world, planes, members):
    first, _ = members
    async with world.deploying():
        await world.cluster("bad", text=changed_kubeconfig(planes[0], plugin))
        await world.cluster("one", planes[0])
        status = await world.until_cluster(lambda status: status.state == "Offline", "bad")
        message = next(
            condition.message for condition in status.conditions if condition.type == "Reachable"
        )
        assert message.startswith(f"Secret {world.namespace}/bad, key kubeconfig: ")
        assert "exec of its user plugins are not run" in message
        await world.application(config_map("first", first.namespace), to="one")
        await world.until_running("one")
        # A better one is used at once.
        await world.kubeconfig("bad", planes[0].kubeconfig.read_text())
        await world.until_online("bad")


async def test_an_application_that_is_at_rest_is_written_no_more(both, members):
    first, _ = members
    await both.application(config_map("first", first.namespace), to="one")
    await both.until_running("one")
    await asyncio.sleep(1)
    before = await both.fetch(), await first.get(CONFIG_MAPS, "first")
    await asyncio.sleep(2)
    assert (await both.fetch(), await first.get(CONFIG_MAPS, "first")) == before
    assert both.reasons_of() == []
    assert (await both.fetch("one", CLUSTERS))["status"]["state"] == "Online"


@pytest.mark.full
async def test_webhooks_that_do_not_answer_delay_a_write_and_nothing_else(both, members):
    first, _ = members

    writers = []

    async def accept(reader, writer):
        writers.append(writer)
        await reader.read()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    webhook = {
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Ignore",
        "timeoutSeconds": 2,
        "clientConfig": {"url": f"https://127.0.0.1:{port}/"},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": first.namespace}},
        "rules": [
            {
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "operations": ["CREATE"],
                "resources": ["configmaps"],
            }
        ],
    }
    name = f"{first.namespace}.example.com"
    # One after the other they take twice as long as a read may.
    webhooks = [{**webhook, "name": f"{number}.{name}"} for number in ("a", "b")]
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": webhooks,
    }
    async with server:
        await first.client.create(MUTATING_WEBHOOKS, configuration)
        # It is in force a moment after it was created.
        await asyncio.sleep(1)
        try:
            await both.application(config_map("slowly", first.namespace), to="one")
            await both.until_running("one")
        finally:
            await first.client.delete(MUTATING_WEBHOOKS, name)
            for writer in writers:
                writer.close()
                await writer.wait_closed()
    assert await first.names() == {"slowly"}
    assert both.reasons_of() == []
    assert (await both.fetch("one", CLUSTERS))["status"]["state"] == "Online"


def issuers_of(namespace):
    """A cluster-scoped kind of a group of the namespace's own, and a webhook for it."""
    issuers = Resource(f"{namespace}.example.com", "v1", "issuers", "Issuer", namespaced=False)
    webhook = {
        "name": f"issuers.{issuers.group}",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "timeoutSeconds": 1,
        "clientConfig": {"service": {"name": "operator", "namespace": namespace}},
        "rules": [
            {
                "apiGroups": [issuers.group],
                "apiVersions": ["v1"],
                "operations": ["CREATE", "UPDATE"],
                "resources": ["issuers"],
            }
        ],
    }
    issuer = {"apiVersion": issuers.api_version, "kind": "Issuer", "metadata": {"name": "main"}}
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": issuers.name},
        "webhooks": [webhook],
    }
    definition = open_definition(issuers)
    definition["spec"]["scope"] = "Cluster"
    return definition, issuer, configuration


async def test_a_fixed_operator_arrives_although_its_own_webhook_is_down(world, planes, members):
    # This test proves krake-spec 7.9.
    first, _ = members
    definition, issuer, configuration = issuers_of(first.namespace)
    operator = [
        deployment("operator", first.namespace, image=f"example.com/operator:{state}")
        for state in ("broken", "fixed")
    ]
    async with world.deploying():
        await world.cluster("one", planes[0], allowClusterScoped=True)
        # The webhook comes last, as it would refuse the issuer.
        await world.application(configuration, issuer, definition, operator[0], to="one")
        await world.until_running("one")
        await world.update(configuration, issuer, definition, operator[1])
        message = await world.until_fault("ApplyFailed")
        assert message.startswith("Issuer main: Internal error occurred: failed calling webhook")
        obj = await first.get(DEPLOYMENTS, "operator")
        image = obj["spec"]["template"]["spec"]["containers"][0]["image"]
        assert image == "example.com/operator:fixed"


async def test_a_change_of_an_immutable_field_is_told_or_replaces_the_object(both, members):
    # This test proves krake-spec 7.9.
    first, _ = members
    place = first.namespace
    await both.application(migration(place, "a:1"), to="one")
    await both.until_running("one")
    uid = (await first.get(JOBS, "migrate"))["metadata"]["uid"]
    await both.update(migration(place, "a:2"), config_map("more", place))
    message = await both.until_fault("Invalid")
    assert message == f"Job {place}/migrate: spec.template: Invalid value: field is immutable"
    assert await first.names() == {"more"}
    replaceable = migration(place, "a:2", **{f"{DOMAIN}/replace": "true"})
    await both.update(replaceable, config_map("more", place))
    await both.until_running("one")
    live = await first.get(JOBS, "migrate")
    assert live["spec"]["template"]["spec"]["containers"][0]["image"] == "a:2"
    assert live["metadata"]["uid"] != uid
    assert both.reasons_of().count("Replacing") == 1
    # What would be invalid for a new object, too, is not deleted for it.
    invalid = migration(place, "a:2", **{f"{DOMAIN}/replace": "true"})
    invalid["spec"]["template"]["spec"]["restartPolicy"] = "Sometimes"
    await both.update(invalid, config_map("more", place))
    message = await both.until_fault("MalformedManifest")
    assert "spec.template.spec.restartPolicy: Unsupported value: " in message
    twice = deployment("web", place)
    env = [{"name": "FOO", "value": value} for value in "ab"]
    twice["spec"]["template"]["spec"]["containers"][0]["env"] = env
    await both.update(replaceable, twice)
    message = await both.until(
        lambda status: any("duplicate entries" in entry.message for entry in status.conditions)
    )
    assert reason_of(message, "Deployed") == "MalformedManifest"
    assert (await first.get(JOBS, "migrate"))["metadata"]["uid"] == live["metadata"]["uid"]


def migration(namespace, image, **annotations):
    template = {"restartPolicy": "Never", "containers": [{"name": "a", "image": image}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "migrate", "namespace": namespace, "annotations": annotations},
        "spec": {"template": {"spec": template}},
    }
