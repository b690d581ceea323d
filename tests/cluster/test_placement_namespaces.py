"""Namespaces and definitions that placement makes, and what others keep in them."""

from __future__ import annotations

import json
import uuid

import pytest

from harbourmaster.api.resources import CONFIG_MAPS, DEFINITIONS, DEPLOYMENTS, NAMESPACES, Resource
from helpers.placement_flow import Member, config_map, deployment, is_released, theirs
from helpers.schemas import open_definition


def namespace(name):
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


@pytest.fixture
async def wide(world, planes):
    """Controllers at work on two clusters that allow objects without a namespace."""
    async with world.deploying():
        for name, plane in zip(("one", "two"), planes, strict=True):
            await world.cluster(name, plane, allowClusterScoped=True)
        await world.until_online("one", "two")
        yield world


@pytest.mark.parametrize("policy", ["Force", "Abort"])
async def test_a_namespace_of_another_team_survives_with_what_it_holds(wide, members, policy):
    first, two = members
    await theirs(first, "theirs", a="precious")
    # The other cluster has it as well: nothing is told apart by chance.
    await theirs(two, "theirs", a="precious")
    manifests = namespace(first.namespace), config_map("ours", first.namespace)
    await wide.application(*manifests, to="one", conflictPolicy=policy)
    if policy == "Force":
        await wide.until_running("one")
        await wide.schedule("two")
        await wide.until_running("two")
        assert await first.names() == {"theirs"}
    else:
        message = await wide.until_fault("ObjectExists")
        assert message.startswith(f"Namespace {first.namespace}: exists and ")
    await wide.delete()
    await wide.until_gone()
    for member in (first, two):
        assert await member.names() == {"theirs"}
        stored = await member.get(NAMESPACES, member.namespace)
        assert "deletionTimestamp" not in stored["metadata"]
        assert is_released(stored)


async def test_a_namespace_of_ours_is_kept_while_it_holds_objects_of_others(wide, members):
    first, _ = members
    name = f"made-{uuid.uuid4().hex[:8]}"
    await wide.application(namespace(name), config_map("ours", name), to="one")
    status = await wide.until_running("one")
    assert {obj.origin for obj in status.inventory[0].objects} == {"Made"}
    guest = Member(first.client, name)
    await theirs(guest, "theirs", a="precious")
    owned = deployment("web", name)
    owner = json.loads(await first.client.create(DEPLOYMENTS, owned, name))["metadata"]["uid"]
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": owner}
    part = config_map("part", name)
    part["metadata"]["ownerReferences"] = [reference]
    await first.client.create(CONFIG_MAPS, part, name)
    await wide.delete()
    await wide.until_gone()
    assert await guest.names() == {"theirs", "part"}
    stored = await guest.get(NAMESPACES, name)
    assert "deletionTimestamp" not in stored["metadata"]
    assert is_released(stored)
    (told,) = [event for event in wide.events.sent if event[-2] == "NamespaceKept"]
    # What belongs to something else there is not counted.
    assert f"Namespace {name} stays on cluster one: it holds " in told[-1]
    assert "ConfigMap theirs" in told[-1]
    assert "Deployment web" in told[-1]
    assert "part" not in told[-1]


async def test_a_namespace_of_ours_that_holds_nothing_else_is_deleted(wide, members):
    first, _ = members
    name = f"made-{uuid.uuid4().hex[:8]}"
    await wide.application(namespace(name), config_map("ours", name), to="one")
    await wide.until_running("one")
    owner = (await first.get(CONFIG_MAPS, "ours", name))["metadata"]["uid"]
    part = config_map("part", name)
    part["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": "ours", "uid": owner}
    ]
    await first.client.create(CONFIG_MAPS, part, name)
    await wide.delete()
    # No controller of the member's ends it here.
    await first.until(NAMESPACES, name, lambda obj: obj["metadata"].get("deletionTimestamp"))
    assert await first.get(CONFIG_MAPS, "ours", name) is None


async def test_a_definition_of_ours_is_kept_while_others_have_objects_of_it(wide, members):
    first, _ = members
    boats = Resource(f"{first.namespace}.example.com", "v1", "boats", "Boat")
    await wide.application(open_definition(boats), to="one")
    await wide.until_running("one")
    boat = {
        "apiVersion": boats.api_version,
        "kind": "Boat",
        "metadata": {"name": "tug", "namespace": first.namespace},
    }
    await first.client.create(boats, boat, first.namespace)
    await wide.delete()
    await wide.until_gone()
    stored = await first.get(DEFINITIONS, f"boats.{boats.group}")
    assert "deletionTimestamp" not in stored["metadata"]
    assert await first.get(boats, "tug") is not None
