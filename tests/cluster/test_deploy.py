"""The folders of deploy are applied to a real API server."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from harbourmaster.cli.cluster_commands import add_uninstall
from harbourmaster.cli.uninstall import run as uninstall
from harbourmaster.playground.build import find_go
from helpers.cluster import eventually, plane_for
from helpers.manifests import (
    CLUSTER_WIDE,
    COMPONENTS,
    NAMESPACE,
    ROOT,
    container,
    kubectl,
    objects,
    of_kind,
    one,
    render,
)
from helpers.patience import DROPPED, WAIT


class Module(NamedTuple):
    """A module of one version, and what Go says of its content."""

    path: str
    version: str
    content: str

    def folder(self):
        """The folder of the module's files; they are fetched the first time."""
        result = subprocess.run(
            [
                find_go(os.environ).command,
                "mod",
                "download",
                "-json",
                f"{self.path}@{self.version}",
            ],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        answer = json.loads(result.stdout)
        assert answer["Sum"] == self.content
        return Path(answer["Dir"])


CERT_MANAGER = Module(
    "github.com/cert-manager/cert-manager",
    "v1.21.2",
    "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=",
)
PROMETHEUS_OPERATOR = Module(
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
)


pytestmark = pytest.mark.timeout(300)

IMAGE = "registry.example.com/harbourmaster:tried"
ZONE = "topology.kubernetes.io/zone"
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:harbourmaster-controller"
OWNED = json.dumps(
    {
        "metadata": {
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1"}
            ]
        }
    }
)
GATES = "gates.harbourmaster.dev/enabled"
PATIENT = f"--timeout={DROPPED:.0f}"


@pytest.fixture(scope="module")
def plane(request, tmp_path_factory):
    """A control plane with a node in each of three zones; what is installed stays there."""
    with plane_for(request, tmp_path_factory, "deploy") as running:
        for zone in "abc":
            running.add_nodes(1, {ZONE: zone})
        yield running


