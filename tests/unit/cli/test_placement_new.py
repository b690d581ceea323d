"""``harbourmaster placement new`` by the examples of the document, rok's options and all."""

from __future__ import annotations

import base64
import shlex

import msgspec
import pytest
import yaml

from harbourmaster.cli.main import main
from harbourmaster.placement.model import API_VERSION
from harbourmaster.placement.validation import CHECKS

MANIFEST = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n"


@pytest.fixture
def new(capsys, tmp_path):
    """Run ``placement new``; returns the code, the objects, and the lines on stderr."""
    for name, text in (("FILE", MANIFEST), ("OTHER", MANIFEST.replace("name: a", "name: b"))):
        (tmp_path / name).write_text(text)

    def run(kind, name, *options):
        files = ("FILE", "OTHER")
        given = [str(tmp_path / option) if option in files else option for option in options]
        code = main(["placement", "new", kind, name, *given])
        out, err = capsys.readouterr()
        objects = list(yaml.safe_load_all(out))
        for obj in objects:
            if obj["apiVersion"] == API_VERSION:
                check = CHECKS[obj["kind"]]
                assert check.faults(msgspec.convert(obj, check.model)) == []
        return code, objects, err.splitlines()

    return run


OPTIONS = [
    ("application shop -f FILE -L 'location is DE' -M 'load = 5' -R shirts.example.com"),
    (
        "application shop --file FILE --cluster-label-constraint 'location is DE'"
        " --cluster-metric-constraint 'load = 5' --cluster-resource-constraint shirts.example.com"
    ),
    (
        "application a -f FILE -f OTHER -L 'a is b' -L 'c is d' --disable-migration -n shop"
        " -l team=a -l tier="
    ),
    "cluster a -L 'a is b' -M 'c > 1' -R d.e -m f 2",
    (
        "cluster a --cloud-label-constraint 'a is b' --cloud-metric-constraint 'c > 1'"
        " --custom-resource d.e --metric f 2"
    ),
    (
        "cluster zone_1 --global-metric heat_demand_zone_1 0.45 --metric cost 3"
        " -M 'heat_demand_zone_1 > 2'"
    ),
    "project my-project --template 9c --metric heat 3",
    "magnumcluster a --metric heat 3 -L 'a in (b)' --master-count 1 --node-count 2",
    "magnumcluster a --project-label-constraint 'a is b'",
]


@pytest.mark.parametrize("options", OPTIONS)
def test_options_become_an_object_with_notes_about_changed_names(new, options, assert_golden):
    code, objects, told = new(*shlex.split(options))
    assert code == 0
    assert_golden([objects, told])


def test_a_kubeconfig_becomes_a_secret_beside_the_cluster(new, tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_bytes(b"apiVersion: v1\nkind: Config\n")
    _, (secret, obj), _ = new("cluster", "a", "--kubeconfig", str(file), "-n", "shop")
    assert secret["metadata"] == {"name": "a-kubeconfig", "namespace": "shop"}
    assert base64.b64decode(secret["data"]["kubeconfig"]) == file.read_bytes()
    assert obj["spec"]["kubeconfigSecretRef"] == {"name": "a-kubeconfig"}
    _, (obj,), _ = new("cluster", "a", "--kubeconfig-secret", "mine")
    assert obj["spec"]["kubeconfigSecretRef"] == {"name": "mine"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["application", "a", "-f", "FILE", "-L", "a IS b"], "spec.constraints.cluster.labels[0]"),
        (["application", "a", "-f", "/nowhere.yaml"], "/nowhere.yaml: no such file"),
        (["application", "_", "-f", "FILE"], "name _: none of its characters is valid in a name"),
        (["cluster", "a", "--kubeconfig", "/nowhere.yaml"], "/nowhere.yaml: No such file"),
        (["cluster", "a", "--metric", "b", "-1"], "spec.metrics[0].weight"),
        (["project", "a", "--metric", "b", "0"], "at least one weight must be above 0"),
    ],
)
def test_what_could_not_work_is_one_line_and_nothing_is_printed(new, options, text):
    code, objects, told = new(*options)
    assert (code, objects) == (2, [])
    (line,) = told
    assert line.startswith("harbourmaster: ")
    assert text in line


@pytest.mark.parametrize(
    "options",
    [
        ["application", "a"],
        ["cluster", "a", "--metric", "b"],
        ["cluster", "a", "--metric", "b", "much"],
        ["cluster", "a", "--kubeconfig", "a", "--kubeconfig-secret", "b"],
        ["project", "a", "-l", "b"],
        ["something", "a"],
    ],
)
def test_options_that_are_none_are_usage_errors(options, capsys):
    with pytest.raises(SystemExit) as error:
        main(["placement", "new", *options])
    assert error.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("harbourmaster placement new")
    assert line.endswith(" --help")
