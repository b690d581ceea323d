"""Rights of users and the controller for the dashboard, which only the component gives."""

from __future__ import annotations

import pytest

from harbourmaster.dashboard.registry import PAGES
from harbourmaster.dashboard.settings import DashboardSettings
from helpers.manifests import objects, of_kind, one, rights, settings_of

BASE = "default"
CONTROLLER = "harbourmaster-controller"
ROLE = "harbourmaster-dashboard"
VIEWER = "harbourmaster-dashboard-viewer"


@pytest.fixture(scope="module")
def manifests():
    return objects(BASE, "network-policy", "dashboard")


def test_without_the_component_no_tokens_are_reviewed():
    base = objects(BASE)
    assert not [
        role
        for role in of_kind(base, "Role", "ClusterRole")
        if any("tokenreviews" in rule["resources"] for rule in role["rules"])
    ]
    assert not settings_of(one(base, "Deployment", CONTROLLER)).dashboard.enabled


def test_the_component_brings_exactly_these_rights(manifests):
    assert rights([one(manifests, "ClusterRole", ROLE)]) == {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
        *(("", kind, verb) for kind in ("namespaces", "pods") for verb in ("list", "watch")),
        *(
            ("kupid.gardener.cloud", kind, verb)
            for kind in ("clusterpodschedulingpolicies", "podschedulingpolicies")
            for verb in ("list", "watch")
        ),
    }


def test_people_with_the_role_see_all_pages_and_can_change_nothing(manifests):
    given = rights([one(manifests, "ClusterRole", VIEWER)])
    assert {verb for *_, verb in given} == {"get", "list", "watch"}
    wanted = {(kind.group, kind.plural, "list") for page in PAGES for kind in page.kinds}
    assert wanted == {right for right in given if right[2] == "list"}


def test_it_is_served_with_tls_on_a_port_of_its_own(manifests):
    deployment = one(manifests, "Deployment", CONTROLLER)
    settings = settings_of(deployment).dashboard
    assert settings.enabled
    assert not settings.is_local
    assert settings.port == DashboardSettings().port
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (port,) = [port for port in container["ports"] if port["name"] == "dashboard"]
    assert port["containerPort"] == settings.port
    service = one(manifests, "Service", settings.service_name)
    assert service["spec"]["ports"][0]["targetPort"] == "dashboard"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    policy = one(manifests, "NetworkPolicy", CONTROLLER)
    (rule,) = [
        rule for rule in policy["spec"]["ingress"] if rule["ports"][0]["port"] == "dashboard"
    ]
    assert rule["from"]


def test_cert_manager_issues_its_names_too():
    with_it = objects("with-certmanager", "dashboard")
    names = one(with_it, "Certificate", "harbourmaster-webhook")["spec"]["dnsNames"]
    assert "harbourmaster-dashboard.harbourmaster-system.svc" in names