@pytest.fixture(scope="module")
def make(plane):
    """Return ``make(*arguments)``, as a person would run it who uses that cluster."""
    environment = {key: value for key, value in os.environ.items() if "MAKE" not in key}

    def run(*arguments):
        return subprocess.run(
            ["make", "--no-print-directory", f"KUBECTL={kubectl()}", *arguments],
            cwd=ROOT,
            env={**environment, "KUBECONFIG": str(plane.kubeconfig)},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def deploy(plane, make):
    """The result of ``make deploy`` on that cluster."""
    result = make("deploy", f"IMG={IMAGE}")
    assert result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def other_kinds(plane):
    """The kinds and the namespace that components use, on the shared control plane."""
    install_other_kinds(plane)


def install_other_kinds(plane):
    folders = (
        CERT_MANAGER.folder() / "deploy/crds",
        PROMETHEUS_OPERATOR.folder() / "example/prometheus-operator-crd",
    )
    files = [
        f"--filename={path}"
        for folder in folders
        for path in folder.glob("*.yaml")
        if path.stem.endswith(("io_issuers", "io_certificates", "_servicemonitors", "rules"))
    ]
    assert len(files) == 4
    plane.kubectl("apply", "--server-side", *files)
    plane.kubectl("wait", "--for=condition=Established", WAIT, "crd", "--all")
    plane.kubectl("create", "namespace", "keptn-system")


def read(plane, *arguments):
    return json.loads(plane.kubectl("get", "--output=json", *arguments).stdout)


def apply(plane, text, *options):
    """Apply by the server, strictly; what it warns of is a failure too."""
    result = plane.kubectl(
        "apply", "--server-side", "--validate=strict", *options, "--filename=-", stdin=text
    )
    assert not result.stderr
    return result.stdout


def can(plane, account, *question):
    answer = plane.kubectl("auth", "can-i", f"--as={account}", *question, check=False).stdout
    return answer.strip() == "yes"


def test_make_deploy_installs_and_says_what_to_do_next(deploy):
    assert not deploy.stderr
    lines = deploy.stdout.splitlines()
    assert 'deployment "harbourmaster-webhook" successfully rolled out' in lines
    assert 'deployment "harbourmaster-controller" successfully rolled out' in lines
    assert lines[-1].startswith("Harbourmaster is running. Apply a policy")


def test_the_pods_run_the_given_image_spread_over_zones(deploy, plane):
    for component, replicas in (("webhook", 3), ("controller", 2)):
        pods = read(
            plane,
            "pods",
            f"--namespace={NAMESPACE}",
            f"--selector=app.kubernetes.io/component={component}",
        )["items"]
        assert [pod["spec"]["containers"][0]["image"] for pod in pods] == [IMAGE] * replicas
        assert len({pod["spec"]["nodeName"] for pod in pods}) == replicas
        assert {pod["spec"]["priorityClassName"] for pod in pods} == {"system-cluster-critical"}
        # Only the API server's token, its CA and the namespace, and that for an hour.
        tokens = [
            source["serviceAccountToken"]
            for pod in pods
            for volume in pod["spec"]["volumes"]
            for source in volume.get("projected", {}).get("sources", ())
            if "serviceAccountToken" in source
        ]
        assert len(tokens) == replicas
        assert all(token["expirationSeconds"] <= 3607 for token in tokens)


def test_one_replica_of_each_may_be_disrupted(deploy, plane):
    budgets = read(plane, "poddisruptionbudgets", f"--namespace={NAMESPACE}")["items"]
    assert {budget["metadata"]["name"]: budget["status"]["expectedPods"] for budget in budgets} == {
        "harbourmaster-webhook": 3,
        "harbourmaster-controller": 2,
    }
    for obj in budgets:
        name = obj["metadata"]["name"]
        eventually(
            lambda name=name: read(plane, "poddisruptionbudget", name, f"--namespace={NAMESPACE}")[
                "status"
            ]["disruptionsAllowed"],
            is_right=lambda allowed: allowed == 1,
        )


def versions(plane, *quiet):
    """UID, generation and version of each object; ``quiet`` kinds change without being changed."""
    versions = {}
    for obj in objects():
        metadata = obj["metadata"]
        where = [f"--namespace={NAMESPACE}"] if "namespace" in metadata else []
        stored = read(plane, obj["kind"], metadata["name"], *where)["metadata"]
        versions[obj["kind"], metadata["name"]] = (
            stored["uid"],
            stored.get("generation"),
            obj["kind"] in quiet or stored["resourceVersion"],
        )
    return versions


def test_applying_the_same_again_changes_nothing(deploy, plane, make):
    quiet = ("Deployment", "PodDisruptionBudget", "ResourceQuota")
    before = versions(plane, *quiet)
    assert make("deploy", f"IMG={IMAGE}").returncode == 0
    assert versions(plane, *quiet) == before


def test_applied_by_the_client_the_second_time_changes_nothing(throwaway_control_plane):
    # Without controllers nothing moves by itself, so every version counts.
    plane = throwaway_control_plane(optional=())
    first = plane.kubectl("apply", "--filename=-", stdin=render("default"))
    before = versions(plane, "CustomResourceDefinition")
    second = plane.kubectl("apply", "--filename=-", stdin=render("default"))
    assert not first.stderr + second.stderr
    assert versions(plane, "CustomResourceDefinition") == before


def test_what_is_stored_is_what_stands_in_git(deploy, plane):
    text = render("default").replace(container(of_kind(objects(), "Deployment")[0])["image"], IMAGE)
    result = plane.kubectl("diff", "--server-side", "--filename=-", stdin=text, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_an_upgrade_changes_flags_by_a_rollout(deploy, plane, make):
    text = render("default").replace("--drain-seconds=10", "--drain-seconds=9")
    apply(plane, text, "--force-conflicts")
    plane.kubectl(
        "rollout",
        "status",
        "deployment/harbourmaster-webhook",
        f"--namespace={NAMESPACE}",
        WAIT,
    )
    pods = read(
        plane,
        "pods",
        f"--namespace={NAMESPACE}",
        "--selector=app.kubernetes.io/component=webhook",
    )["items"]
    running = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    assert all("--drain-seconds=9" in container_args(pod) for pod in running)
    assert make("deploy", f"IMG={IMAGE}").returncode == 0


def container_args(pod):
    return pod["spec"]["containers"][0]["args"]


def test_no_pod_security_rule_is_even_warned_of(deploy, plane):
    labels = ["pod-security.kubernetes.io/warn=restricted"]
    plane.kubectl("label", "namespace", NAMESPACE, *labels)
    try:
        text = render("default", "single-replica")
        applied = apply(plane, text, "--dry-run=server", "--force-conflicts")
        assert "deployment.apps/harbourmaster-webhook serverside-applied" in applied
    finally:
        plane.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/warn-")


@pytest.mark.parametrize("component", [name for name in COMPONENTS if name != "gardener"])
@pytest.mark.parametrize("base", ["default", "with-certmanager"])
def test_every_component_is_accepted_without_a_warning(deploy, other_kinds, plane, base, component):
    text = render(base, component)
    applied = apply(plane, text, "--dry-run=server", "--force-conflicts")
    assert len(applied.splitlines()) == len(objects(base, component))


@pytest.mark.parametrize("base", ["default", "with-certmanager"])
def test_in_gardener_all_of_it_is_accepted_without_a_warning(deploy, other_kinds, plane, base):
    manifests = objects(base, *COMPONENTS)
    apply(plane, json.dumps(one(manifests, "Namespace")))
    applied = apply(
        plane, render(base, *COMPONENTS), "--dry-run=server", "--force-conflicts", "--output=json"
    )
    stored = json.loads(applied)["items"]
    assert len(stored) == len(manifests)
    # kustomize puts a namespace there.
    for manifest in of_kind(stored, "ValidatingAdmissionPolicy"):
        assert "namespace" not in manifest["metadata"]
    sample = ROOT / "deploy/components/gardener/samples/etcd.yaml"
    plane.kubectl("apply", "--dry-run=server", f"--filename={sample}")


def test_who_may_edit_in_a_namespace_may_write_policies_there_and_nowhere_else(deploy, plane):
    plane.kubectl("create", "namespace", "team")
    plane.kubectl(
        "create", "rolebinding", "jane", "--clusterrole=edit", "--user=jane", "--namespace=team"
    )
    kind = "podschedulingpolicies.kupid.gardener.cloud"
    # Aggregation is the work of a controller.
    eventually(lambda: can(plane, "jane", "create", kind, "--namespace=team"))
    assert not can(plane, "jane", "create", kind, "--namespace=default")
    assert not can(plane, "jane", "create", f"cluster{kind}")


@pytest.fixture(scope="module")
def namespace_guard(deploy, plane):
    """The guard in force, and a namespace to try it on."""
    plane.kubectl("create", "namespace", "guarded")
    plane.kubectl("label", "namespace", "guarded", "example.com/tier=a")
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    guards = of_kind(objects("default", "namespace-guard"), *kinds)
    apply(plane, json.dumps({"apiVersion": "v1", "kind": "List", "items": guards}))
    refused = ("label", "namespace", "guarded", "example.com/tier=b", "--overwrite")
    eventually(
        lambda: (
            plane.kubectl(
                *refused, "--dry-run=server", f"--as={CONTROLLER}", check=False
            ).returncode
        )
    )


@pytest.mark.parametrize(
    "change",
    [
        ["label", "namespace", "guarded", "example.com/tier=b", "--overwrite"],
        ["label", "namespace", "guarded", "example.com/tier-"],
        ["label", "namespace", "guarded", "pod-security.kubernetes.io/enforce=privileged"],
        ["label", "namespace", "guarded", f"{GATES}=yes"],
        ["label", "namespace", "guarded", f"{GATES}=true", "example.com/other=b"],
        ["annotate", "namespace", "guarded", "example.com/note=b"],
        ["patch", "namespace", "guarded", '--patch={"metadata":{"finalizers":["example.com/f"]}}'],
        [
            "patch",
            "namespace",
            "guarded",
            f"--patch={OWNED}",
        ],
    ],
    ids=str,
)
def test_the_guard_refuses_our_controller_everything_but_the_one_label(
    namespace_guard, plane, change
):
    result = plane.kubectl(*change, f"--as={CONTROLLER}", check=False)
    assert result.returncode != 0
    assert "harbourmaster-namespace-guard" in result.stderr
    # Somebody else may, as far as anybody may.
    plane.kubectl(*change, "--dry-run=server")


def test_the_guard_lets_our_controller_set_and_remove_the_one_label(namespace_guard, plane):
    for label, value in ((f"{GATES}=true", "true"), (f"{GATES}-", None)):
        plane.kubectl("label", "namespace", "guarded", label, f"--as={CONTROLLER}")
        assert read(plane, "namespace", "guarded")["metadata"]["labels"].get(GATES) == value


@pytest.mark.timeout(2 * DROPPED)
@pytest.mark.parametrize(
    ("base", "components", "namespace"),
    [
        ("default", [name for name in COMPONENTS if name != "gardener"], NAMESPACE),
        ("with-certmanager", COMPONENTS, "gardener-extension-kupid"),
    ],
)
def test_uninstalling_leaves_nothing_of_any_component(
    throwaway_control_plane, base, components, namespace
):
    plane = throwaway_control_plane()
    plane.add_nodes(2)
    install_other_kinds(plane)
    plane.kubectl("create", "priorityclass", "gardener-system-900", "--value=999998900")
    apply(plane, render(base, *components))
    plane.kubectl(
        "rollout",
        "status",
        "deployment/harbourmaster-webhook",
        f"--namespace={namespace}",
        WAIT,
    )
    parser = argparse.ArgumentParser()
    add_uninstall(parser)
    where = [f"--kubeconfig={plane.kubeconfig}", f"--installed-in={namespace}"]
    arguments = parser.parse_args(["--delete-crds", "--yes", PATIENT, *where])
    code = uninstall.run(arguments)
    # Of a definition that stays, its conditions say why.
    assert code == 0, plane.kubectl("get", "crd", "-o=yaml").stdout
    # What had a namespace went with it.
    kinds = {obj["kind"] for obj in objects(base, *components) if obj["kind"] in CLUSTER_WIDE}
    left = plane.kubectl(
        "get", "--output=name", "--selector=app.kubernetes.io/name=harbourmaster", ",".join(kinds)
    )
    assert not left.stdout
    assert not plane.kubectl("get", "services", "--namespace=keptn-system", "-o=name").stdout
