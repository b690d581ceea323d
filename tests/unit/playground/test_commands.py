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


def arguments(name, optional=OPTIONAL, *, audit=False):
    return components(LAYOUT, PORTS, optional, audit=audit)[name].arguments


def test_components_come_in_starting_order():
    assert tuple(components(LAYOUT, PORTS, OPTIONAL, audit=False)) == COMPONENTS


def test_what_is_left_out_does_not_run():
    chosen = components(LAYOUT, PORTS, ("kwok",), audit=False)
    assert list(chosen) == ["etcd", "kube-apiserver", "kwok"]


@pytest.mark.parametrize("name", COMPONENTS)
def test_every_address_is_the_loopback(name):
    line = " ".join(arguments(name))
    assert "127.0.0.1" in line
    assert "0.0.0.0" not in line  # noqa: S104 -- looked for, not bound


def test_default_admission_plugins_stay_on():
    assert not [
        argument for argument in arguments("kube-apiserver") if "admission-plugins" in argument
    ]


def test_plugins_that_need_a_controller_are_off_where_none_runs():
    line = arguments("kube-apiserver", ("kwok",))
    assert "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition" in line


def test_an_audit_log_is_kept_on_request_only():
    assert not [argument for argument in arguments("kube-apiserver") if "audit" in argument]
    audited = arguments("kube-apiserver", audit=True)
    assert "--audit-log-path=/playground/logs/audit.log" in audited


def test_client_limits_are_raised(tmp_path):
    write_configurations(Layout(tmp_path))
    connection = json.loads((tmp_path / "kube-scheduler.yaml").read_text())["clientConnection"]
    assert (connection["qps"], connection["burst"]) == (1000, 2000)
    assert {"--kube-api-qps=1000", "--kube-api-burst=2000"} <= set(
        arguments("kube-controller-manager")
    )


def test_a_further_scheduler_has_the_given_configuration_and_raised_limits(tmp_path):
    profiles = [{"schedulerName": "second"}]
    given = {"profiles": profiles, "leaderElection": {"leaderElect": True}}
    component = further_scheduler(Layout(tmp_path), "second", 7, given)
    written = json.loads((tmp_path / "second.yaml").read_text())
    assert written["profiles"] == profiles
    assert written["leaderElection"] == {"leaderElect": False}
    kubeconfig = str(tmp_path / "pki/kube-scheduler.kubeconfig")
    assert written["clientConnection"] == {"kubeconfig": kubeconfig, "qps": 1000, "burst": 2000}
    assert (component.binary, component.port) == ("kube-scheduler", 7)
    assert f"--config={tmp_path / 'second.yaml'}" in component.arguments
    assert "--secure-port=7" in component.arguments


def test_a_further_scheduler_may_have_its_own_kubeconfig(tmp_path):
    given = {"clientConnection": {"kubeconfig": "/other", "qps": 5}}
    further_scheduler(Layout(tmp_path), "second", 7, given)
    connection = json.loads((tmp_path / "second.yaml").read_text())["clientConnection"]
    assert (connection["kubeconfig"], connection["qps"]) == ("/other", 1000)


def test_kwok_reads_every_stage():
    read = {
        argument.partition("=")[2]
        for argument in arguments("kwok")
        if argument.startswith("--config=")
    }
    assert {str(path) for path in STAGES.iterdir()} < read


@pytest.mark.parametrize("path", sorted(STAGES.iterdir()), ids=lambda path: path.stem)
def test_a_stage_has_balanced_blocks(path):
    stage = yaml.safe_load(path.read_text())
    template = stage["spec"]["next"].get("statusTemplate", "")
    opened = re.findall(r"{{ (?:if|range|with) ", template)
    assert len(opened) == template.count("{{ end }}")
    assert stage["metadata"]["name"] == path.stem
