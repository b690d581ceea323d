"""The overlay of shadow mode: it replaces nothing of kupid and Keptn."""

from __future__ import annotations

from harbourmaster.api.resources import MUTATING_WEBHOOKS
from harbourmaster.controller.names import REGISTRATION
from harbourmaster.registration.desired import SHADOW, Home, desired_configurations
from harbourmaster.webhook.shadow import CONFIG_MAP
from helpers.manifests import (
    NAMESPACE,
    controller_settings,
    deployment_of,
    objects,
    one,
    settings_of,
)


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
