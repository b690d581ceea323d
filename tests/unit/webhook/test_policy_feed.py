"""Tests of the order in which policies are compiled, and of those in force meanwhile."""

from __future__ import annotations

import asyncio
import json
import queue
import threading

import msgspec
import pytest

from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.enforcement import ENFORCEMENT_KEY, MODE_KEY
from harbourmaster.policies.index import audited_set, policy_set
from harbourmaster.serving.background import running
from harbourmaster.webhook import policy_feed
from harbourmaster.webhook.engine import FITS_NO_NODE, WOULD_CHANGE, Engine, audit_results
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.policy_feed import SMALL, PolicyFeed
from harbourmaster.webhook.policy_objects import project_policy
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import UNCHANGED
from helpers.objects import body, cluster_policy, policy, workload
from helpers.patience import PATIENCE


class Compiler:
    """A compiler in the feed's thread that waits before each policy while ``gate`` is closed."""

    def __init__(self):
        self.begun = []
        self._told = queue.SimpleQueue()
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, known_policy):
        self.begun.append(
            (known_policy.reference.partition(" ")[2], known_policy.spec.node_selector["v"])
        )
        self._told.put(self.begun[-1])
        assert self.gate.wait(PATIENCE)
        return compile_policy(known_policy)

    async def until(self, name, version="1"):
        """Wait until that version is being compiled."""
        while await asyncio.to_thread(self._told.get, timeout=PATIENCE) != (name, version):
            pass


@pytest.fixture
def compiler(monkeypatch):
    recording_compiler = Compiler()
    monkeypatch.setattr(policy_feed, "compile_policy", recording_compiler)
    monkeypatch.setattr(policy_feed, "_PAUSE", 0)
    yield recording_compiler
    recording_compiler.gate.set()


class Feed(PolicyFeed):
    """A feed that tells the policies in force."""

    def __init__(self, **options):
        super().__init__(lambda _: None, **options)

    def put(self, *documents):
        for document in documents:
            name = reference(document)
            self.change({name: project_policy(msgspec.json.encode(document))})

    def remove(self, *documents):
        for document in documents:
            self.change({reference(document): None})

    @property
    def in_force(self):
        filed = self.policies.filed
        return {
            known_policy.reference.partition(" ")[2]: dict(known_policy.node_selector)["v"]
            for known_policy in filed
        }


def reference(document):
    metadata = document["metadata"]
    return f"{document['kind']} {'/'.join(filter(None, map(metadata.get, ('namespace', 'name'))))}"


def small(name, version="1", namespace="a"):
    return policy(name, namespace, nodeSelector={"v": version})


