"""The hardened overlay, and the component of client certificates."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from harbourmaster.cli.doctor.checks.environment import GUARDS
from helpers.manifests import (
    DEPLOY,
    ROOT,
    deploy_without_schemas,
    deployment_of,
    hardened_overlay,
    kubectl,
    objects,
    objects_of,
    of_component,
    of_kind,
    one,
    pod_of,
    rights,
    settings_of,
)

RANGES = ("192.0.2.10/32", "2001:db8::/64")
BINDING = "ValidatingAdmissionPolicyBinding"


@pytest.fixture(scope="module")
def manifests(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hardened")
    return objects_of(hardened_overlay(folder, *RANGES, deploy=deploy_without_schemas()))


@pytest.mark.claim("R13")
def test_it_refuses_to_render_without_address_ranges(tmp_path):
    command = [kubectl(), "kustomize", DEPLOY / "hardened"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode
    assert not result.stdout
    assert "api-server-address-ranges" in result.stderr
    with pytest.raises(AssertionError, match="is missing for replacement source"):
        objects_of(hardened_overlay(tmp_path, deploy=deploy_without_schemas()))


@pytest.mark.claim("R13")
def test_only_the_api_server_and_prometheus_reach_our_pods(manifests):
    peers = [{"ipBlock": {"cidr": cidr}} for cidr in RANGES]
    ingress = {
        (policy["metadata"]["name"], rule["ports"][0]["port"]): rule.get("from")
        for policy in of_kind(manifests, "NetworkPolicy")
        for rule in policy["spec"]["ingress"]
    }
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    assert ingress == {
        ("harbourmaster-webhook", "webhook"): peers,
        ("harbourmaster-controller", "metrics-api"): peers,
        ("harbourmaster", "health"): [{"namespaceSelector": monitoring}],
    }
    assert one(manifests, "NetworkPolicy", "harbourmaster")["spec"]["egress"][0]["to"] == peers
    # The list of ranges itself is not applied.
    assert len(of_kind(manifests, "NetworkPolicy")) == 4


@pytest.mark.claim("R12")
def test_the_controller_has_no_access_to_secrets_but_its_certificates(manifests):
    everywhere = rights(of_component(of_kind(manifests, "ClusterRole"), "controller"))
    assert not {right for right in everywhere if right[1] == "secrets"}
    at_home = rights(of_component(of_kind(manifests, "Role"), "controller"))
    assert {verb for _, resource, verb in at_home if resource == "secrets"} == {
        "create",
        "list",
        "update",
        "watch",
    }
    names = {(obj["kind"], obj["metadata"]["name"]) for obj in manifests}
    usual = {(obj["kind"], obj["metadata"]["name"]) for obj in objects()}
    dropped = {("ClusterRole", "harbourmaster-secrets")}
    assert usual - names == dropped | {("ClusterRoleBinding", "harbourmaster-secrets")}


def test_it_has_every_guard_that_doctor_asks_for(manifests):
    bound = {
        binding["spec"]["policyName"]: binding["spec"] for binding in of_kind(manifests, BINDING)
    }
    assert {name for guard in GUARDS for name in guard.policies} <= bound.keys()
    warning = "harbourmaster-opt-in-warning"
    for name, spec in bound.items():
        assert spec["validationActions"] == ["Warn" if name == warning else "Deny"]
    for policy in of_kind(manifests, "ValidatingAdmissionPolicy"):
        warns = policy["metadata"]["name"] == warning
        assert policy["spec"]["failurePolicy"] == ("Ignore" if warns else "Fail")
    for guard in GUARDS:
        assert (DEPLOY / "components" / guard.component).is_dir()


def test_the_guard_of_the_account_names_no_namespace_of_ours():
    texts = [path.read_text() for path in (DEPLOY / "components/account-guard").glob("*.yaml")]
    assert len(texts) >= 7
    assert "harbourmaster-system" not in "".join(texts)


def test_make_fills_in_the_ranges():
    command = ["make", "--dry-run", "deploy-hardened"]
    refused = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "API_SERVER_CIDRS is not set" in refused.stdout
    given = [*command, f"API_SERVER_CIDRS={','.join(RANGES)}"]
    made = subprocess.run(given, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f'cidr: "%s"}}\\n\' {" ".join(RANGES)};' in made
    assert "kustomize build/hardened" in made


def test_the_component_of_client_certificates_sets_what_the_manual_tells_to_prepare():
    webhook = deployment_of(objects("default", "client-certificates"), "webhook")
    server = settings_of(webhook).server
    (callers,) = [volume for volume in pod_of(webhook)["volumes"] if volume["name"] == "callers"]
    page = (ROOT / "docs/howto/hardening.md").read_text()
    assert f"configmap {callers['configMap']['name']} --from-file=ca.crt" in page
    assert f"/CN={server.client_cn}" in page
    assert server.client_ca == "/etc/harbourmaster/callers/ca.crt"
    text = page.split("<!-- admission configuration -->")[1].split("```")[1].removeprefix("yaml")
    configuration, kubeconfig = yaml.safe_load_all(text)
    assert {plugin["name"] for plugin in configuration["plugins"]} == {
        "MutatingAdmissionWebhook",
        "ValidatingAdmissionWebhook",
    }
    (user,) = kubeconfig["users"]
    assert user["name"] == "harbourmaster-webhook.harbourmaster-system.svc"
