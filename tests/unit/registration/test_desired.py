"""Webhook configurations have a fixed order and all defaults (platform-spec 6.1)."""

from __future__ import annotations

import base64
import json

import msgspec
import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS
from harbourmaster.registration.desired import Home, desired_configurations
from harbourmaster.registration.settings import KINDS, RegistrationSettings

HOME = Home("harbour", "1234")
OWN = {"key": "kubernetes.io/metadata.name", "operator": "NotIn"}
GATED = {"key": "gates.harbourmaster.dev/enabled", "values": ["true"]}
DEFAULTED = {
    "admissionReviewVersions",
    "clientConfig",
    "failurePolicy",
    "matchPolicy",
    "name",
    "namespaceSelector",
    "objectSelector",
    "rules",
    "sideEffects",
    "timeoutSeconds",
}


def settings(**values):
    return msgspec.convert(values, RegistrationSettings)


def mutating(*, home=HOME, ca_bundle=b"PEM", **values):
    return desired_configurations(settings(**values), home, ca_bundle)[MUTATING_WEBHOOKS]


def entry(name, **values):
    return next(
        webhook for webhook in mutating(**values)["webhooks"] if webhook["name"].startswith(name)
    )


def rules(**values):
    return {
        (group, resource): rule["operations"]
        for rule in entry("templates", **values)["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def validating(name="policies", **values):
    webhooks = desired_configurations(settings(**values), HOME, b"PEM")[VALIDATING_WEBHOOKS][
        "webhooks"
    ]
    return next(webhook for webhook in webhooks if webhook["name"].startswith(name))


def test_entries_stand_in_a_fixed_order():
    assert [webhook["name"] for webhook in mutating()["webhooks"]] == [
        "templates.harbourmaster.dev",
        "pods.harbourmaster.dev",
        "gated-pods.harbourmaster.dev",
        "reruns.harbourmaster.dev",
    ]


def test_the_order_of_settings_changes_nothing():
    turned = settings(kinds=KINDS[::-1], templateOperations=["UPDATE", "CREATE"])
    assert json.dumps(mutating()) == json.dumps(
        desired_configurations(turned, HOME, b"PEM")[MUTATING_WEBHOOKS]
    )


def test_all_that_the_api_server_would_fill_in_is_there():
    for webhook in mutating()["webhooks"]:
        assert webhook.keys() == {*DEFAULTED, "reinvocationPolicy"}
        assert webhook["clientConfig"]["service"].keys() == {"name", "namespace", "path", "port"}
        assert all(rule["scope"] == "Namespaced" for rule in webhook["rules"])
    assert validating()["rules"][0]["scope"] == "*"
    for name in ("policies", "taskdefinitions", "metrics"):
        assert validating(name).keys() == DEFAULTED
    for name in ("taskdefinitions", "metrics"):
        assert validating(name)["rules"][0]["scope"] == "Namespaced"


def test_templates_and_their_operations():
    both = ["CREATE", "UPDATE"]
    assert rules() == {
        ("apps", "daemonsets"): both,
        ("apps", "deployments"): both,
        ("apps", "statefulsets"): both,
        ("", "replicationcontrollers"): both,
        ("batch", "jobs"): ["CREATE"],
        ("batch", "cronjobs"): both,
    }


def test_operations_of_templates_are_a_setting_but_not_those_of_jobs():
    operations = rules(templateOperations=["CREATE"])
    assert set(map(tuple, operations.values())) == {("CREATE",)}
    assert rules(templateOperations=["UPDATE"])["batch", "jobs"] == ["CREATE"]


def test_kinds_are_a_setting():
    assert rules(kinds=["replicasets", "jobs"]) == {
        ("apps", "replicasets"): ["CREATE", "UPDATE"],
        ("batch", "jobs"): ["CREATE"],
    }
    assert [webhook["name"] for webhook in mutating(kinds=["jobs"])["webhooks"]] == [
        "templates.harbourmaster.dev"
    ]


@pytest.mark.parametrize("values", [{"templates": False}, {"kinds": ["pods"]}])
def test_pods_alone_can_be_registered(values):
    assert [webhook["name"] for webhook in mutating(**values)["webhooks"]] == [
        "pods.harbourmaster.dev",
        "gated-pods.harbourmaster.dev",
        "reruns.harbourmaster.dev",
    ]


def test_requests_for_reruns_are_seen_and_no_other_update_of_a_version():
    reruns = entry("reruns", objectSelector={"matchLabels": {"app": "cart"}})
    exists = {"key": "gates.harbourmaster.dev/rerun", "operator": "Exists"}
    assert reruns["objectSelector"] == {"matchExpressions": [exists]}
    (rule,) = reruns["rules"]
    assert rule["operations"] == ["UPDATE"]
    assert rule["resources"] == ["keptnappversions", "keptnworkloadversions"]


def test_pods_are_reviewed_when_created_only():
    for name in ("pods", "gated-pods"):
        (rule,) = entry(name)["rules"]
        assert (rule["resources"], rule["operations"]) == (["pods"], ["CREATE"])


def test_the_entries_for_pods_are_disjoint_by_the_gates_label():
    pods = entry("pods")["namespaceSelector"]["matchExpressions"]
    gated = entry("gated-pods")["namespaceSelector"]["matchExpressions"]
    assert {**GATED, "operator": "NotIn"} in pods
    assert {**GATED, "operator": "In"} in gated


def test_pods_that_the_api_server_gated_have_an_entry_that_fails_open():
    assert "matchConditions" not in entry("gated-pods")
    gated, held = (entry(name, apiServerGate=True) for name in ("gated-pods", "held-pods"))
    (apart,), (condition,) = gated.pop("matchConditions"), held.pop("matchConditions")
    assert apart["expression"] == f"!({condition['expression']})"
    assert held == {**gated, "name": held["name"], "failurePolicy": "Ignore"}
    assert entry("held-pods", apiServerGate=True, failurePolicy="Fail")["failurePolicy"] == "Fail"


def test_only_what_gates_depend_on_fails_closed():
    policies = {webhook["name"]: webhook["failurePolicy"] for webhook in mutating()["webhooks"]}
    assert policies == {
        "templates.harbourmaster.dev": "Ignore",
        "pods.harbourmaster.dev": "Ignore",
        "gated-pods.harbourmaster.dev": "Fail",
        "reruns.harbourmaster.dev": "Fail",
    }
    assert entry("pods", failurePolicy="Fail")["failurePolicy"] == "Fail"
    assert entry("gated-pods", gatedFailurePolicy="Ignore")["failurePolicy"] == "Ignore"
    assert validating(failurePolicy="Fail")["failurePolicy"] == "Fail"


def test_our_own_namespace_is_never_reviewed():
    webhooks = mutating(excludedNamespaces=["kube-system"])["webhooks"]
    assert len(webhooks) == 4
    for webhook in webhooks:
        (first, *_) = webhook["namespaceSelector"]["matchExpressions"]
        assert first == {**OWN, "values": ["kube-system", "harbour"]}


def test_our_own_namespace_stands_once_in_the_list():
    (first, *_) = entry("pods", excludedNamespaces=["harbour", "a"])["namespaceSelector"][
        "matchExpressions"
    ]
    assert first["values"] == ["harbour", "a"]


def test_the_user_s_selectors_narrow_ours():
    selector = {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "x", "operator": "Exists", "values": []}],
    }
    namespace_selector = entry("gated-pods", namespaceSelector=selector)["namespaceSelector"]
    assert namespace_selector["matchLabels"] == {"team": "a"}
    assert [expression["key"] for expression in namespace_selector["matchExpressions"]] == [
        "kubernetes.io/metadata.name",
        "gates.harbourmaster.dev/enabled",
        "x",
    ]
    # An empty list is what the API server leaves out.
    assert "values" not in namespace_selector["matchExpressions"][2]
    assert entry("pods", objectSelector=selector)["objectSelector"] == {
        "matchLabels": {"team": "a"},
        "matchExpressions": [{"key": "x", "operator": "Exists"}],
    }


