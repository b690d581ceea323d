"""The components of the dashboard, of placement and of rescheduling, and shadow mode."""

from __future__ import annotations

import copy
import re

import msgspec
import pytest

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.cli.main import create_parser
from harbourmaster.cli.placement.decide import decide_line
from harbourmaster.controller.names import REGISTRATION
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.dashboard.registry import BY_NAME
from harbourmaster.dashboard.settings import DashboardSettings
from harbourmaster.registration.desired import SHADOW, Home, desired_configurations
from harbourmaster.webhook.shadow import CONFIG_MAP
from helpers.manifests import (
    BASES,
    NAMESPACE,
    ROOT,
    container,
    controller_settings,
    deployment_of,
    objects,
    one,
    overlay_of,
    pod_of,
    rights,
    settings_of,
)
from helpers.schemas import definition

BASE = "default"
CONTROLLER = "harbourmaster-controller"
VIEWER = "harbourmaster-dashboard-viewer"


@pytest.fixture(scope="module")
def manifests():
    return objects(BASE, "network-policy", "dashboard")


def test_people_with_the_role_see_all_pages_and_can_change_nothing(manifests):
    given = rights([one(manifests, "ClusterRole", VIEWER)])
    assert {verb for *_, verb in given} == {"get", "list", "watch"}
    wanted = {(kind.group, kind.plural, "list") for page in BY_NAME.values() for kind in page.kinds}
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


ROLE = "harbourmaster-placement"
DECIDED = ("applications", "clusters", "magnumclusters")
READ = (
    *("clouds", "globalclouds", "globalmetrics", "globalmetricsproviders", "metrics"),
    *("metricsproviders", "projects"),
)
PLACEMENT = ROOT / "docs/reference/placement.md"
DECISIONS = ROOT / "docs/reference/placement-decisions.md"


def test_every_status_that_may_be_patched_exists():
    for plural in (*DECIDED, *READ):
        (version,) = definition(plural)["spec"]["versions"]
        assert ("subresources" in version) is (plural in DECIDED)


def test_the_overlay_of_the_manual_is_one(tmp_path):
    overlay = overlay_of("reference/placement.md", tmp_path)
    assert one(overlay, "ClusterRole", ROLE)
    assert controller_settings(overlay).placement.enabled


def test_the_figures_of_the_manual_are_those_of_the_code():
    text = DECISIONS.read_text()
    (case,) = re.findall(r'^\{"id".*\}$', text, re.MULTILINE)
    decision = msgspec.to_builtins(decide_line(case.encode()))["decision"]
    assert decision["chosen"] == ["mk2"]
    for name, score in decision["scores"].items():
        (row,) = re.findall(rf"^\| `{name}`.*$", text, re.MULTILINE)
        assert f"**{score:.4f}**" in row


def test_the_commands_of_the_manual_can_be_given():
    lines = re.findall(r"^harbourmaster (placement new .*)$", PLACEMENT.read_text(), re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        words = re.findall(r"'[^']*'|\S+", line.partition(" | ")[0])
        create_parser().parse_args([word.strip("'") for word in words])


@pytest.mark.parametrize("base", BASES)
def test_the_component_keeps_disruption_budgets_unless_a_later_flag_says_otherwise(base):
    deployment = copy.deepcopy(deployment_of(objects(base, "rescheduling")))
    assert not settings_of(deployment).rescheduling.allow_pdb_violation
    container(deployment)["args"].append("--rescheduling-allow-pdb-violation=true")
    assert settings_of(deployment).rescheduling.allow_pdb_violation
    assert ControllerSettings().rescheduling.allow_pdb_violation


def test_our_own_pods_tolerate_reserved_nodes():
    manifests = objects("default", "rescheduling")
    pod = pod_of(deployment_of(manifests))
    key = ControllerSettings().rescheduling.taint_key
    assert pod["tolerations"] == [{"key": key, "operator": "Exists"}]
    assert pod["priorityClassName"] in ControllerSettings().rescheduling.critical_classes


def test_the_overlay_of_the_manual_keeps_budgets_and_tries_first(tmp_path):
    overlay = overlay_of("reference/rescheduler.md", tmp_path, 1, count=2)
    settings = controller_settings(overlay).rescheduling
    assert (settings.enabled, settings.dry_run) == (True, True)
    assert not settings.allow_pdb_violation


ALONE = "rescheduler-alone"


def test_alone_there_is_nothing_but_the_controller():
    manifests = objects(ALONE)
    kinds = {"Namespace", "ResourceQuota"}
    ours = {(obj["kind"], obj["metadata"]["name"]) for obj in manifests if obj["kind"] not in kinds}
    named = ("ClusterRole", "ClusterRoleBinding")
    assert ours == {
        *((kind, CONTROLLER) for kind in (*named, "Role", "RoleBinding", "ServiceAccount")),
        *((kind, CONTROLLER) for kind in ("Deployment", "PodDisruptionBudget", "Service")),
        *((kind, "harbourmaster-rescheduling") for kind in named),
    }


def test_alone_it_begins_with_a_dry_run_of_the_rescheduler_only():
    settings = controller_settings(objects(ALONE))
    assert settings.controllers == ("rescheduling",)
    assert settings.running == ("rescheduling",)
    assert (settings.rescheduling.enabled, settings.rescheduling.dry_run) == (True, True)
    assert not settings.rescheduling.allow_pdb_violation


def test_alone_the_overlay_of_the_manual_lets_it_evict(tmp_path):
    overlay = overlay_of("reference/rescheduler.md", tmp_path, 2, count=2)
    assert not controller_settings(overlay).rescheduling.dry_run


def test_nothing_that_kupid_or_keptn_has_is_applied():
    manifests = objects("shadow")
    assert {obj["kind"] for obj in manifests} & {
        "APIService",
        "CustomResourceDefinition",
        "ValidatingAdmissionPolicy",
    } == set()
    assert {obj["metadata"].get("namespace", NAMESPACE) for obj in manifests} == {NAMESPACE}


def test_both_processes_are_in_shadow_mode_and_only_the_registration_runs():
    manifests = objects("shadow")
    settings = controller_settings(manifests)
    assert settings.running == (REGISTRATION,)
    assert settings.webhook.shadow
    assert settings_of(deployment_of(manifests, "webhook")).shadow


def test_one_replica_sees_all_objects():
    assert deployment_of(objects("shadow"), "webhook")["spec"]["replicas"] == 1


def test_the_permissions_are_for_the_configurations_and_the_report_that_are_written():
    manifests = objects("shadow")
    settings = controller_settings(manifests).webhook
    name = desired_configurations(settings, Home(NAMESPACE), None)[MUTATING_WEBHOOKS]["metadata"][
        "name"
    ]
    role = one(manifests, "ClusterRole", "harbourmaster-registration")
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, [name]]
    assert name == SHADOW
    assert one(manifests, "ConfigMap")["metadata"]["name"] == CONFIG_MAP
