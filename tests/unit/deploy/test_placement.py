"""Rights to place applications, which the component gives; and what the manual shows."""

from __future__ import annotations

import re

import msgspec
import pytest

from harbourmaster.cli.main import create_parser
from harbourmaster.cli.placement.decide import decide_line
from harbourmaster.controller.settings import ControllerSettings
from harbourmaster.placement.model import GROUP
from helpers.manifests import (
    BASES,
    ROOT,
    bound_to,
    controller_settings,
    objects,
    of_component,
    one,
    overlay_of,
    rights,
)
from helpers.schemas import definition

CONTROLLER = "harbourmaster-controller"
ROLE = "harbourmaster-placement"
DECIDED = ("applications", "clusters", "magnumclusters")
READ = (
    *("clouds", "globalclouds", "globalmetrics", "globalmetricsproviders", "metrics"),
    *("metricsproviders", "projects"),
)
PAGE = (ROOT / "docs/reference/placement.md").read_text()


@pytest.mark.parametrize("base", BASES)
def test_without_the_component_no_process_has_rights_on_these_kinds(base):
    manifests = objects(base)
    ours = of_component(manifests, "controller", "webhook")
    assert not {right for right in rights(ours) if right[0] == GROUP}
    assert not controller_settings(manifests).placement.enabled
    assert not ControllerSettings().placement.enabled


@pytest.mark.parametrize("base", BASES)
def test_the_component_brings_the_setting_and_exactly_these_rights(base):
    manifests = objects(base, "placement")
    assert rights([one(manifests, "ClusterRole", ROLE)]) == {
        *((GROUP, kind, verb) for kind in DECIDED for verb in ("list", "patch", "watch")),
        *((GROUP, f"{kind}/status", "patch") for kind in DECIDED),
        *((GROUP, kind, verb) for kind in READ for verb in ("list", "watch")),
    }
    assert bound_to(manifests, ROLE) == ["harbourmaster-controller"]
    assert controller_settings(manifests).placement.enabled


def test_every_status_that_may_be_patched_exists():
    for plural in (*DECIDED, *READ):
        (version,) = definition(plural)["spec"]["versions"]
        assert ("subresources" in version) is (plural in DECIDED)


def test_the_overlay_of_the_manual_is_one(tmp_path):
    overlay = overlay_of("reference/placement.md", tmp_path)
    assert one(overlay, "ClusterRole", ROLE)
    assert controller_settings(overlay).placement.enabled


def test_the_figures_of_the_manual_are_those_of_the_code():
    (case,) = re.findall(r'^\{"id".*\}$', PAGE, re.MULTILINE)
    decision = msgspec.to_builtins(decide_line(case.encode()))["decision"]
    assert decision["chosen"] == ["mk2"]
    for name, score in decision["scores"].items():
        (row,) = re.findall(rf"^\| `{name}`.*$", PAGE, re.MULTILINE)
        assert f"**{score:.4f}**" in row


def test_the_commands_of_the_manual_can_be_given():
    lines = re.findall(r"^harbourmaster (placement new .*)$", PAGE, re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        words = re.findall(r"'[^']*'|\S+", line.partition(" | ")[0])
        create_parser().parse_args([word.strip("'") for word in words])
