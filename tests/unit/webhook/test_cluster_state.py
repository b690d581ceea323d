"""From watches to snapshots, against an API server that misbehaves on demand."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from functools import partial

import pytest

from harbourmaster.api.resources import (
    CLUSTER_POLICIES,
    DAEMON_SETS,
    DEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    POLICIES,
    REPLICA_SETS,
    ROLLOUTS,
    RUNTIME_CLASSES,
    STATEFUL_SETS,
)
from harbourmaster.rescheduling.unmet import Pool
from harbourmaster.telemetry.metrics import UNFAITHFUL
from harbourmaster.webhook.cluster_state import ClusterState
from harbourmaster.webhook.engine import Engine, EngineHolder
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.policy_objects import MAX_SPEC_BYTES
from harbourmaster.webhook.settings import WatchSettings, WebhookSettings
from harbourmaster.webhook.snapshot import Snapshot
from helpers.admission import (
    OPT_IN,
    PARENT,
    ask,
    family,
    keys,
    owner,
    parent,
    pod,
    record_of,
    replayed_response,
)
from helpers.known_nodes import node
from helpers.objects import body, cluster_policy, policy, review, workload
from helpers.patience import PATIENCE
from helpers.tasks import background


class Holder(EngineHolder):
    """An engine holder that notifies when it holds another engine."""

    def __init__(self, current):
        super().__init__(current)
        self.changed = asyncio.Event()

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "current" and hasattr(self, "changed"):
            self.changed.set()


class Follower:
    """A ClusterState that runs, and how to await what it knows."""

    def __init__(self, client, *, options=None, **settings):
        self.holder = Holder(Engine(Snapshot(namespaces={}), WebhookSettings()))
        self.sets = []
        self.cluster = ClusterState(
            client,
            self.holder,
            WatchSettings(**settings),
            on_policies=self.sets.append,
            **(options or {}),
        )
        for reflector in self.cluster.reflectors:
            reflector._on_state = partial(self._note_state, reflector._on_state)
        for cache in self.cluster.parents.values():
            cache.subscribe(lambda _: self.holder.changed.set())

    def _note_state(self, listener):
        if listener is not None:
            listener()
        self.holder.changed.set()

    @property
    def engine(self):
        return self.holder.current

    @property
    def snapshot(self):
        return self.engine.snapshot

    async def until(self, holds):
        """Wait for a snapshot that meets a condition."""
        async with asyncio.timeout(PATIENCE):
            while not holds(self.snapshot):
                self.holder.changed.clear()
                await self.holder.changed.wait()

    def outcome(self, namespace="web", document=None, **labels):
        """Return the outcome and the codes of the review of a pod, or of the document."""
        document = document or workload("Pod", labels or {"app": "web"})
        question = body(document, namespace=namespace)
        _, decision = answer(question, self.holder.current)
        return decision.verdict.outcome, decision.verdict.codes

    def annotations(self, document):
        return ask(review(document), self.engine).annotations


@asynccontextmanager
async def following(api, **settings):
    async with api.client() as client:
        follower = Follower(client, **settings)
        async with background(follower.cluster.run()):
            yield follower


@asynccontextmanager
async def synced(api, **settings):
    async with following(api, **settings) as follower:
        await asyncio.wait_for(follower.cluster.wait_until_synced(), PATIENCE)
        yield follower


def namespace(name, labels=None, annotations=None):
    return {"metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}}}


def definition(resource, established="True"):
    return {
        "metadata": {"name": f"{resource.plural}.{resource.group}"},
        "status": {"conditions": [{"type": "Established", "status": established}]},
    }


async def test_the_first_snapshot_holds_everything(api):
    api.put(NAMESPACES, namespace("web"))
    api.put(CLUSTER_POLICIES, cluster_policy("a", pods={"app": "web"}, nodeSelector={"d": "s"}))
    api.put(POLICIES, policy("b", "web", nodeSelector={"e": "f"}))
    async with synced(api) as follower:
        assert follower.outcome() == ("mutated", ())
        assert follower.snapshot.policies.cluster_size == 1
        assert follower.snapshot.policies.namespaced_size == 1
        assert follower.cluster.failing() is None


def answered_again(follower):
    """Return the names of the policies that a recorded review holds, or why it is not recorded."""
    line, response, outcome = record_of(review(workload("Pod"), namespace="web"), follower.engine)
    if line is None:
        return outcome
    assert replayed_response(line) == response
    return [policy["metadata"]["name"] for policy in json.loads(line)["policies"]]


async def test_policies_are_kept_as_they_are_where_reviews_are_recorded(api):
    broken = policy("broken", "web")
    broken["spec"]["tolerations"] = "none"
    invalid = policy("invalid", "web", nodeSelector={"disk": "no value!"})
    api.put(NAMESPACES, namespace("web", {"team": "a"}))
    api.put(CLUSTER_POLICIES, cluster_policy("good", nodeSelector={"disk": "ssd"}))
    for faulty in (broken, invalid):
        api.put(POLICIES, faulty)
    async with synced(api, options={"keeps_policies": True}) as follower:
        assert answered_again(follower) == ["good", "broken", "invalid"]


async def test_nothing_is_kept_of_policies_where_nothing_is_recorded(api):
    api.put(NAMESPACES, namespace("web"))
    api.put(CLUSTER_POLICIES, cluster_policy("good", nodeSelector={"disk": "ssd"}))
    async with synced(api) as follower:
        assert answered_again(follower) == UNFAITHFUL
        (kept,) = follower.snapshot.policies.filed
        assert kept.source == b""


async def test_nothing_is_ready_before_the_first_lists(api):
    api.forbid("list", CLUSTER_POLICIES)
    async with following(api) as follower:
        await follower.cluster.policies.synced.wait()
        await follower.cluster.namespaces.synced.wait()
        assert "clusterpodschedulingpolicies" in follower.cluster.failing()
        assert not follower.cluster.cluster_policies.synced.is_set()


async def test_changes_take_effect(api):
    api.put(NAMESPACES, namespace("web"))
    async with synced(api) as follower:
        assert follower.outcome() == ("unmatched", ())
        labelled = cluster_policy("a", pods={"app": "web"}, nodeSelector={"d": "s"})
        labelled["spec"]["namespaceSelector"] = {"matchLabels": {"team": "blue"}}
        api.put(CLUSTER_POLICIES, labelled)
        await follower.until(lambda snapshot: snapshot.policies.cluster_size == 1)
        assert follower.outcome() == ("unmatched", ())
        api.put(NAMESPACES, namespace("web", {"team": "blue"}))
        await follower.until(lambda _: follower.outcome() == ("mutated", ()))
        api.remove(CLUSTER_POLICIES, "a")
        await follower.until(lambda _: follower.outcome() == ("unmatched", ()))
        api.remove(NAMESPACES, "web")
        await follower.until(lambda _: follower.outcome() == ("skipped", ("namespace-unknown",)))


async def test_a_change_of_namespaces_keeps_the_index_of_policies(api):
    async with synced(api) as follower:
        before = follower.snapshot.policies
        api.put(NAMESPACES, namespace("web"))
        await follower.until(lambda snapshot: snapshot.namespace("web"))
        assert follower.snapshot.policies is before


@pytest.mark.claim("W11")
@pytest.mark.parametrize(
    ("metadata", "counts"),
    [
        ({"labels": {"a": "b"}}, False),
        ({"annotations": {"a": "b"}}, False),
        ({"finalizers": ["a/b"]}, False),
        ({"annotations": {"a": "b", "harbourmaster.dev/on-too-large": "Deny"}}, True),
    ],
)
async def test_a_change_that_decides_nothing_compiles_nothing(api, metadata, counts):
    document = policy("a", "web", nodeSelector={"d": "s"})
    api.put(POLICIES, document)
    async with synced(api) as follower:
        (before,) = follower.snapshot.policies.filed
        api.put(POLICIES, {**document, "metadata": {**document["metadata"], **metadata}})
        api.put(POLICIES, policy("b", "web"))
        await follower.until(lambda snapshot: snapshot.policies.namespaced_size == 2)
        assert (before not in follower.snapshot.policies.filed) == counts


async def test_a_policy_that_does_not_decode_warns_and_harms_no_other(api):
    api.put(NAMESPACES, namespace("web"))
    broken = cluster_policy("broken")
    broken["spec"]["nodeSelector"] = "ssd"
    api.put(CLUSTER_POLICIES, broken)
    api.put(CLUSTER_POLICIES, cluster_policy("good", pods={"app": "web"}, nodeSelector={"d": "s"}))
    api.put(POLICIES, {**policy("broken", "web"), "spec": "none"})
    key = "k" * MAX_SPEC_BYTES
    api.put(POLICIES, policy("large", "web", tolerations=[{"key": key}]))
    async with synced(api) as follower:
        assert follower.outcome() == ("mutated", ("policy-invalid",) * 3)
        assert follower.snapshot.policies.invalid == 3
        faults = {
            compiled_policy.fault or "" for compiled_policy in follower.snapshot.policies.filed
        }
        assert any(f"bytes, more than {MAX_SPEC_BYTES}" in fault for fault in faults)
        assert follower.snapshot.policies.references == {
            "ClusterPodSchedulingPolicy broken",
            "ClusterPodSchedulingPolicy good",
            "PodSchedulingPolicy web/broken",
            "PodSchedulingPolicy web/large",
        }


async def test_definitions_come_and_go(api):
    api.put(NAMESPACES, namespace("web"))
    api.undefine(CLUSTER_POLICIES)
    async with synced(api) as follower:
        assert follower.cluster.cluster_policies.absent
        assert follower.cluster.failing() is None
        api.define(CLUSTER_POLICIES)
        api.put(CLUSTER_POLICIES, cluster_policy("a", pods={"app": "web"}, nodeSelector={"d": "s"}))
        api.put(DEFINITIONS, definition(CLUSTER_POLICIES))
        # At once, and not after the minute that an absent kind waits by itself.
        await follower.until(lambda _: follower.outcome() == ("mutated", ()))
        api.remove(DEFINITIONS, definition(CLUSTER_POLICIES)["metadata"]["name"])
        api.undefine(CLUSTER_POLICIES)
        await follower.until(lambda _: follower.outcome() == ("unmatched", ()))


async def test_a_definition_not_yet_established_wakes_nobody(api):
    api.undefine(CLUSTER_POLICIES)
    async with synced(api) as follower:
        api.put(DEFINITIONS, definition(CLUSTER_POLICIES, established="False"))
        before = [seen for seen in api.requests if CLUSTER_POLICIES.plural in seen.path]
        api.put(NAMESPACES, namespace("web"))
        await follower.until(lambda snapshot: snapshot.namespace("web"))
        after = [seen for seen in api.requests if CLUSTER_POLICIES.plural in seen.path]
        assert len(after) == len(before)


async def test_s18_what_is_silent_for_too_long_is_not_ready_and_answers_on(api):
    api.put(NAMESPACES, namespace("web"))
    async with synced(api, stale_after_seconds=0.05) as follower:
        await asyncio.sleep(0.1)
        assert "namespaces" in follower.cluster.failing()
        assert follower.outcome() == ("unmatched", ())


async def test_an_unknown_namespace_is_waited_for(api):
    async with synced(api, namespace_wait_seconds=PATIENCE) as follower:
        deadline = asyncio.get_running_loop().time() + PATIENCE
        waits = [asyncio.create_task(follower.cluster.arrival("new", deadline)) for _ in range(3)]
        await asyncio.sleep(0)
        api.put(NAMESPACES, namespace("new"))
        assert await asyncio.gather(*waits) == [True, True, True]
        assert follower.outcome("new") == ("unmatched", ())


def wanting(api):
    """A namespace whose pods need a node with an SSD."""
    api.put(NAMESPACES, namespace("web"))
    api.put(CLUSTER_POLICIES, cluster_policy("a", nodeSelector={"disk": "ssd"}))


WARNED, FINE = ("mutated", ("no-node-matches",)), ("mutated", ())


async def test_nodes_that_come_change_and_go_take_effect(api):
    wanting(api)
    async with synced(api) as follower:
        await follower.until(lambda snapshot: snapshot.nodes is not None)
        assert follower.outcome() == FINE
        api.put(NODES, node("n1", {"disk": "hdd"}))
        await follower.until(lambda _: follower.outcome() == WARNED)
        api.put(NODES, node("n1", {"disk": "ssd"}))
        await follower.until(lambda _: follower.outcome() == FINE)
        api.put(NODES, node("n2"))
        api.remove(NODES, "n1")
        await follower.until(lambda _: follower.outcome() == WARNED)
        api.remove(NODES, "n2")
        await follower.until(lambda _: follower.outcome() == FINE)


async def test_runtime_classes_are_watched_once_a_policy_sets_labels(api):
    api.put(NAMESPACES, namespace("web"))
    windows = {"nodeSelector": {"disk": "hdd"}}
    api.put(RUNTIME_CLASSES, {"metadata": {"name": "windows"}, "scheduling": windows})
    api.put(CLUSTER_POLICIES, cluster_policy("a", tolerations=[{"operator": "Exists"}]))
    conflict = ("unchanged", ("node-selector-conflict",))
    document = workload(runtimeClassName="windows")
    async with synced(api) as follower:
        assert not any(request.path.endswith("/runtimeclasses") for request in api.requests)
        api.put(CLUSTER_POLICIES, cluster_policy("a", nodeSelector={"disk": "ssd"}))
        await follower.until(lambda _: follower.outcome(document=document) == conflict)
        api.remove(RUNTIME_CLASSES, "windows")
        await follower.until(lambda _: follower.outcome(document=document) == FINE)


async def test_without_permission_for_nodes_all_but_the_warning_works(api):
    wanting(api)
    api.put(NODES, node())
    api.forbid("list", NODES)
    async with synced(api) as follower:
        await api.until_seen("list", NODES.plural)
        assert follower.cluster.failing() is None
        assert follower.outcome() == FINE


async def test_nodes_are_unknown_while_their_watch_is_disconnected(api):
    wanting(api)
    api.put(NODES, node())
    async with synced(api) as follower:
        await follower.until(lambda _: follower.outcome() == WARNED)
        api.forbid("watch", NODES)
        await api.until_seen("watch", NODES.plural)
        api.close_watches()
        await follower.until(lambda _: follower.outcome() == FINE)
        assert follower.cluster.failing() is None
        api.heal()
        follower.cluster.nodes.wake()
        api.put(NODES, node("n2"))
        await follower.until(lambda _: follower.outcome() == WARNED)


async def test_pools_of_the_settings_count(api):
    wanting(api)
    api.put(NODES, node())
    pools = {"fast": Pool({"disk": "ssd"})}
    async with synced(api, autoscaled_pools=pools) as follower:
        await follower.until(lambda snapshot: snapshot.nodes is not None)
        assert follower.outcome() == FINE


async def test_where_the_warning_is_off_nodes_are_not_asked_for(api):
    wanting(api)
    api.put(NODES, node())
    async with synced(api, nodes=False) as follower:
        api.put(NAMESPACES, namespace("next"))
        await follower.until(lambda snapshot: snapshot.namespace("next"))
        assert api.seen(path_pattern=NODES.plural) == []
        assert follower.outcome() == FINE


# Owners of pods, from watches of their metadata

TRACKED = keys(workload="waiter", version="0.4", app="shop")
APPS = {
    resource.kind: resource
    for resource in (REPLICA_SETS, DEPLOYMENTS, STATEFUL_SETS, DAEMON_SETS, ROLLOUTS)
}


@pytest.fixture
async def gated(api):
    """The API server, with a namespace whose pods have gates."""
    api.put(NAMESPACES, {"metadata": {"name": "ns1", "annotations": OPT_IN}})
    return api


def put_owners(api, *documents):
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


async def test_owners_are_followed(gated):
    replica_set, deployment = family(TRACKED)
    put_owners(gated, deployment, replica_set)
    async with synced(gated) as follower:
        assert follower.annotations(pod_of()) == TRACKED
        changed = parent("Deployment", "web", TRACKED | keys(version="0.5"))
        put_owners(gated, changed)
        expected = TRACKED | keys(version="0.5")
        await follower.until(lambda _: follower.annotations(pod_of()) == expected)
        gated.remove(DEPLOYMENTS, "web", "ns1")
        await follower.until(lambda _: follower.annotations(pod_of()) == {PARENT: "unresolved"})


@pytest.mark.parametrize("kind", ["StatefulSet", "DaemonSet"])
async def test_an_owner_that_comes_is_known_at_once(gated, kind):
    async with synced(gated) as follower:
        assert follower.annotations(pod_of(kind, "db")) == {PARENT: "unresolved"}
        put_owners(gated, parent(kind, "db", TRACKED))
        await follower.until(lambda _: follower.annotations(pod_of(kind, "db")) == TRACKED)


async def test_only_the_metadata_of_owners_is_asked_for(gated):
    async with synced(gated):
        pass
    for resource in APPS.values():
        asked = [seen for seen in gated.requests if seen.path.endswith(f"/{resource.plural}")]
        assert asked
        assert all("as=PartialObjectMetadata" in seen.headers["Accept"] for seen in asked)


async def test_rollouts_count_from_the_moment_at_which_their_definition_comes(gated):
    gated.undefine(ROLLOUTS)
    replica_set, rollout = family(TRACKED, "Rollout")
    put_owners(gated, replica_set)
    async with synced(gated) as follower:
        assert follower.cluster.failing() is None
        assert follower.annotations(pod_of()) == {PARENT: "unresolved"}
        gated.define(ROLLOUTS)
        put_owners(gated, rollout)
        gated.put(DEFINITIONS, definition(ROLLOUTS))
        await follower.until(lambda _: follower.annotations(pod_of()) == TRACKED)
    # So that it counts at once, and not when an absent kind is looked for again.
    assert any("rollouts.argoproj.io" in str(seen.query) for seen in gated.requests)


async def test_without_gates_no_owner_is_watched(gated):
    async with synced(gated, options={"features": ["policies"]}) as follower:
        watched = {reflector.name for reflector in follower.cluster.reflectors}
    assert watched == {"namespaces", "clusterpodschedulingpolicies", "podschedulingpolicies"}
    plurals = {seen.path.rpartition("/")[2] for seen in gated.requests}
    assert not plurals & {app.plural for app in APPS.values()}


async def test_without_policies_none_is_watched(gated):
    async with synced(gated, options={"features": ["gates"]}) as follower:
        watched = {reflector.name for reflector in follower.cluster.reflectors}
    assert watched == {"namespaces", *(app.plural for app in APPS.values())}


async def test_nothing_is_ready_before_the_owners_are_known(gated):
    gated.forbid("list", DEPLOYMENTS)
    async with following(gated) as follower:
        await follower.cluster.parents["ReplicaSet"].synced.wait()
        await follower.until(lambda _: "forbid" in (follower.cluster.failing() or ""))
        assert "deployments" in follower.cluster.failing()
