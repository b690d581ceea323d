from __future__ import annotations

import json
import os
import re
from collections import Counter
from itertools import filterfalse

import pytest
import yaml

from harbourmaster.controller.names import (
    CONTROLLERS,
    NAMESPACES,
    PLACEMENT,
    POLICIES,
    REGISTRATION,
    RESCHEDULING,
)
from harbourmaster.controller.registration.ca_injector import CONVERTED, SERVED
from harbourmaster.controller.registration.controller import names_of
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.registration.desired import Home, desired_configurations
from harbourmaster.registration.settings import RegistrationSettings
from helpers.manifests import (
    BASES,
    CLUSTER_WIDE,
    CONFIGURATIONS,
    DEPLOY,
    NAMESPACE,
    VERSION,
    combinations,
    container,
    controller_settings,
    deploy_without_schemas,
    deployment_of,
    objects,
    objects_of,
    of_kind,
    one,
    overlay_of,
    parse_shared_objects,
    pod_labels,
    pod_of,
    render,
    selects,
    settings_of,
)

# Together they take as long as a thousand others.
pytestmark = pytest.mark.slow

# Everything in default exists since Kubernetes 1.25 or longer; what needs more is a component.
SINCE_1_25 = {
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "apiregistration.k8s.io/v1",
    "apps/v1",
    "networking.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "v1",
}
BUILT_IN = {("ClusterRole", f"system:{name}") for name in ("kube-scheduler", "volume-scheduler")}
"""Roles that every cluster has, in its own version."""


def marks(combination):
    """A component of the second base alone is for make test-all: each takes a second to render."""
    is_gate = combination[0] == "default" or len(combination) != 2
    return () if is_gate else pytest.mark.full


each_combination = pytest.mark.parametrize(
    "combination",
    [pytest.param(names, id="+".join(names), marks=marks(names)) for names in combinations()],
)


@pytest.fixture
def manifests(combination):
    return objects(*combination)


@pytest.mark.parametrize("base", BASES)
def test_no_kustomization_changes_a_schema_of_a_crd(base):
    assert objects(base) == parse_shared_objects(render(base))


