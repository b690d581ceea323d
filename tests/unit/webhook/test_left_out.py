"""Policies that the API server enforces are left out, and audited ones change nothing."""

from __future__ import annotations

import json

import pytest

from harbourmaster.policies.enforcement import ENFORCEMENT_KEY, MODE_KEY
from harbourmaster.policies.index import audited_set, policy_set
from harbourmaster.webhook.engine import FITS_NO_NODE, WOULD_CHANGE, Engine, audit_results
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.policy_feed import PolicyFeed
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import UNCHANGED
from helpers.objects import body, cluster_policy, workload

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
