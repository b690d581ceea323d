"""Values that kubectl takes for another type than YAML 1.1, in all commands that handle files."""

from __future__ import annotations

import json
import subprocess

import pytest

from harbourmaster.cli.main import main
from harbourmaster.serving.documents import read_settings
from harbourmaster.serving.kubectl_yaml import dump
from helpers.manifests import kubectl
from helpers.objects import cluster_policy, workload

ODD = {"commit": "25921e05", "build": "08", "flag": "y", "mode": "0o644", "y": "0x1F"}
TIMES = ["02:30", "22:22", "=", "<<", "2001-01-01", "1_000"]


@pytest.fixture
def run(tmp_path, capsys):
    """Return a function that runs a command on texts, and returns the code and the output."""

    def start(command, *texts):
        files = [tmp_path / f"{index}.yaml" for index in range(len(texts))]
        for file, text in zip(files, texts, strict=True):
            file.write_text(text)
        code = main([*command, *map(str, files)])
        return code, capsys.readouterr().out

    return start


def read_by_kubectl(text):
    command = [kubectl(), "label", "--local", "--dry-run=client", "--output=json", "-f", "-", "z=1"]
    done = subprocess.run(command, capture_output=True, check=True, text=True, input=text)
    # kubectl prints one object after the other.
    objects = done.stdout.replace("}\n{", "},{")
    return json.loads(f"[{objects}]")


@pytest.mark.parametrize("pool", ["web-118", "web-150", "web-269"])
def test_kubectl_reads_what_compile_prints(run, pool):
    policy = cluster_policy(pods={"app": "web"}, nodeSelector={"example.com/pool": pool})
    policy["metadata"] = {
        "name": "pool",
        "annotations": {"harbourmaster.dev/enforcement": "Both"},
    }
    code, out = run(["compile", "-f"], dump(policy))
    objects = read_by_kubectl(out)
    assert (code, len(objects)) == (0, 13)
    labels = [obj["metadata"]["labels"].get("harbourmaster.dev/compiled-set") for obj in objects]
    assert {type(label) for label in labels if label} == {str}


def test_kubectl_reads_the_text_of_what_render_prints(run, tmp_path):
    manifest = workload()
    manifest["metadata"]["labels"] = ODD
    variables = [{"name": name, "value": value} for name, value in ODD.items()]
    container = manifest["spec"]["template"]["spec"]["containers"][0]
    container |= {"env": variables, "args": TIMES}
    policies = tmp_path / "policies.yaml"
    policies.write_text(dump(cluster_policy(nodeSelector=ODD)))
    code, out = run(["render", f"--policies={policies}", "-f"], dump(manifest))
    (rendered,) = read_by_kubectl(out)
    assert code == 0
    assert rendered["metadata"]["labels"] == {**ODD, "z": "1"}
    spec = rendered["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == ODD
    assert spec["containers"] == [container]


def test_render_keeps_times_that_are_text(run, tmp_path):
    manifest = workload()
    text = dump(manifest).replace("- name: c\n", "- args: [22:22, --at, 12:30]\n        name: c\n")
    policies = tmp_path / "policies.yaml"
    policies.write_text(dump(cluster_policy(nodeSelector={"disk": "ssd"})))
    _, out = run(["render", f"--policies={policies}", "-f"], text)
    (rendered,) = read_by_kubectl(out)
    containers = rendered["spec"]["template"]["spec"]["containers"]
    assert containers[0]["args"] == ["22:22", "--at", "12:30"]


def test_validate_finds_numbers_and_booleans_where_text_must_be(run):
    policy = dump(cluster_policy(nodeSelector={"commit": 1, "rack": 2}))
    code, out = run(
        ["check", "manifests"], policy.replace(": 1", ": 12e3").replace(": 2", ": 08\n    y: n")
    )
    assert code == 1
    for name, value in (("commit", 12000), ("rack", 8), ("true", "false")):
        assert f"spec.nodeSelector.{name}: Invalid value: {value}: must be of the type" in out


@pytest.mark.parametrize("value", ["=", "<<", "!custom x", "!!binary aGVsbG8=", "0o17", "12:30"])
def test_validate_reads_what_kubectl_reads(run, value):
    text = f"apiVersion: example.com/v1\nkind: Odd\nmetadata: {{name: a}}\nspec: [{value}]\n"
    assert run(["check", "manifests"], text) == (0, "1 object, 0 errors, 0 warnings\n")


def test_validate_reads_json_with_escapes(run):
    manifest = json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "😀"}})
    assert r"\ud83d\ude00" in manifest
    assert run(["check", "manifests"], manifest) == (0, "1 object, 0 errors, 0 warnings\n")


def test_settings_are_read_as_manifests_are(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("a: y\nb: 1e3\nc: 12:30\nd: 08\n")
    assert read_settings(file) == {"a": True, "b": 1000, "c": "12:30", "d": 8}
