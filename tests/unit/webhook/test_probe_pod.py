"""The pod that doctor tries: answered where it is only tried, never where it would be stored."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.selectors import LabelSelector
from harbourmaster.policies.compiled import compile_policy
from harbourmaster.policies.index import policy_set
from harbourmaster.policies.model import (
    API_VERSION,
    CLUSTER_POLICY,
    Policy,
    PolicyMetadata,
    PolicySpec,
)
from harbourmaster.webhook.engine import Engine
from harbourmaster.webhook.handlers import answer
from harbourmaster.webhook.probe_pod import PROBE_LABEL, VERSION, our_version, probe_pod_policy
from harbourmaster.webhook.review import decode_review
from harbourmaster.webhook.settings import AdmissionSettings
from harbourmaster.webhook.snapshot import Snapshot
from helpers.objects import body, workload
from helpers.oracles import apply_patch


def admit(document, *, features=("policies", "gates"), namespace="ns1", policies=(), **request):
    """Return the object with the patch of its answer."""
    engine = Engine(
        Snapshot(policies=policy_set(policies), excluded=frozenset(("home",))),
        AdmissionSettings(features=features),
    )
    sent = body(document, namespace=namespace, **request)
    result, _ = answer(sent, engine)
    response = json.loads(result)["response"]
    assert response["allowed"]
    return apply_patch(document, response) if "patch" in response else document


def canary(kind="Pod"):
    return workload(kind, {PROBE_LABEL: "true"})


@pytest.mark.parametrize("features", [("policies", "gates"), ()], ids=repr)
def test_one_that_is_tried_is_told_who_answers(features):
    spec = admit(canary(), dryRun=True, features=features)["spec"]
    assert spec["nodeSelector"][VERSION] == our_version()
    assert {"key": PROBE_LABEL, "operator": "Exists"} in spec["tolerations"]
    again = admit({**canary(), "spec": spec}, dryRun=True)
    assert again["spec"] == spec


def test_no_policy_speaks_for_the_one_that_answers():
    forged = PolicySpec(
        namespace_selector=LabelSelector(),
        pod_selector=LabelSelector(),
        node_selector={VERSION: "9.9.9", "pool": "a"},
    )
    policy = compile_policy(Policy(API_VERSION, CLUSTER_POLICY, PolicyMetadata(name="a"), forged))
    spec = admit(canary(), dryRun=True, policies=(policy,))["spec"]
    assert spec["nodeSelector"] == {VERSION: our_version(), "pool": "a"}


@pytest.mark.parametrize("dry_run", [None, False, "true", 1, {}], ids=repr)
def test_one_that_would_be_stored_is_a_pod_like_any_other(dry_run):
    pod = canary()
    request = {} if dry_run is None else {"dryRun": dry_run}
    assert admit(pod, **request) == pod


@pytest.mark.parametrize(
    ("document", "options"),
    [
        (canary("Deployment"), {}),
        (workload("Pod", {}), {}),
        (canary(), {"namespace": "home"}),
        (canary(), {"operation": "UPDATE"}),
    ],
    ids=["a template", "another pod", "our own namespace", "an update"],
)
def test_nothing_else_is(document, options):
    assert admit(document, dryRun=True, **options) == document


def test_it_sets_nothing_but_what_policies_may_set():
    policy = probe_pod_policy()
    assert policy.fault is None
    assert policy.node_selector == ((VERSION, our_version()),)
    assert (policy.node_name, policy.scheduler_name, policy.required) == (None, None, None)


def test_a_review_may_say_anything_of_dry_runs():
    review = decode_review(body(canary(), dryRun="maybe"))
    assert not review.request.is_dry_run
    assert decode_review(body(canary(), dryRun=True)).request.is_dry_run
