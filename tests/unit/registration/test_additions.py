"""Additions of other clients to webhook configurations stay, unless they change what we need."""

from __future__ import annotations

import copy
import json

import pytest

from harbourmaster.api.metadata import Metadata
from harbourmaster.api.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.api.selectors import LabelSelector
from harbourmaster.registration import additions
from harbourmaster.registration.desired import GATES_LABEL, Home, desired_configurations
from harbourmaster.registration.drift import apply_repairs, compare
from harbourmaster.registration.settings import RegistrationSettings
from helpers.registration import entry

AKS = [
    {"key": "control-plane", "operator": "NotIn", "values": ["true"]},
    {"key": "control-plane", "operator": "DoesNotExist"},
    {"key": "kubernetes.azure.com/managedby", "operator": "NotIn", "values": ["aks"]},
]
GKE = [
    {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "gke-gmp-system", "gke-managed-cim"],
    }
]
NODES = {"name": "no-nodes", "expression": '!("system:nodes" in request.userInfo.groups)'}
GATED = "gated-pods.harbourmaster.dev"


def desired(resource=MUTATING_WEBHOOKS, **settings):
    configuration = desired_configurations(RegistrationSettings(**settings), Home("h", "1"), b"x")
    # As it is read from the API server, without shared parts.
    configuration = json.loads(json.dumps(configuration[resource]))
    return additions.with_applied(configuration, configuration)


def with_terms(configuration, *expressions):
    """The configuration with expressions added to the namespaceSelector of each webhook."""
    stored = copy.deepcopy(configuration)
    for webhook in stored["webhooks"]:
        webhook["namespaceSelector"].setdefault("matchExpressions", []).extend(expressions)
    return stored


def repair(stored, wanted):
    return apply_repairs(stored, compare(stored, wanted), wanted)


@pytest.mark.parametrize("resource", [MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS])
@pytest.mark.parametrize("expressions", [AKS, GKE], ids=["AKS", "GKE Autopilot"])
def test_exclusions_of_providers_are_kept_in_every_webhook(resource, expressions):
    """Another term stays beside repairs (platform-spec 6.2)."""
    wanted = desired(resource)
    stored = with_terms(wanted, *expressions)
    assert compare(stored, wanted) == []
    # They stay when something else is repaired.
    stored["webhooks"][0]["timeoutSeconds"] = 30
    assert repair(stored, wanted)["webhooks"] == with_terms(wanted, *expressions)["webhooks"]


def test_exclusions_that_a_setting_has_for_some_webhooks_are_kept_in_the_others():
    selector = {"matchExpressions": AKS}
    for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
        wanted = desired(resource, namespace_selector=selector)
        assert compare(with_terms(wanted, *AKS), wanted) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("objectSelector", {"matchLabels": {"a": "b"}}),
        ("namespaceSelector", {"matchLabels": {"istio.io/rev": "canary"}}),
        ("matchConditions", [NODES]),
    ],
)
def test_a_term_that_is_ours_comes_back_beside_the_additions(field, value):
    # Another client replaced the field, without our terms.
    wanted = desired(object_selector={"matchLabels": {"ours": "1"}}, api_server_gate=True)
    stored = copy.deepcopy(wanted)
    entry(stored, GATED)[field] = value
    repaired = entry(repair(stored, wanted), GATED)
    ours = entry(wanted, GATED)[field]
    if field == "matchConditions":
        assert repaired[field] == [*ours, *value]
    else:
        assert repaired[field].get("matchExpressions") == ours.get("matchExpressions")
        assert repaired[field]["matchLabels"] == {
            **ours.get("matchLabels", {}),
            **value["matchLabels"],
        }
    assert compare(repair(stored, wanted), wanted) == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespaceSelector", {"matchExpressions": [{"key": GATES_LABEL, "operator": "Exists"}]}),
        ("namespaceSelector", {"matchLabels": {GATES_LABEL: "no"}}),
        ("objectSelector", {"matchLabels": {"ours": "2"}}),
        ("matchConditions", [{"name": "not-held", "expression": "false"}]),
    ],
    ids=["gates", "label of gates", "another value of our label", "another condition of our name"],
)
def test_an_addition_that_changes_what_we_need_is_removed(field, value):
    wanted = desired(object_selector={"matchLabels": {"ours": "1"}}, api_server_gate=True)
    stored = copy.deepcopy(wanted)
    entry(stored, GATED)[field] = value
    assert [change.field for change in compare(stored, wanted)] == [field]
    assert repair(stored, wanted) == wanted


