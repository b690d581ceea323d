from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from harbourmaster.playground.commands import (
    COMPONENTS,
    OPTIONAL,
    STAGES,
    Layout,
    Ports,
    components,
    further_scheduler,
    write_configurations,
)

PORTS = Ports(1, 2, 3, 4, 5, 6)
LAYOUT = Layout(Path("/playground"))


def started(optional=OPTIONAL, *, audit=False):
    """The command lines of the components, in starting order."""
    return {
        name: [argument.replace(str(STAGES), "stages") for argument in component.arguments]
        for name, component in components(LAYOUT, PORTS, optional, audit=audit).items()
    }


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_address_is_the_loopback(name):
    line = " ".join(started()[name])
    assert "127.0.0.1" in line
    assert "0.0.0.0" not in line  # noqa: S104 -- looked for, not bound


@pytest.mark.parametrize(
    ("optional", "audit"),
    [(OPTIONAL, True), (("kwok",), False)],
    ids=["with an audit log", "without controllers"],
)
def test_what_components_are_started_with(optional, audit, assert_golden):
    """Admission plugins that need a controller are off where none runs."""
    usual = started()
    assert_golden(
        {
            name: [argument for argument in arguments if argument not in usual[name]]
            for name, arguments in started(optional, audit=audit).items()
        }
    )


def test_what_the_api_server_is_usually_started_with(assert_golden):
    assert_golden(started()["kube-apiserver"])
    assert tuple(started()) == COMPONENTS


@pytest.mark.parametrize(
    "connection", [{}, {"kubeconfig": "/other", "qps": 5}], ids=["ours", "own"]
)
def test_every_scheduler_has_raised_limits_and_leads_alone(tmp_path, connection, assert_golden):
    given = {"profiles": [{"schedulerName": "second"}], "leaderElection": {"leaderElect": True}}
    write_configurations(Layout(tmp_path))
    component = further_scheduler(
        Layout(tmp_path), "second", 7, {**given, "clientConnection": connection}
    )
    assert_golden(
        {
            path.name: json.loads(path.read_text().replace(str(tmp_path), ""))
            for path in sorted(tmp_path.iterdir())
        }
    )
    assert (component.binary, component.port) == ("kube-scheduler", 7)
    assert f"--config={tmp_path / 'second.yaml'}" in component.arguments


def test_kwok_reads_every_stage():
    read = {argument.partition("=")[2] for argument in started()["kwok"]}
    assert {f"stages/{path.name}" for path in STAGES.iterdir()} < read


@pytest.mark.parametrize("path", sorted(STAGES.iterdir()), ids=lambda path: path.stem)
def test_a_stage_has_balanced_blocks(path):
    stage = yaml.safe_load(path.read_text())
    template = stage["spec"]["next"].get("statusTemplate", "")
    opened = re.findall(r"{{ (?:if|range|with) ", template)
    assert len(opened) == template.count("{{ end }}")
    assert stage["metadata"]["name"] == path.stem