def large(name, version="1", namespace="a"):
    tolerations = [{"operator": "Exists"}] * (SMALL // 10)
    return policy(name, namespace, nodeSelector={"v": version}, tolerations=tolerations)


@pytest.mark.claim("W11")
async def test_one_changed_policy_of_many_is_all_that_is_compiled(compiler):
    feed = Feed()
    async with running(feed.run()):
        feed.put(*(small(f"p{index}") for index in range(100)))
        await feed.wait_until_compiled()
        assert len(compiler.begun) == 100
        feed.put(small("p7", "2"))
        await feed.wait_until_compiled()
        assert compiler.begun[100:] == [("a/p7", "2")]
        assert feed.in_force == {f"a/p{index}": "1" for index in range(100)} | {"a/p7": "2"}


async def test_the_former_version_is_in_force_until_the_last_one_is_compiled(compiler):
    feed = Feed()
    async with running(feed.run()):
        feed.put(large("p"))
        await feed.wait_until_compiled()
        compiler.gate.clear()
        feed.put(large("p", "2"))
        await compiler.until("a/p", "2")
        feed.put(large("p", "3"), large("p", "4"))
        assert feed.in_force == {"a/p": "1"}
        compiler.gate.set()
        await compiler.until("a/p", "4")
        await feed.wait_until_compiled()
        assert feed.in_force == {"a/p": "4"}
        assert compiler.begun == [("a/p", "1"), ("a/p", "2"), ("a/p", "4")]


async def test_a_deletion_takes_effect_at_once_and_is_not_undone(compiler):
    feed = Feed()
    async with running(feed.run()):
        feed.put(large("p"), small("q"))
        await feed.wait_until_compiled()
        compiler.gate.clear()
        feed.put(large("p", "2"))
        await compiler.until("a/p", "2")
        feed.remove(large("p"))
        assert feed.in_force == {"a/q": "1"}
        feed.put(large("r"))
        compiler.gate.set()
        await feed.wait_until_compiled()
        assert feed.in_force == {"a/q": "1", "a/r": "1"}


async def test_a_policy_that_is_made_anew_is_not_the_one_that_was_deleted(compiler):
    feed = Feed()
    compiler.gate.clear()
    async with running(feed.run()):
        feed.put(large("p"))
        await compiler.until("a/p")
        feed.remove(large("p"))
        feed.put(large("p", "2"))
        compiler.gate.set()
        await feed.wait_until_compiled()
        assert feed.in_force == {"a/p": "2"}


@pytest.mark.claim("W11")
async def test_namespaces_take_turns_and_small_policies_wait_for_one_large_one(compiler):
    feed = Feed()
    compiler.gate.clear()
    async with running(feed.run()):
        feed.put(large("p1"), large("p2"), large("p3"))
        await compiler.until("a/p1")
        feed.put(large("q", namespace="b"), cluster_policy("c", nodeSelector={"v": "1"}))
        feed.put(small("s"), small("t"))
        compiler.gate.set()
        await feed.wait_until_compiled()
    begun = [name for name, _ in compiler.begun]
    assert begun == ["a/p1", "c", "a/s", "a/t", "a/p2", "b/q", "a/p3"]


async def test_small_policies_that_grow_do_not_make_small_ones_wait(compiler):
    feed = Feed()
    compiler.gate.clear()
    async with running(feed.run()):
        feed.put(small("first"))
        await compiler.until("a/first")
        feed.put(small("p1"), small("p2"), small("s", namespace="b"))
        feed.put(large("p1", "2"), large("p2", "2"))
        compiler.gate.set()
        await feed.wait_until_compiled()
    begun = [name for name, _ in compiler.begun]
    assert begun.index("b/s") <= 2
    assert feed.in_force == {"a/first": "1", "a/p1": "2", "a/p2": "2", "b/s": "1"}


async def test_small_policies_do_not_keep_large_ones_waiting(compiler):
    feed = Feed()
    compiler.gate.clear()
    async with running(feed.run()):
        feed.put(small("first"))
        await compiler.until("a/first")
        # As many bytes as are compiled in several goes.
        feed.put(large("p"), *(small(f"s{index:03}") for index in range(200)))
        compiler.gate.set()
        await feed.wait_until_compiled()
    assert 1 <= [name for name, _ in compiler.begun].index("a/p") < 150


async def test_what_cannot_be_compiled_stands_in_for_itself(compiler, monkeypatch):
    def fail(_):
        raise ZeroDivisionError

    monkeypatch.setattr(policy_feed, "compile_policy", fail)
    feed = Feed(keeps_sources=True)
    async with running(feed.run()):
        feed.put(small("p"), cluster_policy("c", nodeSelector={"v": "1"}))
        feed.change({"PodSchedulingPolicy a/q": "spec: too large"})
        await feed.wait_until_compiled()
    faults = {
        known_policy.reference: (known_policy.namespace, known_policy.fault)
        for known_policy in feed.policies.filed
    }
    assert faults == {
        "PodSchedulingPolicy a/p": ("a", "it can't be compiled"),
        "ClusterPodSchedulingPolicy c": (None, "it can't be compiled"),
        "PodSchedulingPolicy a/q": ("a", "spec: too large"),
    }


DISK = {"nodeSelector": {"disk": "ssd"}}


def compile_manifest(name="web", **annotations):
    manifest = cluster_policy(name, pods={}, **DISK)
    keys = {"enforcement": ENFORCEMENT_KEY, "mode": MODE_KEY}
    written = {keys[key]: value for key, value in annotations.items()}
    manifest["metadata"]["annotations"] = written
    return read_policy(manifest)[0]


def feed_of(*policies):
    """A feed with compiled policies."""
    feed = PolicyFeed(lambda _: None)
    feed._take({policy.reference: policy for policy in policies})
    return feed


def names_of_matches(policies):
    return [
        known_policy.reference.partition(" ")[2] for known_policy in policies.match("ns", {}, {})
    ]


def reference_and_hash(policy):
    return policy.reference, policy.hash


def test_only_what_names_the_api_server_alone_is_left_out():
    policies = [
        compile_manifest(mode, enforcement=mode) for mode in ("APIServer", "Both", "Webhook")
    ]
    feed = feed_of(*policies)
    feed.leave_out(frozenset(map(reference_and_hash, policies)))
    assert names_of_matches(feed.policies) == ["Both", "Webhook"]
    assert len(feed.policies.references) == 3
    feed.leave_out(frozenset())
    assert names_of_matches(feed.policies) == ["APIServer", "Both", "Webhook"]


def test_a_policy_of_another_hash_is_not_left_out():
    feed = feed_of(compile_manifest(enforcement="APIServer"))
    feed.leave_out(frozenset([(compile_manifest().reference, "another")]))
    assert names_of_matches(feed.policies) == ["web"]


def test_a_policy_that_comes_later_is_left_out_at_once():
    policy = compile_manifest(enforcement="APIServer")
    feed = feed_of()
    feed.leave_out(frozenset([reference_and_hash(policy)]))
    feed._take({policy.reference: policy})
    assert names_of_matches(feed.policies) == []


def test_an_audited_policy_moves_to_the_enforced_ones_when_its_mode_does():
    feed = feed_of(compile_manifest(mode="Audit"))
    assert (names_of_matches(feed.policies), names_of_matches(feed.audited)) == ([], ["web"])
    feed._take({compile_manifest().reference: compile_manifest()})
    assert (names_of_matches(feed.policies), names_of_matches(feed.audited)) == (["web"], [])


@pytest.mark.parametrize(
    ("selector", "result"), [({}, WOULD_CHANGE), (DISK["nodeSelector"], UNCHANGED)]
)
def test_an_audited_policy_is_evaluated_and_changes_nothing(selector, result):
    policies = [compile_manifest(mode="Audit")]
    snapshot = Snapshot(policy_set(policies), audited=audited_set(policies))
    engine = Engine(snapshot, AdmissionSettings())
    pod = workload("Pod", {})
    pod["spec"]["nodeSelector"] = selector
    response_body, decision = answer(body(pod, namespace="ns"), engine)
    assert "patch" not in json.loads(response_body)["response"]
    assert list(audit_results(decision.verdict.audit, engine)) == [(policies[0].reference, result)]
    assert result != FITS_NO_NODE
