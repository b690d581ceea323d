"""``harbourmaster check`` in CI: which files are read, and what the summary says."""

from __future__ import annotations

import json
import os
from xml.etree import ElementTree as ET

import pytest

from harbourmaster.cli.checking import FILE
from harbourmaster.cli.main import main
from harbourmaster.serving.kubectl_yaml import dump
from helpers.objects import cluster_policy, policy, required, workload

SSD = {"nodeSelector": {"disk": "ssd"}}
HDD = {"affinity": required({"disk": "hdd"})}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a function that writes objects to files below the working directory."""
    monkeypatch.chdir(tmp_path)

    def write(**files):
        for name, objects in files.items():
            path = (tmp_path / name.replace("__", "/")).with_suffix(".yaml")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("---\n".join(map(dump, objects)))
        return tmp_path

    return write


@pytest.fixture
def run(capsys):
    """Return a function that runs a command, and returns the code and the lines of both streams."""

    def start(*arguments):
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, (out + err).splitlines()

    return start


@pytest.fixture
def declare(folder):
    """Return a function that writes a test file."""

    def write(objects, expect=None, policies=("policies",), name=FILE):
        test = {"apiVersion": "cli.harbourmaster.dev/v1alpha1", "kind": "Test"}
        test |= {"policies": list(policies), "objects": list(objects), "expect": expect or {}}
        (folder() / name).write_text(dump(test))

    return write


def selecting(**labels):
    return {"fields": {"spec": {"template": {"spec": {"nodeSelector": labels}}}}}


BAD = cluster_policy("bad", podSelectr={})


@pytest.mark.parametrize("others", [[], ["policies"]])
@pytest.mark.parametrize("path", ["apps", "apps/*.yaml", "apps/*/*.yaml", "none/**", "overlay"])
def test_a_folder_or_glob_without_a_manifest_is_an_error(folder, run, path, others):
    folder(policies__a=[cluster_policy(**SSD)], apps__shop__cart__bad=[BAD], overlay__x=[])
    (folder() / "overlay/kustomization.yaml").write_text("resources: []")
    code, [line] = run("check", "manifests", *others, path)
    assert (code, f"{path}: no manifest found" in line) == (2, True)


def test_the_error_says_how_to_read_the_folders_in_a_folder(folder, run):
    folder(apps__shop__cart__bad=[BAD])
    _, [line] = run("check", "manifests", "apps")
    assert line.endswith('apps: no manifest found: "apps/**/*.yaml" reads the folders in it')


@pytest.mark.parametrize("path", [["-R", "apps"], ["apps/**/*.yaml"], ["apps/*/c?rt/[b]ad.yaml"]])
def test_folders_in_folders_are_read_on_request(folder, run, path):
    folder(policies__a=[cluster_policy(**SSD)], apps__shop__cart__bad=[BAD])
    code, lines = run("check", "manifests", *path, "policies")
    assert (code, lines[-1]) == (1, "2 objects, 1 error, 1 warning")
    assert lines[0].startswith("apps/shop/cart/bad.yaml:1: error: ClusterPodSchedulingPolicy bad")


def test_hidden_folders_and_links_are_not_followed(folder, run):
    folder(apps__a=[workload()], apps__b__c=[workload("Job")], apps__x__y=[BAD])
    (folder() / "apps/x").rename(folder() / "apps/.x")
    (folder() / "apps/b/loop").symlink_to(folder() / "apps")
    assert run("check", "manifests", "-R", "apps") == (0, ["2 objects, 0 errors, 0 warnings"])
    assert run("check", "manifests", "apps/**/*.yaml") == (0, ["2 objects, 0 errors, 0 warnings"])


def test_a_file_that_is_named_twice_is_read_once(folder, run):
    folder(apps__a=[workload()])
    names = ("apps", "apps/a.yaml", "apps/*.yaml", "./apps/../apps")
    assert run("check", "manifests", *names) == (0, ["1 object, 0 errors, 0 warnings"])


def test_files_that_are_no_manifests_are_left_out(folder, run, declare):
    folder(policies__a=[cluster_policy(**SSD)], apps__a=[workload()])
    declare(["apps"])
    (folder() / "apps/kustomization.yaml").write_text("resources: [a.yaml]")
    assert run("check", "manifests", "-R", ".")[1][-1] == "2 objects, 0 errors, 0 warnings"


def test_a_path_with_the_characters_of_a_glob_is_read(folder, run):
    folder(**{"[a]": [workload()]})
    assert run("check", "manifests", "[a].yaml") == (0, ["1 object, 0 errors, 0 warnings"])


def test_render_reads_globs(folder, run):
    folder(policies__a=[cluster_policy(**SSD)], apps__shop__a=[workload()])
    code, lines = run("render", "--policies", "policies", "-f", "apps/**/*.yaml")
    assert (code, "        disk: ssd" in lines) == (0, True)
    assert run("render", "--policies", "policies", "-f", "apps")[0] == 2


def test_a_test_reads_globs_and_with_r_all_folders(folder, run, declare):
    folder(policies__a=[cluster_policy(**SSD)], apps__shop__a=[workload()])
    expect = {"Deployment web": selecting(disk="ssd")}
    declare(["apps"], expect)
    code, [line] = run("check", "tests", ".")
    assert (code, "apps: no manifest found" in line) == (2, True)
    assert run("check", "tests", "-R", ".")[0] == 0
    declare(["apps/**/*.yaml"], expect)
    assert run("check", "tests", ".")[0] == 0


def test_a_test_names_no_device_and_no_pipe(folder, run, declare):
    os.mkfifo(folder() / "endless.yaml")
    declare(["endless.yaml"], policies=[])
    code, [line, *_] = run("check", "tests", ".")
    assert (code, "endless.yaml: not a file or a folder: name manifests" in line) == (1, True)


def test_a_link_to_a_device_is_not_taken_for_a_test(folder, run):
    (folder() / FILE).symlink_to("/dev/null")
    code, [line] = run("check", "tests", ".")
    assert (code, f"no {FILE} found" in line) == (2, True)


def test_the_same_object_in_two_folders_is_refused(folder, run, declare):
    folder(policies__a=[cluster_policy(**SSD)], a__d=[workload()], b__d=[workload()])
    declare(["a", "b"], {"Deployment web": selecting(disk="ssd")})
    code, lines = run("check", "tests", ".")
    assert code == 1
    assert lines[0].startswith("b/d.yaml:1: error: metadata.name: Deployment web: defined twice: ")
    assert lines[0].endswith(": remove it here or in a/d.yaml:1, or check them apart")
    assert lines[1:] == ["0 objects, 1 error, 0 warnings"]
    before = (folder() / FILE).read_text()
    assert run("check", "tests", "--update", ".")[0] == 1
    assert (folder() / FILE).read_text() == before


def test_objects_of_one_name_that_are_not_the_same_are_both_tested(folder, run, declare):
    of_knative = {"apiVersion": "serving.knative.dev/v1", "kind": "Deployment"}
    of_knative["metadata"] = {"name": "web"}
    unnamed = [{**workload("Job"), "metadata": {"generateName": "a-"}} for _ in range(2)]
    folder(policies__a=[cluster_policy(pods={"app": "web"}, **SSD)], a__d=[workload(), of_knative])
    declare(["a"], {"Deployment web": selecting(disk="ssd")})
    code, lines = run("check", "tests", ".")
    # The Deployment of Knative is as it is not expected to be.
    assert (code, sum("not as" in line for line in lines)) == (1, 1)
    unnamed[1]["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    folder(a__d=unnamed)
    declare(["a"], {"Job a-...": selecting(disk="ssd")})
    code, lines = run("check", "tests", ".")
    assert (code, sum("not as" in line for line in lines)) == (1, 1)


@pytest.fixture
def two_cases(folder, declare):
    folder(
        policies__a=[
            cluster_policy("a", pods={"app": "web"}, **SSD),
            cluster_policy("b", pods={"app": "x"}, **SSD),
        ],
        apps__a=[workload(name="a"), workload(name="b")],
    )
    wrong = selecting(disk="hdd")
    declare(["apps"], {"Deployment a": selecting(disk="ssd"), "Deployment b": wrong})


def test_one_case_is_tested(two_cases, run):
    assert run("check", "tests")[0] == 1
    code, lines = run("check", "tests", "--case", "Deployment a")
    assert (code, lines[-1]) == (0, "1 object, 0 errors, 0 warnings")
    assert lines[0] == "ClusterPodSchedulingPolicy a: matches 1 object"
    assert run("check", "tests", "--case", "Deployment b")[0] == 1


def test_one_case_is_updated(two_cases, folder, run):
    assert run("check", "tests", "--update", "--case", "Deployment a")[0] == 0
    assert run("check", "tests")[0] == 1
    assert run("check", "tests", "--update", "--case", "Deployment b")[0] == 0
    assert run("check", "tests")[0] == 0


def test_a_case_that_no_test_has_is_an_error(two_cases, run):
    code, [line] = run("check", "tests", "--case", "Deployment c")
    assert (code, 'no case "Deployment c": ' in line) == (2, True)


@pytest.mark.parametrize("command", ["manifests", "tests"])
def test_the_summary_counts_what_each_policy_matches(folder, run, declare, tmp_path, command):
    audited = cluster_policy("c", pods={"app": "web"}, **SSD)
    audited["metadata"]["annotations"] = {"harbourmaster.dev/mode": "Audit"}
    rules = [
        cluster_policy("a", **SSD),
        cluster_policy("b", pods={"app": "other"}, **SSD),
        audited,
        policy("d", "shop", pods={"app": "web"}, **SSD),
    ]
    of_shop = workload("Job")
    of_shop["metadata"]["namespace"] = "shop"
    folder(policies__a=rules, apps__a=[workload(), workload("Pod"), of_shop])
    declare(["apps"])
    junit = tmp_path / "junit.xml"
    paths = ["."] if command == "tests" else ["policies", "apps"]
    _, lines = run("check", command, f"--junit={junit}", *paths)
    counts = {
        "ClusterPodSchedulingPolicy a": 3,
        "ClusterPodSchedulingPolicy b": 0,
        "ClusterPodSchedulingPolicy c": 3,
        "PodSchedulingPolicy shop/d": 1,
    }
    assert [line for line in lines if ": matches " in line] == [
        "ClusterPodSchedulingPolicy a: matches 3 objects",
        "ClusterPodSchedulingPolicy b: matches no object",
        "ClusterPodSchedulingPolicy c: matches 3 objects",
        "PodSchedulingPolicy shop/d: matches 1 object",
    ]
    _, lines = run("check", command, "-o", "json", *paths)
    assert json.loads("".join(lines))["policies"] == counts
    properties = ET.parse(junit).findall("testsuite/properties/property")  # noqa: S314 - our own
    values = {item.get("name"): item.get("value") for item in properties}
    assert values == {f"objects matched by {name}": str(count) for name, count in counts.items()}


def test_policies_alone_match_nothing_and_have_no_summary(folder, run):
    folder(policies__a=[cluster_policy(**SSD)])
    assert run("check", "manifests", "policies") == (0, ["1 object, 0 errors, 0 warnings"])


def test_warnings_count_on_request(folder, run, tmp_path):
    folder(a=[cluster_policy(**SSD), workload(**HDD)])
    junit = tmp_path / "junit.xml"
    assert run("check", "manifests", "a.yaml", f"--junit={junit}")[0] == 0
    assert ET.parse(junit).find("testsuite").get("failures") == "0"  # noqa: S314 - our own
    code, lines = run("check", "manifests", "a.yaml", "--fail-on=warning", f"--junit={junit}")
    assert (code, lines[-1]) == (1, "2 objects, 0 errors, 1 warning")
    assert ET.parse(junit).find("testsuite").get("failures") == "1"  # noqa: S314 - our own