VALIDATED = {
    "policies": ["clusterpodschedulingpolicies", "podschedulingpolicies"],
    "taskdefinitions": ["keptntaskdefinitions"],
    "metrics": [
        *("analyses", "analysisdefinitions", "analysisvaluetemplates"),
        *("keptnmetrics", "keptnmetricsproviders"),
    ],
}


@pytest.mark.parametrize(
    ("name", "match", "group", "version", "scope"),
    [
        ("policies", "Exact", "kupid.gardener.cloud", "v1alpha1", "*"),
        ("taskdefinitions", "Equivalent", "lifecycle.keptn.sh", "v1", "Namespaced"),
        ("metrics", "Equivalent", "metrics.keptn.sh", "v1", "Namespaced"),
    ],
)
def test_objects_are_validated_in_every_namespace(name, match, group, version, scope):
    webhook = validating(name, namespaceSelector={"matchLabels": {"a": "b"}})
    assert webhook["namespaceSelector"] == webhook["objectSelector"] == {}
    assert webhook["matchPolicy"] == match
    assert webhook["clientConfig"]["service"]["path"] == "/validate"
    assert webhook["rules"] == [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": ["CREATE", "UPDATE"],
            "resources": VALIDATED[name],
            "scope": scope,
        }
    ]


def test_the_kinds_of_metrics_fail_open_as_policies_do():
    assert validating("metrics")["failurePolicy"] == "Ignore"
    assert validating("metrics", failurePolicy="Fail")["failurePolicy"] == "Fail"
    assert validating("metrics", gatedFailurePolicy="Fail")["failurePolicy"] == "Ignore"


