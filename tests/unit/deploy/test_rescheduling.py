"""Who may evict and change nodes: nobody, unless the component is used."""

from __future__ import annotations

import copy
import re

import pytest

from harbourmaster.controller.settings import ControllerSettings
from helpers.manifests import (
    BASES,
    ROOT,
    container,
    kustomize,
    objects,
    of_component,
    of_kind,
    one,
    parsed,
    rights,
    settings_of,
)

CONTROLLER = "harbourmaster-controller"
ROLE = "harbourmaster-rescheduling"
RIGHTS = {
    ("pods", "get"),
    ("pods", "list"),
    ("pods", "watch"),
    ("pods", "delete"),
    ("pods/eviction", "create"),
    ("pods/status", "patch"),
    ("nodes", "get"),
    ("nodes", "list"),
    ("nodes", "patch"),
    ("nodes", "watch"),
    ("poddisruptionbudgets", "list"),
    ("poddisruptionbudgets", "watch"),
    ("leases", "get"),
}
"""Section 6.8, without what the controller may do anyhow."""


def granted(roles):
    """Verbs and resources of roles, whatever their group."""
    return {right[1:] for right in rights(roles)}


@pytest.mark.parametrize("base", BASES)
def test_without_the_component_nobody_may_evict_or_change_nodes(base):
    found = objects(base)
    ours = of_component(found, "controller", "webhook")
    given = granted(ours)
    assert not {("pods", "delete"), ("pods/eviction", "create"), ("nodes", "patch")} & given
    assert not {resource for resource, _ in given} & {"nodes", "pods/status"}
    assert not settings_of(one(found, "Deployment", CONTROLLER)).rescheduling.enabled
    assert not ControllerSettings().rescheduling.enabled


@pytest.mark.parametrize("base", BASES)
def test_the_component_brings_the_setting_and_exactly_these_rights(base):
    found = objects(base, "rescheduling")
    assert granted([one(found, "ClusterRole", ROLE)]) == RIGHTS
    (binding,) = [
        each for each in of_kind(found, "ClusterRoleBinding") if each["roleRef"]["name"] == ROLE
    ]
    assert [each["name"] for each in binding["subjects"]] == [CONTROLLER]
    assert settings_of(one(found, "Deployment", CONTROLLER)).rescheduling.enabled
    (lease,) = [
        rule for rule in one(found, "ClusterRole", ROLE)["rules"] if rule["resources"] == ["leases"]
    ]
    assert lease["resourceNames"] == ["kube-scheduler"]


@pytest.mark.parametrize("base", BASES)
def test_the_component_keeps_disruption_budgets_unless_a_later_flag_says_otherwise(base):
    found = copy.deepcopy(one(objects(base, "rescheduling"), "Deployment", CONTROLLER))
    assert not settings_of(found).rescheduling.allow_pdb_violation
    container(found)["args"].append("--rescheduling-allow-pdb-violation=true")
    assert settings_of(found).rescheduling.allow_pdb_violation
    assert ControllerSettings().rescheduling.allow_pdb_violation


def test_what_the_controller_may_do_anyhow_is_enough_for_the_rest():
    found = objects("default", "rescheduling")
    given = granted(of_kind(of_component(found, "controller"), "ClusterRole"))
    needed = {
        *(("namespaces", verb) for verb in ("list", "watch")),
        *(("configmaps", verb) for verb in ("list", "watch")),
        *(("events", verb) for verb in ("create", "patch")),
        ("pods", "patch"),
    }
    assert needed <= given


def test_our_own_pods_have_room_on_a_node_that_is_kept():
    found = objects("default", "rescheduling")
    pod = one(found, "Deployment", CONTROLLER)["spec"]["template"]["spec"]
    key = ControllerSettings().rescheduling.taint_key
    assert pod["tolerations"] == [{"key": key, "operator": "Exists"}]
    assert pod["priorityClassName"] in ControllerSettings().rescheduling.critical_classes


def test_the_overlay_of_the_manual_keeps_budgets_and_tries_first(tmp_path):
    page = (ROOT / "docs/reference/rescheduler.md").read_text()
    (example,) = re.findall(r"```yaml\n# kustomization.yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "harbourmaster").symlink_to(ROOT)
    (tmp_path / "overlay").mkdir()
    (tmp_path / "overlay/kustomization.yaml").write_text(example)
    found = list(parsed(kustomize(tmp_path / "overlay")))
    settings = settings_of(one(found, "Deployment", CONTROLLER)).rescheduling
    assert (settings.enabled, settings.dry_run) == (True, True)
    assert not settings.allow_pdb_violation