def test_terms_and_values_in_another_order_are_no_drift():
    wanted = desired()
    stored = with_terms(wanted, *AKS)
    for webhook in stored["webhooks"]:
        expressions = webhook["namespaceSelector"]["matchExpressions"]
        expressions.reverse()
        for expression in expressions:
            expression.get("values", []).reverse()
    assert compare(stored, wanted) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"namespace_selector": {"matchLabels": {"team": "a"}}},
        {"excluded_namespaces": ("kube-system", "old")},
        {"object_selector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        {"match_conditions": {"no-nodes": NODES["expression"]}},
        {"api_server_gate": True},
        {"annotations": {"admissions.enforcer/disabled": "true"}},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_what_earlier_settings_wrote_goes_and_additions_stay(settings):
    wanted = desired()
    stored = with_terms(desired(**settings), *AKS)
    stored["metadata"]["annotations"]["theirs"] = "stays"
    repaired = repair(stored, wanted)
    assert repaired["webhooks"] == with_terms(wanted, *AKS)["webhooks"]
    assert repaired["metadata"]["annotations"] == {
        **wanted["metadata"]["annotations"],
        "theirs": "stays",
    }


@pytest.mark.parametrize(
    "annotations", [None, {}, {additions.APPLIED: "{"}, {additions.APPLIED: '{"a":1}'}]
)
def test_without_a_note_all_terms_are_ours(annotations):
    # As an earlier version left it, whose settings may have been others.
    wanted = desired()
    stored = with_terms(wanted, *AKS)
    stored["metadata"]["annotations"] = annotations
    assert repair(stored, wanted) == wanted


def test_labels_annotations_and_owners_of_other_tools_stay():
    wanted = desired()
    stored = copy.deepcopy(wanted)
    stored["metadata"]["labels"] |= {"app.kubernetes.io/instance": "platform"}
    stored["metadata"]["annotations"] |= {
        "argocd.argoproj.io/tracking-id": "platform:admissionregistration.k8s.io/x:/harbourmaster",
        "cert-manager.io/inject-ca-from": "h/ca",
    }
    assert compare(stored, wanted) == []


def test_settings_add_annotations_and_conditions():
    settings = {
        "annotations": {"admissions.enforcer/disabled": "true"},
        "match_conditions": {NODES["name"]: NODES["expression"]},
        "api_server_gate": True,
    }
    mutating = desired(**settings)
    assert mutating["metadata"]["annotations"]["admissions.enforcer/disabled"] == "true"
    conditions = {
        webhook["name"].partition(".")[0]: [
            condition["name"] for condition in webhook.get("matchConditions", ())
        ]
        for webhook in mutating["webhooks"]
    }
    assert conditions == {
        "templates": ["no-nodes"],
        "pods": ["no-nodes"],
        "gated-pods": ["no-nodes", "not-held"],
        "held-pods": ["no-nodes", "held"],
        "reruns": [],
    }
    validating = desired(VALIDATING_WEBHOOKS, **settings)
    assert validating["metadata"]["annotations"]["admissions.enforcer/disabled"] == "true"
    assert not any("matchConditions" in webhook for webhook in validating["webhooks"])
    stored = copy.deepcopy(mutating)
    del stored["metadata"]["annotations"]["admissions.enforcer/disabled"]
    (change,) = compare(stored, mutating)
    assert change.setting == "webhook.annotations"
    assert repair(stored, mutating) == mutating


def subject(name, labels=None, annotations=None, *, namespace="", selector=None):
    metadata = Metadata(
        name=name, namespace=namespace, labels=labels or {}, annotations=annotations or {}
    )
    return additions.Subject(metadata, additions._Spec(selector))


def test_namespaces_with_gates_or_policies_that_an_addition_excludes_are_named():
    aks = {"control-plane": "true"}
    namespaces = [
        subject("annotated", aks, {"keptn.sh/lifecycle-toolkit": "enabled"}),
        subject("labelled", {**aks, GATES_LABEL: "true"}),
        subject("chosen", {**aks, "stage": "test"}),
        subject("owns", aks),
        subject("neither", aks),
        # Reviewed as before.
        subject("kept", {GATES_LABEL: "true"}),
        # Excluded by us anyway.
        subject("kube-system", {**aks, GATES_LABEL: "true"}),
    ]
    policies = [subject("p", namespace="owns"), subject("q", namespace="gone")]
    chosen = LabelSelector(match_labels={"stage": "test"})
    cluster_policies = [subject("c", selector=chosen), subject("none"), additions.Subject()]
    subjects = (namespaces, policies, cluster_policies)
    wanted = desired()
    merged = additions.merge(with_terms(wanted, *AKS), wanted)
    assert additions.excluded_namespaces(merged, wanted, *subjects) == [
        "annotated",
        "chosen",
        "labelled",
        "owns",
    ]
    assert additions.excluded_namespaces(wanted, wanted, *subjects) == []
    assert additions.describe(merged, wanted)[0] == (
        'namespaceSelector {"key":"control-plane","operator":"NotIn","values":["true"]}'
    )
    assert additions.describe(wanted, wanted) == []