@each_combination
def test_every_name_is_there_once(manifests):
    names = Counter(
        (obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
        for obj in manifests
    )
    assert set(names.values()) == {1}


def is_address(manifests):
    """Whether it only gives one of our Services a second name, where others look for it."""
    return manifests["kind"] == "Service" and "externalName" in manifests["spec"]


@each_combination
def test_everything_stands_in_the_one_namespace_and_is_labelled(manifests, combination):
    namespace = one(manifests, "Namespace")["metadata"]["name"]
    assert len(of_kind(manifests, "Deployment")) >= 2
    for obj in manifests:
        metadata = obj["metadata"]
        if obj["kind"].startswith(("ValidatingAdmissionPolicy", "MutatingAdmissionPolicy")):
            # kustomize takes them for namespaced ones; the API server takes that off again.
            assert metadata.get("namespace", namespace) == namespace
        elif not is_address(obj) or "gardener" in combination:
            expected = None if obj["kind"] in CLUSTER_WIDE else namespace
            assert metadata.get("namespace") == expected, metadata["name"]
        assert metadata["labels"]["app.kubernetes.io/name"] == "harbourmaster", metadata["name"]


@each_combination
def test_rights_are_given_to_accounts_that_exist(manifests):
    accounts = {
        (account["metadata"]["namespace"], account["metadata"]["name"])
        for account in of_kind(manifests, "ServiceAccount")
    }
    roles = {(obj["kind"], obj["metadata"]["name"]) for obj in manifests}
    used = set()
    for obj in of_kind(manifests, "RoleBinding", "ClusterRoleBinding"):
        role = obj["roleRef"]["kind"], obj["roleRef"]["name"]
        assert role in roles | BUILT_IN
        used |= {(subject["namespace"], subject["name"]) for subject in obj["subjects"]}
    assert used == accounts


@each_combination
def test_pods_run_as_accounts_that_exist(manifests):
    accounts = {account["metadata"]["name"] for account in of_kind(manifests, "ServiceAccount")}
    # The component is for Jobs that administrators make.
    accounts.discard("harbourmaster-repair")
    assert {
        pod_of(deployment)["serviceAccountName"] for deployment in of_kind(manifests, "Deployment")
    } == accounts


@each_combination
def test_the_configurations_call_our_service(manifests, combination):
    services = {service["metadata"]["name"]: service for service in of_kind(manifests, "Service")}
    namespace = one(manifests, "Namespace")["metadata"]["name"]
    configurations = of_kind(manifests, *CONFIGURATIONS)
    assert len(configurations) == 2 * ("with-certmanager" in combination)
    for configuration in configurations:
        for webhook in configuration["webhooks"]:
            called = webhook["clientConfig"]["service"]
            ports = services[called["name"]]["spec"]["ports"]
            assert called["namespace"] == namespace
            assert called["port"] in {port["port"] for port in ports}


@each_combination
def test_the_custom_metrics_api_leads_to_our_service_by_the_names_of_the_settings(manifests):
    settings = controller_settings(manifests)
    services = {service["metadata"]["name"]: service for service in of_kind(manifests, "Service")}
    namespace = one(manifests, "Namespace")["metadata"]["name"]
    served = of_kind(manifests, "APIService")
    assert [api_service["metadata"]["name"] for api_service in served] == (
        list(SERVED) if settings.metrics.custom_metrics_api else []
    )
    for api_service in served:
        spec = api_service["spec"]
        assert f"{spec['version']}.{spec['group']}" == api_service["metadata"]["name"]
        assert spec["insecureSkipTLSVerify"] is False
        name, port = spec["service"]["name"], spec["service"]["port"]
        assert (name, spec["service"]["namespace"]) == (settings.metrics.service_name, namespace)
        targets = {port["port"]: port["targetPort"] for port in services[name]["spec"]["ports"]}
        assert targets[port] == "metrics-api"
    priorities = [api_service["spec"]["versionPriority"] for api_service in served]
    assert priorities == sorted(set(priorities))


@each_combination
def test_the_controller_finds_every_conversion_by_the_names_of_its_settings(manifests):
    settings = controller_settings(manifests).webhook
    namespace = one(manifests, "Namespace")["metadata"]["name"]
    services = {
        definition["metadata"]["name"]: service_of(definition)
        for definition in of_kind(manifests, "CustomResourceDefinition")
        if "conversion" in definition["spec"]
    }
    ours = {
        "name": settings.service_name,
        "namespace": namespace,
        "path": "/convert",
        "port": settings.service_port,
    }
    assert services == {name: ours for name in CONVERTED}  # noqa: C420 - one for each


def service_of(definition):
    return definition["spec"]["conversion"]["webhook"]["clientConfig"]["service"]


@each_combination
def test_the_controller_knows_the_names_that_stand_here(manifests):
    settings = controller_settings(manifests)
    assert settings.webhook.service_name in {
        service["metadata"]["name"] for service in of_kind(manifests, "Service")
    }
    volumes = pod_of(deployment_of(manifests, "webhook"))["volumes"]
    secrets = [volume["secret"]["secretName"] for volume in volumes if "secret" in volume]
    assert secrets == [settings.certificates.secret_name]
    leases = [
        rule
        for rule in one(manifests, "Role", "harbourmaster-controller")["rules"]
        if rule["resources"] == ["leases"] and "resourceNames" in rule
    ]
    assert [rule["resourceNames"] for rule in leases] == [[settings.leader_election.lease_name]]


@each_combination
def test_selectors_pick_exactly_one_deployment(manifests):
    deployments = of_kind(manifests, "Deployment")
    selecting = (*of_kind(manifests, "Service", "PodDisruptionBudget"), *deployments)
    assert len(deployments) >= 2
    for obj in filterfalse(is_address, selecting):
        picked = [
            deployment["metadata"]["name"]
            for deployment in deployments
            if selects(obj["spec"]["selector"], pod_labels(deployment))
        ]
        assert len(picked) == 1, obj["metadata"]["name"]


def test_default_needs_nothing_newer_than_1_25():
    assert {obj["apiVersion"] for obj in objects()} <= SINCE_1_25


def test_before_1_30_there_is_everything_but_the_guards():
    guards = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    left_out = [obj for obj in objects() if obj not in objects("before-1.30")]
    assert of_kind(left_out, *guards) == of_kind(objects(), *guards) != []
    assert {obj["kind"] for obj in left_out} == {*guards, "ClusterRole"}


def test_default_leaves_the_configurations_to_the_controller():
    assert not of_kind(objects(), *CONFIGURATIONS)
    assert ControllerSettings().register_webhooks


def test_the_image_is_ours_of_this_version():
    images = {container(deployment)["image"] for deployment in of_kind(objects(), "Deployment")}
    assert images == {f"harbourmaster:{VERSION}"}


def test_the_readable_configurations_are_those_that_the_controller_makes():
    folder = DEPLOY / "webhook/configurations"
    shown = [
        yaml.safe_load((folder / f"{kind}ating.yaml").read_text()) for kind in ("mut", "valid")
    ]
    assert shown == list(
        desired_configurations(RegistrationSettings(), Home(NAMESPACE), None).values()
    )


def test_pods_only_takes_the_templates_out_of_settings_and_configurations():
    manifests = objects("with-certmanager", "pods-only")
    settings = controller_settings(manifests).webhook
    assert settings == RegistrationSettings(templates=False)
    for wanted in desired_configurations(settings, Home(NAMESPACE), None).values():
        assert one(manifests, wanted["kind"])["webhooks"] == wanted["webhooks"]


def test_with_cert_manager_the_controller_has_no_say_in_registration():
    manifests = objects("with-certmanager")
    settings = controller_settings(manifests)
    assert not settings.register_webhooks
    touched = {
        resource
        for role in of_kind(manifests, "Role", "ClusterRole")
        if role["metadata"]["labels"]["app.kubernetes.io/component"] != "policies"
        for rule in role["rules"]
        # A provider's Secret is read, and no other.
        if rule["verbs"] != ["get"]
        for resource in rule["resources"]
    }
    assert not {
        resource
        for resource in touched
        if resource == "secrets" or resource.endswith("webhookconfigurations")
    }


@pytest.mark.parametrize(
    ("base", "mode"),
    [*((base, "AllNeedConsent") for base in (*BASES, "before-1.30")), ("beside-keptn", "Open")],
)
@pytest.mark.claim("O14")
def test_in_a_new_installation_all_references_across_namespaces_need_consent(base, mode):
    assert settings_of(deployment_of(objects(base))).cross_namespace_references == mode


def test_beside_keptn_everything_is_there_and_its_work_is_left_to_it():
    beside, usual = (
        {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects(base)}
        for base in ("beside-keptn", "default")
    )
    controller = ("Deployment", "harbourmaster-controller")
    settings = settings_of(beside[controller])
    assert settings.running == (REGISTRATION, NAMESPACES, POLICIES)
    # By default two are off.
    usually = tuple(name for name in CONTROLLERS if name not in {RESCHEDULING, PLACEMENT})
    assert settings_of(usual[controller]).running == usually
    assert {key for key, obj in beside.items() if obj != usual[key]} == {controller}
    # Keptn's operators may write what the guards reserve for us.
    guards = usual.keys() - {(obj["kind"], obj["metadata"]["name"]) for obj in objects("base")}
    assert usual.keys() - beside.keys() == guards | {("APIService", name) for name in SERVED}


@pytest.mark.parametrize("component", ["gardener", "pods-only"])
def test_cert_manager_issues_what_the_webhook_mounts_and_injects_its_authority(component):
    manifests = objects("with-certmanager", component)
    namespace = one(manifests, "Namespace")["metadata"]["name"]
    certificate = one(manifests, "Certificate", "harbourmaster-webhook")
    secret = certificate["spec"]["secretName"]

    def assert_issued(calling, *services):
        """Whoever calls the services trusts the certificate, which has their names."""
        injected = calling["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
        assert injected == f"{namespace}/{certificate['metadata']['name']}"
        hosts = {f"{service['name']}.{service['namespace']}.svc" for service in services}
        assert hosts
        assert hosts <= set(certificate["spec"]["dnsNames"])

    volumes = pod_of(deployment_of(manifests, "webhook"))["volumes"]
    assert volumes[0]["secret"]["secretName"] == secret
    for api_service in of_kind(manifests, *CONFIGURATIONS):
        called = [webhook["clientConfig"] for webhook in api_service["webhooks"]]
        assert_issued(api_service, *(client["service"] for client in called))
        assert not any("caBundle" in client for client in called)
    for api_service in of_kind(manifests, "APIService"):
        assert_issued(api_service, api_service["spec"]["service"])
    for name in CONVERTED:
        definition = one(manifests, "CustomResourceDefinition", name)
        assert_issued(definition, service_of(definition))
    controller = deployment_of(manifests)
    (mount,) = container(controller)["volumeMounts"]
    assert mount["mountPath"] == settings_of(controller).metrics.custom_metrics_cert_dir
    (volume,) = pod_of(controller)["volumes"]
    assert volume["secret"]["secretName"] == secret
    # The authority's key is in another Secret, and would not be mounted if it were in this one.
    assert {item["key"] for item in volume["secret"]["items"]} == {"ca.crt", "tls.crt", "tls.key"}


def test_cert_manager_gives_the_lifetimes_and_names_of_our_own_certificates():
    manifests = objects("with-certmanager")
    leaf = one(manifests, "Certificate", "harbourmaster-webhook")["spec"]
    authority = one(manifests, "Certificate", "harbourmaster-webhook-ca")["spec"]
    ours = ControllerSettings().certificates
    assert hours(leaf["duration"]) * 3600 == ours.leaf_lifetime_seconds
    assert hours(authority["duration"]) * 3600 == ours.ca_lifetime_seconds
    for certificate in (leaf, authority):
        assert (certificate["privateKey"]["algorithm"], certificate["privateKey"]["size"]) == (
            "ECDSA",
            256,
        )
        # After two thirds, like ours.
        assert hours(certificate["renewBefore"]) * 3 == hours(certificate["duration"])
    # Else the old leaf is not valid under the new authority, which replaces the old one at once.
    assert authority["privateKey"]["rotationPolicy"] == "Never"
    assert tuple(leaf["dnsNames"]) == names_of(ControllerSettings(), NAMESPACE)


def hours(duration):
    return int(re.fullmatch(r"(\d+)h", duration)[1])


def test_a_single_replica_of_each_may_be_moved():
    manifests = objects("default", "single-replica")
    assert [deployment["spec"]["replicas"] for deployment in of_kind(manifests, "Deployment")] == [
        1,
        1,
    ]
    assert [
        budget["spec"]["maxUnavailable"] for budget in of_kind(manifests, "PodDisruptionBudget")
    ] == [
        1,
        1,
    ]


@pytest.mark.parametrize("base", ["default", "with-certmanager"])
def test_in_gardener_nothing_names_our_own_namespace(base):
    manifests = objects(base, "namespace-guard", "network-policy", "monitoring", "gardener")
    assert NAMESPACE not in json.dumps(manifests)
    assert one(manifests, "Namespace")["metadata"]["name"] == "gardener-extension-kupid"
    assert one(manifests, "Service", "gardener-extension-kupid")
    guard = one(manifests, "ValidatingAdmissionPolicy", "harbourmaster-namespace-guard")
    condition = guard["spec"]["matchConditions"][0]
    account = "system:serviceaccount:gardener-extension-kupid:harbourmaster-controller"
    assert f'== "{account}"' in condition["expression"]


def test_in_gardener_our_namespace_is_never_reviewed():
    manifests = objects("with-certmanager", "gardener")
    webhooks = one(manifests, "MutatingWebhookConfiguration")["webhooks"]
    assert len(webhooks) == 4
    for webhook in webhooks:
        by_name = webhook["namespaceSelector"]["matchExpressions"][0]
        assert (by_name["key"], by_name["operator"]) == ("kubernetes.io/metadata.name", "NotIn")
        assert "gardener-extension-kupid" in by_name["values"]


def test_in_gardener_the_authority_of_kupid_may_be_read_and_is():
    manifests = objects("default", "gardener")
    adopted = controller_settings(manifests).certificates
    assert {
        "apiGroups": [""],
        "resources": ["secrets"],
        "resourceNames": [adopted.adopt_secret],
        "verbs": ["get"],
    } in one(manifests, "Role", "harbourmaster-registration")["rules"]


def test_a_namespace_of_ones_own_needs_one_line(tmp_path):
    default = os.path.relpath(deploy_without_schemas() / "default", tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"namespace: placement\nresources: [{default}]\n")
    assert NAMESPACE not in json.dumps(objects_of(tmp_path))


def test_the_overlay_of_the_manual_renders_and_its_setting_is_one(tmp_path):
    overlay = overlay_of("howto/deploying.md", tmp_path)
    controller = deployment_of(overlay)
    assert "monitoring" in settings_of(controller).webhook.excluded_namespaces
    assert container(controller)["image"] == "registry.example.com/harbourmaster:dev"
