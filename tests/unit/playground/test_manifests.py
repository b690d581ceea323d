from __future__ import annotations

import json
from subprocess import CompletedProcess

import pytest

from harbourmaster.playground import manifests
from harbourmaster.playground.errors import PlaygroundError
from helpers.manifests import DEPLOY, render


def kustomize_default(*arguments):
    assert arguments == ("kustomize", str(manifests.DEFAULT))
    return CompletedProcess(arguments, 0, render("default"))


@pytest.fixture(scope="module")
def default_manifests():
    return manifests.render(kustomize_default, manifests.DEFAULT)


@pytest.fixture
def kubectl():
    calls = []

    def kubectl(*arguments, stdin=None):
        calls.append((arguments, stdin))

    kubectl.calls = calls
    return kubectl


def configuration(kind):
    service = {"name": "harbourmaster-webhook", "port": 443, "path": "/mutate"}
    webhooks = [{"clientConfig": {"service": dict(service)}} for _ in range(2)]
    return {"kind": f"{kind}WebhookConfiguration", "webhooks": webhooks}


def test_the_manifests_are_the_project_s():
    assert manifests.DEPLOY.resolve() == DEPLOY
    assert manifests.DEFAULT.resolve() == DEPLOY / "default"


def test_no_deployment_is_applied_and_everything_else_is(default_manifests):
    left = manifests.adapt(default_manifests, 1, 2)
    kinds = {item["kind"] for item in default_manifests}
    assert {item["kind"] for item in left} == kinds - {"Deployment"}
    assert len(left) == len([item for item in default_manifests if item["kind"] != "Deployment"])


def test_the_service_of_the_webhook_leads_to_this_machine(default_manifests):
    services = {
        item["metadata"]["name"]: item["spec"]
        for item in manifests.adapt(default_manifests, 1)
        if item["kind"] == "Service"
    }
    assert services["harbourmaster-webhook"] == {
        "type": "ExternalName",
        "externalName": "localhost",
    }
    assert services["harbourmaster-controller"]["ports"]


def test_the_custom_metrics_api_leads_to_the_port_of_a_controller(default_manifests):
    items = manifests.adapt(default_manifests, 1, 21001)
    services = [item["spec"]["service"] for item in items if item["kind"] == "APIService"]
    assert [(service["name"], service["port"]) for service in services] == [
        ("harbourmaster-metrics", 21001)
    ] * 2
    (service,) = [
        item
        for item in items
        if item["metadata"]["name"] == "harbourmaster-metrics" and item["kind"] == "Service"
    ]
    assert service["spec"] == {"type": "ExternalName", "externalName": "localhost"}
    # An API without a server would block the deletion of namespaces.
    alone = manifests.adapt(default_manifests, 1)
    assert "APIService" not in {item["kind"] for item in alone}


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
def test_shipped_configurations_name_the_port_of_the_webhook(kind):
    (adapted,) = manifests.adapt([configuration(kind)], 21000)
    ports = [webhook["clientConfig"]["service"]["port"] for webhook in adapted["webhooks"]]
    assert ports == [21000, 21000]
    assert adapted["webhooks"][0]["clientConfig"]["service"]["path"] == "/mutate"


def test_a_conversion_names_the_port_of_the_webhook(default_manifests):
    ports = [
        item["spec"]["conversion"]["webhook"]["clientConfig"]["service"]["port"]
        for item in manifests.adapt(default_manifests, 21000)
        if item["kind"] == "CustomResourceDefinition" and "conversion" in item["spec"]
    ]
    assert ports == [21000, 21000]


def test_what_was_rendered_stays_as_it_is():
    items = [configuration("Mutating")]
    manifests.adapt(items, 21000)
    assert items == [configuration("Mutating")]


@pytest.mark.parametrize("role", ["webhook", "controller"])
def test_the_flags_of_a_deployment_are_found(default_manifests, role):
    assert "--host=::" in manifests.container_flags(default_manifests, role)
    assert role not in manifests.container_flags(default_manifests, role)


def test_without_a_deployment_there_are_no_flags():
    assert manifests.container_flags([], "webhook") == []


def test_everything_is_applied_at_once(kubectl):
    items = [{"kind": "Namespace"}, {"kind": "Service"}]
    manifests.apply(kubectl, items)
    ((arguments, stdin),) = kubectl.calls
    assert arguments[0] == "apply"
    assert json.loads(stdin)["items"] == items


def test_the_kinds_to_wait_for_are_known(default_manifests):
    paths = manifests.served_paths(default_manifests)
    assert [path for path in paths if "/kupid.gardener.cloud/" in path] == [
        "/apis/kupid.gardener.cloud/v1alpha1/clusterpodschedulingpolicies",
        "/apis/kupid.gardener.cloud/v1alpha1/podschedulingpolicies",
    ]
    assert sorted(path for path in paths if path.endswith("/keptnapps")) == [
        f"/apis/lifecycle.keptn.sh/{version}/keptnapps"
        for version in ("v1", "v1alpha1", "v1alpha2", "v1alpha3", "v1beta1")
    ]


def test_a_folder_without_manifests_is_one_clear_line(kubectl, tmp_path):
    with pytest.raises(PlaygroundError, match=r"holds no kustomization\.yaml: install the project"):
        manifests.render(kubectl, tmp_path)
