"""A controller that dies while an application moves: it ends on exactly one cluster."""

from __future__ import annotations

import asyncio
import contextlib
import json
from functools import partial

import pytest

from harbourmaster.api.patches import ApplyPatch
from harbourmaster.api.resources import APPLICATIONS, CLUSTERS, CONFIG_MAPS, SECRETS
from harbourmaster.controller.placement import session
from harbourmaster.placement.confirmation import CONFIRMED
from harbourmaster.placement.deployed import ALLOW_COPY
from helpers.faults.crashing import MortalClient, Plan, live
from helpers.placement_flow import PLACING, config_map, flow_in, members_of, two_planes
from helpers.schemas import apply_definitions

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "applications.placement.harbourmaster.dev/app"
MANY = 120.0
"""Seconds for all lives together."""
SETTINGS = {"controllers": ["placement"], "placement": PLACING}


@pytest.fixture(scope="module")
def planes(control_plane, request, tmp_path_factory):
    """Two member API servers; the shared one manages them."""
    apply_definitions(control_plane.kubectl)
    with two_planes(tmp_path_factory) as planes:
        yield planes


@pytest.fixture
async def members(planes):
    async with members_of(planes) as connected:
        yield connected


@pytest.fixture
async def flow(request, control_plane, planes):
    async with flow_in(control_plane, request.node.name) as flow, flow.watching():
        for cluster, plane in zip(("one", "two"), planes, strict=True):
            await flow.cluster(cluster, plane)
            labels = {"metadata": {"labels": {"place": cluster}}}
            await flow.change(CLUSTERS, cluster, labels)
        yield flow


def bound_to(cluster):
    return {"cluster": {"labels": [f"place is {cluster}"]}}


async def test_one_that_is_killed_between_delete_and_create_has_it_end_on_one(flow, members):
    first, two = members
    manifests = [config_map(name, first.namespace) for name in ("first", "second")]
    async with flow.placing() as process:
        await flow.application(*manifests, constraints=bound_to("one"))
        await flow.until_running("one")
        # Its end is held up, so that the create has to wait for it.
        await first.edit(CONFIG_MAPS, "first", {"metadata": {"finalizers": ["example.com/held"]}})
        await flow.change(APPLICATIONS, "app", {"spec": {"constraints": bound_to("two")}})
        await first.until(
            CONFIG_MAPS, "first", lambda obj: obj["metadata"].get("deletionTimestamp")
        )
        await asyncio.to_thread(process.kill)
    await first.edit(CONFIG_MAPS, "first", {"metadata": {"finalizers": None}})
    await first.until(CONFIG_MAPS, "first", lambda obj: obj is None)
    assert await two.names() == set()
    async with flow.placing():
        await flow.until_running("two")
    assert (await first.names(), await two.names()) == (set(), {"first", "second"})


@pytest.mark.parametrize("order", ["DeleteFirst", "CreateFirst"])
async def test_one_that_dies_at_every_write_has_it_end_on_one(
    flow, members, monkeypatch, control_plane, order
):
    first, two = members
    plan = Plan(events=False)

    def client(connection, **options):
        return MortalClient(connection, plan, plan.died, **options)

    monkeypatch.setattr(session, "Client", client)
    names = {"first", "second", "theirs"}
    # One of them is on the first cluster already, and must not be deleted.
    theirs = ApplyPatch(config_map("theirs", first.namespace, a="precious"), "somebody")
    await first.client.patch(CONFIG_MAPS, "theirs", theirs, first.namespace)
    manifests = [config_map(name, first.namespace, b="ours") for name in sorted(names)]
    metadata = {"name": "login", "annotations": {ALLOW_COPY: "app"}}
    login = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    await flow.client.create(SECRETS, login, flow.namespace)
    await flow.application(
        *manifests,
        constraints=bound_to("one"),
        migrationOrder=order,
        secrets=[{"name": "login", "targetNamespace": first.namespace}],
    )
    # It is older than every life.
    await flow.change(APPLICATIONS, "app", {"metadata": {"annotations": {CONFIRMED: "true"}}})

    async def kubectl(*arguments):
        # Another process: a death takes what this one has begun meanwhile with it.
        await asyncio.to_thread(control_plane.kubectl, *arguments, f"-n={flow.namespace}")

    async def over():
        async with asyncio.timeout(MANY):
            await until_settled(flow, "one")
            assert (await first.names(), await two.names()) == (names, set())
            assert await first.names(SECRETS) == {"login"}
            value = json.dumps({"spec": {"constraints": bound_to("two")}})
            await kubectl("patch", NAME, "--type=merge", f"--patch={value}")
            await until_settled(flow, "two")
            assert (await first.names(), await two.names()) == ({"theirs"}, names)
            assert (await first.names(SECRETS), await two.names(SECRETS)) == (set(), {"login"})
            await kubectl("delete", NAME, "--wait=false")
            await flow.until_gone()
            assert (await first.names(), await two.names()) == ({"theirs"}, set())
            assert await two.names(SECRETS) == set()
            left = await first.get(CONFIG_MAPS, "theirs")
            assert left["data"] == {"a": "precious", "b": "ours"}
            assert "labels" not in left["metadata"]

    lives = await live(
        control_plane.kubeconfig, flow.namespace, plan, partial(over), patience=60.0, **SETTINGS
    )
    member = {write for write in plan.sent if "configmaps" in write or "/secrets" in write}
    # Four objects, applied and deleted or released on either cluster.
    assert len(member) >= 6
    assert lives > len(plan.sent)


async def until_settled(flow, cluster):
    """Wait until it runs there and nowhere else; deaths may take longer than one wait."""
    while True:
        with contextlib.suppress(TimeoutError):
            await flow.until_running(cluster)
            return
