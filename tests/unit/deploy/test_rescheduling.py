"""Rights to evict pods and change nodes, which only the component gives."""

from __future__ import annotations

import copy

import pytest

from harbourmaster.controller.settings import ControllerSettings
from helpers.manifests import (
    BASES,
    bound_to,
    container,
    controller_settings,
    deployment_of,
    objects,
    of_component,
    of_kind,
    one,
    overlay_of,
    pod_of,
    rights,
    settings_of,
)

CONTROLLER = "harbourmaster-controller"
ROLE = "harbourmaster-rescheduling"
RIGHTS = {
    *(("pods", verb) for verb in ("delete", "get", "list", "watch")),
    ("pods/eviction", "create"),
    ("pods/status", "patch"),
    *(("nodes", verb) for verb in ("get", "list", "patch", "watch")),
    *(("poddisruptionbudgets", verb) for verb in ("list", "watch")),
    ("leases", "get"),
    ("persistentvolumeclaims", "get"),
    ("persistentvolumes", "get"),
}
"""Section 6.8, without what the controller may do anyhow."""
READING = {"get", "list", "watch"}


def rights_of(roles):
    """Verbs and resources of roles, whatever their group."""
    return {right[1:] for right in rights(roles)}


@pytest.mark.parametrize("base", BASES)
def test_without_the_component_nobody_may_evict_or_change_nodes(base):
    manifests = objects(base)
    ours = of_component(manifests, "controller", "webhook")
    given = rights_of(ours)
    assert not {("pods", "delete"), ("pods/eviction", "create"), ("nodes", "patch")} & given
    assert not {"nodes", "pods/status"} & {what for what, verb in given if verb not in READING}
    assert not controller_settings(manifests).rescheduling.enabled
    assert not ControllerSettings().rescheduling.enabled


@pytest.mark.parametrize("base", BASES)
def test_the_component_brings_the_setting_and_exactly_these_rights(base):
    manifests = objects(base, "rescheduling")
    assert rights_of([one(manifests, "ClusterRole", ROLE)]) == RIGHTS
    assert bound_to(manifests, ROLE) == ["harbourmaster-controller"]
    assert controller_settings(manifests).rescheduling.enabled
    (lease,) = [
        rule
        for rule in one(manifests, "ClusterRole", ROLE)["rules"]
        if rule["resources"] == ["leases"]
    ]
    assert lease["resourceNames"] == ["kube-scheduler"]


@pytest.mark.parametrize("base", BASES)
def test_the_component_keeps_disruption_budgets_unless_a_later_flag_says_otherwise(base):
    deployment = copy.deepcopy(deployment_of(objects(base, "rescheduling")))
    assert not settings_of(deployment).rescheduling.allow_pdb_violation
    container(deployment)["args"].append("--rescheduling-allow-pdb-violation=true")
    assert settings_of(deployment).rescheduling.allow_pdb_violation
    assert ControllerSettings().rescheduling.allow_pdb_violation


def test_the_other_rights_of_the_controller_suffice():
    manifests = objects("default", "rescheduling")
    given = rights_of(of_kind(of_component(manifests, "controller"), "ClusterRole"))
    needed = {
        *(("namespaces", verb) for verb in ("list", "watch")),
        *(("configmaps", verb) for verb in ("list", "watch")),
        *(("events", verb) for verb in ("create", "patch")),
        ("pods", "patch"),
    }
    assert needed <= given


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
        *((kind, ROLE) for kind in named),
    }


def test_alone_it_begins_with_a_dry_run_of_the_rescheduler_only():
    settings = controller_settings(objects(ALONE))
    assert settings.controllers == ("rescheduling",)
    assert settings.running == ("rescheduling",)
    assert (settings.rescheduling.enabled, settings.rescheduling.dry_run) == (True, True)
    assert not settings.rescheduling.allow_pdb_violation


def test_alone_it_has_its_own_rights_and_those_of_a_leader():
    manifests = objects(ALONE)
    assert rights_of(of_kind(manifests, "ClusterRole")) == {
        *RIGHTS,
        *(("namespaces", verb) for verb in ("list", "watch")),
        *(("events", verb) for verb in ("create", "patch")),
    }
    assert rights_of(of_kind(manifests, "Role")) == {
        *(("leases", verb) for verb in ("create", "get", "update")),
        *(("configmaps", verb) for verb in ("list", "watch")),
    }
    (rule,) = [
        rule
        for rule in one(manifests, "Role", CONTROLLER)["rules"]
        if rule["resources"] == ["configmaps"]
    ]
    assert rule["resourceNames"] == [ControllerSettings().rescheduling.kill_switch]


def test_alone_the_overlay_of_the_manual_lets_it_evict(tmp_path):
    overlay = overlay_of("reference/rescheduler.md", tmp_path, 2, count=2)
    assert not controller_settings(overlay).rescheduling.dry_run
