"""Owners of pods from watches of their metadata, as pods come and owners change."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from harbourmaster.api.resources import (
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    REPLICA_SETS,
    ROLLOUTS,
    STATEFUL_SETS,
)
from harbourmaster.webhook.cluster_state import ClusterState
from harbourmaster.webhook.engine import Engine, EngineHolder
from harbourmaster.webhook.settings import WatchSettings, WebhookSettings
from harbourmaster.webhook.snapshot import Snapshot
from helpers.admission import OPT_IN, PARENT, ask, family, keys, owner, parent, pod
from helpers.fake_api import FakeApi
from helpers.objects import review
from helpers.patience import PATIENCE

TRACKED = keys(workload="waiter", version="0.4", app="shop")
APPS = {
    resource.kind: resource
    for resource in (REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, ROLLOUTS)
}
DEFINITION = {
    "metadata": {"name": "rollouts.argoproj.io"},
    "status": {"conditions": [{"type": "Established", "status": "True"}]},
}


class Follower:
    """A ClusterState that runs, and the answers that it gives."""

    def __init__(self, client, features):
        self.holder = EngineHolder(Engine(Snapshot(namespaces={}), WebhookSettings()))
        self.cluster = ClusterState(
            client, self.holder, WatchSettings(), features=features, on_policies=lambda _: None
        )
        self._told = asyncio.Event()
        for reflector in self.cluster.reflectors:
            reflector._on_state = self._told.set
        for cache in self.cluster.parents.values():
            cache.subscribe(lambda _: self._told.set())

    def annotations(self, document):
        return ask(review(document), self.holder.current).annotations

    async def until(self, holds):
        """Wait until a condition holds, checking it after each change."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._told.clear()
                await self._told.wait()


@pytest.fixture
async def api():
    async with FakeApi() as fake_api:
        fake_api.put(NAMESPACES, {"metadata": {"name": "ns1", "annotations": OPT_IN}})
        yield fake_api


@asynccontextmanager
async def following(api, *features):
    async with api.client() as client:
        follower = Follower(client, features or ("policies", "gates"))
        task = asyncio.create_task(follower.cluster.run())
        try:
            await asyncio.wait_for(follower.cluster.wait_until_synced(), PATIENCE)
            yield follower
        finally:
            task.cancel()
            await asyncio.wait([task])


def put(api, *documents):
    """Store owners; the API server gives them uids of its own."""
    uids = {}
    for document in documents:
        metadata = dict(document["metadata"])
        metadata.pop("uid")
        for reference in metadata.get("ownerReferences", ()):
            reference["uid"] = uids.get(reference["name"], "")
        stored = api.put(APPS[document["kind"]], {**document, "metadata": metadata})
        uids[metadata["name"]] = stored["metadata"]["uid"] if stored else ""


def pod_of(kind="ReplicaSet", name="web-5d9c"):
    return pod(owners=[owner(kind, name, uid="")])


async def test_owners_are_followed(api):
    replica_set, deployment = family(TRACKED)
    put(api, deployment, replica_set)
    async with following(api) as follower:
        assert follower.annotations(pod_of()) == TRACKED
        changed = parent("Deployment", "web", TRACKED | keys(version="0.5"))
        put(api, changed)
        expected = TRACKED | keys(version="0.5")
        await follower.until(lambda: follower.annotations(pod_of()) == expected)
        api.remove(DEPLOYMENTS, "web", "ns1")
        await follower.until(lambda: follower.annotations(pod_of()) == {PARENT: "unresolved"})


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
async def test_an_owner_that_comes_is_known_at_once(api, kind):
    async with following(api) as follower:
        assert follower.annotations(pod_of(kind, "db")) == {PARENT: "unresolved"}
        put(api, parent(kind, "db", TRACKED))
        await follower.until(lambda: follower.annotations(pod_of(kind, "db")) == TRACKED)


async def test_only_the_metadata_of_owners_is_asked_for(api):
    async with following(api):
        pass
    for resource in APPS.values():
        asked = [seen for seen in api.requests if seen.path.endswith(f"/{resource.plural}")]
        assert asked
        assert all("as=PartialObjectMetadata" in seen.headers["Accept"] for seen in asked)


async def test_rollouts_count_from_the_moment_at_which_their_definition_comes(api):
    api.undefine(ROLLOUTS)
    replica_set, rollout = family(TRACKED, "Rollout")
    put(api, replica_set)
    async with following(api) as follower:
        assert follower.cluster.failing() is None
        assert follower.annotations(pod_of()) == {PARENT: "unresolved"}
        api.define(ROLLOUTS)
        put(api, rollout)
        api.put(DEFINITIONS, DEFINITION)
        await follower.until(lambda: follower.annotations(pod_of()) == TRACKED)
    # So that it counts at once, and not when an absent kind is looked for again.
    assert any("rollouts.argoproj.io" in str(seen.query) for seen in api.requests)


async def test_without_gates_no_owner_is_watched(api):
    async with following(api, "policies") as follower:
        watched = {reflector.name for reflector in follower.cluster.reflectors}
    assert watched == {"namespaces", "clusterpodschedulingpolicies", "podschedulingpolicies"}
    plurals = {seen.path.rpartition("/")[2] for seen in api.requests}
    assert not plurals & {app.plural for app in APPS.values()}


async def test_without_policies_none_is_watched(api):
    async with following(api, "gates") as follower:
        watched = {reflector.name for reflector in follower.cluster.reflectors}
    assert watched == {"namespaces", *(app.plural for app in APPS.values())}


async def test_nothing_is_ready_before_the_owners_are_known(api):
    api.forbid("list", DEPLOYMENTS)
    async with api.client() as client:
        follower = Follower(client, ("policies", "gates"))
        task = asyncio.create_task(follower.cluster.run())
        await follower.cluster.parents["ReplicaSet"].synced.wait()
        await follower.until(lambda: "forbid" in (follower.cluster.failing() or ""))
        assert "deployments" in follower.cluster.failing()
        task.cancel()
        await asyncio.wait([task])