def test_task_definitions_fail_closed_as_gated_pods_do():
    assert validating("taskdefinitions", failurePolicy="Ignore")["failurePolicy"] == "Fail"
    webhook = validating("taskdefinitions", gatedFailurePolicy="Ignore")
    assert webhook["failurePolicy"] == "Ignore"


def test_the_service_is_a_setting_and_by_default_in_our_namespace():
    assert entry("pods")["clientConfig"]["service"] == {
        "name": "harbourmaster-webhook",
        "namespace": "harbour",
        "path": "/mutate",
        "port": 443,
    }
    webhook = entry("pods", serviceName="hm", serviceNamespace="other", servicePort=8443)
    assert webhook["clientConfig"]["service"] == {
        "name": "hm",
        "namespace": "other",
        "path": "/mutate",
        "port": 8443,
    }


def test_the_bundle_is_in_every_entry_and_may_be_left_out():
    encoded = base64.b64encode(b"PEM").decode()
    assert {webhook["clientConfig"]["caBundle"] for webhook in mutating()["webhooks"]} == {encoded}
    assert validating()["clientConfig"]["caBundle"] == encoded
    assert all(
        "caBundle" not in webhook["clientConfig"]
        for webhook in mutating(ca_bundle=None)["webhooks"]
    )


def test_timeout_and_reinvocation_are_settings():
    webhook = entry("pods", timeoutSeconds=9, reinvocationPolicy="Never")
    assert (webhook["timeoutSeconds"], webhook["reinvocationPolicy"]) == (9, "Never")
    assert validating(timeoutSeconds=9)["timeoutSeconds"] == 9


def test_the_namespace_owns_the_configurations():
    assert mutating()["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Namespace", "name": "harbour", "uid": "1234"}
    ]
    assert "ownerReferences" not in mutating(home=Home("harbour"))["metadata"]


def test_nothing_needs_more_than_kubernetes_1_25():
    assert "matchConditions" not in json.dumps(mutating())


def shadow_configurations(**values):
    configurations = desired_configurations(settings(shadow=True, **values), HOME, b"PEM")
    return [configurations[resource] for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)]


def test_in_shadow_mode_the_mutating_webhook_is_called_before_those_of_kupid_and_keptn():
    name = shadow_configurations()[0]["metadata"]["name"]
    theirs = ("gardener-extension-kupid", "lifecycle-mutating-webhook-configuration")
    assert min((*theirs, name)) == name


def test_in_shadow_mode_no_webhook_can_refuse_delay_or_change_an_object():
    live = entry("pods")["clientConfig"]["service"]["path"]
    first, last = shadow_configurations(failurePolicy="Fail", gatedFailurePolicy="Fail")
    for webhook in (*first["webhooks"], *last["webhooks"]):
        assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
        assert webhook["timeoutSeconds"] <= 2
        assert webhook["clientConfig"]["service"]["path"] != live
        assert webhook.get("reinvocationPolicy", "Never") == "Never"


def test_in_shadow_mode_the_same_objects_are_seen_as_otherwise():
    expected = [*entry("templates")["rules"], *entry("pods")["rules"]]
    first, last = shadow_configurations(objectSelector={"matchLabels": {"a": "b"}})
    for webhook in (*first["webhooks"], *last["webhooks"]):
        assert webhook["rules"] == expected
        (excluded,) = webhook["namespaceSelector"]["matchExpressions"]
        assert HOME.name in excluded["values"]
        assert "kube-system" in excluded["values"]
        assert webhook["objectSelector"] == {"matchLabels": {"a": "b"}}


def test_in_shadow_mode_all_that_the_api_server_would_fill_in_is_there():
    first, last = (
        webhook_configuration["webhooks"][0] for webhook_configuration in shadow_configurations()
    )
    assert (first.keys(), last.keys()) == ({*DEFAULTED, "reinvocationPolicy"}, DEFAULTED)
