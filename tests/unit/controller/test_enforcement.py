"""The condition of a policy that says who enforces it."""

from __future__ import annotations

import msgspec
import pytest

from harbourmaster.controller.enforcement import decide_condition, decode
from harbourmaster.policies.enforcement import CONDITION, ENFORCEMENT_KEY, UNSUPPORTED, Known
from helpers.delegation import hash_of
from helpers.objects import cluster_policy

NOW, BEFORE = "2026-11-28T08:00:00Z", "2026-11-27T08:00:00Z"
REFERENCE = "ClusterPodSchedulingPolicy web"


def policy_with(enforcement="APIServer", **condition):
    manifest = cluster_policy("web", nodeSelector={"a": "b"})
    metadata = {**manifest["metadata"], "generation": 3, "resourceVersion": "7"}
    if enforcement:
        metadata["annotations"] = {ENFORCEMENT_KEY: enforcement}
    stored_condition = {"type": CONDITION, "lastTransitionTime": BEFORE, **condition}
    status = {"status": {"conditions": [stored_condition]}} if condition else {}
    return decode(msgspec.json.encode({**manifest, "metadata": metadata, **status}))


def known_of(*, is_settled):
    asked = frozenset({(REFERENCE, hash_of(cluster_policy("web", nodeSelector={"a": "b"})))})
    return Known("", {}, asked, asked if is_settled else frozenset())


def test_a_policy_that_never_asked_gets_no_condition():
    assert decide_condition(policy_with(enforcement=""), Known(""), NOW) is None


def test_a_policy_that_no_longer_asks_is_told_that_the_webhook_enforces_it():
    decided = decide_condition(policy_with("", status="True", reason="Enforced"), Known(""), NOW)
    assert (decided["status"], decided["reason"]) == ("False", "ModeIsWebhook")
    assert decided["lastTransitionTime"] == NOW


def test_it_waits_for_the_webhooks_and_is_then_enforced():
    waiting = decide_condition(policy_with(), known_of(is_settled=False), NOW)
    assert (waiting["status"], waiting["reason"]) == ("False", "WaitingForWebhooks")
    settled = decide_condition(policy_with(), known_of(is_settled=True), NOW)
    assert (settled["status"], settled["reason"]) == ("True", "Enforced")
    assert settled["observedGeneration"] == 3


def test_a_controller_that_starts_again_does_not_take_it_back():
    before = decide_condition(policy_with(), known_of(is_settled=True), NOW)
    policy = policy_with(**before)
    assert decide_condition(policy, known_of(is_settled=False), NOW) is None


def test_the_time_of_the_last_transition_stays_while_the_status_does():
    decided = decide_condition(
        policy_with(status="False", reason="NotBound"), Known(UNSUPPORTED), NOW
    )
    assert (decided["reason"], decided["lastTransitionTime"]) == ("Unsupported", BEFORE)


@pytest.mark.parametrize("enforcement", ["Webhook", "APIServer", "Both"])
def test_what_the_status_says_is_not_written_again(enforcement):
    first = decide_condition(
        policy_with(enforcement, status="Unknown"), known_of(is_settled=True), NOW
    )
    assert (
        decide_condition(policy_with(enforcement, **first), known_of(is_settled=True), "later")
        is None
    )
