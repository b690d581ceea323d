"""Policies that the API server enforces are left out, and audited ones change nothing."""

from __future__ import annotations

import json

import pytest

from harbourmaster.policies.enforcement import ENFORCEMENT_KEY, MODE_KEY
from harbourmaster.policies.index import audited_set, policy_set
from harbourmaster.webhook.auditing import FITS_NO_NODE, WOULD_CHANGE, audit_results
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.policy_feed import PolicyFeed
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from harbourmaster.webhook.sources import read_policy
from harbourmaster.webhook.verdict import UNCHANGED
from helpers.objects import body, cluster_policy, workload

DISK = {"nodeSelector": {"disk": "ssd"}}


def compiled(name="web", **annotations):
    manifest = cluster_policy(name, pods={}, **DISK)
    keys = {"enforcement": ENFORCEMENT_KEY, "mode": MODE_KEY}
    found = {keys[key]: value for key, value in annotations.items()}
    manifest["metadata"]["annotations"] = found
    return read_policy(manifest)[0]


def fed(*policies):
    """A feed with compiled policies."""
    feed = PolicyFeed(lambda _: None)
    feed._take({policy.reference: policy for policy in policies})
    return feed


def matched(policies):
    return [each.reference.partition(" ")[2] for each in policies.match("ns", {}, {})]


def asked(policy):
    return policy.reference, policy.hash


def test_only_what_names_the_api_server_alone_is_left_out():
    found = [compiled(mode, enforcement=mode) for mode in ("APIServer", "Both", "Webhook")]
    feed = fed(*found)
    feed.leave_out(frozenset(map(asked, found)))
    assert matched(feed.policies) == ["Both", "Webhook"]
    assert len(feed.policies.references) == 3
    feed.leave_out(frozenset())
    assert matched(feed.policies) == ["APIServer", "Both", "Webhook"]


def test_a_policy_of_another_hash_is_not_left_out():
    feed = fed(compiled(enforcement="APIServer"))
    feed.leave_out(frozenset([(compiled().reference, "another")]))
    assert matched(feed.policies) == ["web"]


def test_a_policy_that_comes_later_is_left_out_at_once():
    policy = compiled(enforcement="APIServer")
    feed = fed()
    feed.leave_out(frozenset([asked(policy)]))
    feed._take({policy.reference: policy})
    assert matched(feed.policies) == []


def test_an_audited_policy_moves_to_the_enforced_ones_when_its_mode_does():
    feed = fed(compiled(mode="Audit"))
    assert (matched(feed.policies), matched(feed.audited)) == ([], ["web"])
    feed._take({compiled().reference: compiled()})
    assert (matched(feed.policies), matched(feed.audited)) == (["web"], [])


@pytest.mark.parametrize(
    ("selector", "result"), [({}, WOULD_CHANGE), (DISK["nodeSelector"], UNCHANGED)]
)
def test_an_audited_policy_is_evaluated_and_changes_nothing(selector, result):
    policies = [compiled(mode="Audit")]
    snapshot = Snapshot(policy_set(policies), audited=audited_set(policies))
    engine = Engine(snapshot, AdmissionSettings())
    pod = workload("Pod", {})
    pod["spec"]["nodeSelector"] = selector
    found, decision = answer(body(pod, namespace="ns"), engine)
    assert "patch" not in json.loads(found)["response"]
    assert list(audit_results(decision.verdict.audit, engine)) == [(policies[0].reference, result)]
    assert result != FITS_NO_NODE
