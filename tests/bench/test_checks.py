"""Checks in CI: hundreds of objects with tens of policies, in two seconds of CPU."""

from __future__ import annotations

import time

import pytest

from harbourmaster.cli.checking import FILE
from harbourmaster.cli.main import main
from harbourmaster.serving.kubectl_yaml import dump
from helpers.objects import cluster_policy, workload

pytestmark = [pytest.mark.slow, pytest.mark.full]

KINDS = ("Deployment", "StatefulSet", "Job", "DaemonSet")
OBJECTS = 640
POLICIES = 40


@pytest.fixture
def folder(tmp_path):
    for index in range(POLICIES):
        pods = {"app": f"app-{index % 20}"} if index % 3 else {}
        given = cluster_policy(f"p-{index}", pods=pods, tolerations=[{"key": f"key-{index}"}])
        given["spec"]["tolerations"][0]["operator"] = "Exists"
        (tmp_path / f"{index}.yaml").write_text(dump(given))
    for index in range(OBJECTS):
        given = workload(KINDS[index % 4], name=f"w-{index}")
        given["spec"]["template"]["metadata"]["labels"] = {"app": f"app-{index % 40}"}
        variables = [{"name": f"V{number}", "value": str(number)} for number in range(12)]
        given["spec"]["template"]["spec"]["containers"][0]["env"] = variables
        (tmp_path / f"w-{index}.yaml").write_text(dump(given))
    test = {"apiVersion": "cli.harbourmaster.dev/v1alpha1", "kind": "Test", "objects": ["."]}
    (tmp_path / FILE).write_text(dump(test))
    return tmp_path


def test_many_objects_are_checked_in_two_seconds(folder, capsys):
    assert main(["check", "tests", "--update", str(folder)]) == 0
    for command in ("manifests", "tests"):
        begun = time.process_time()
        assert main(["check", command, str(folder)]) == 0
        assert time.process_time() - begun < 2
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == f"{OBJECTS + POLICIES} objects, 0 errors, 0 warnings"
