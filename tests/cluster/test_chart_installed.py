"""Helm installs, upgrades and removes the chart on a real control plane, by both its versions."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
import trustme
import yaml

from helpers.chart import HELMS, KEEP, chart_folder, helm
from helpers.cluster import plane_for
from helpers.manifests import DEPLOY, NAMESPACE, kustomize, of_kind, parse, render

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("helm_is_built")]

OWNER = "meta.helm.sh/release-name"
CONVERTED = "keptnapps.lifecycle.keptn.sh"
POLICIES = "clusterpodschedulingpolicies.kupid.gardener.cloud"
BUNDLE = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
CLIENT = "/spec/conversion/webhook/clientConfig"
STORED = (
    {
        "apiVersion": "lifecycle.keptn.sh/v1",
        "kind": "KeptnApp",
        "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"version": "1", "workloads": []},
    },
    {
        "apiVersion": "kupid.gardener.cloud/v1alpha1",
        "kind": "ClusterPodSchedulingPolicy",
        "metadata": {"name": "shop"},
        "spec": {"tolerations": [{"key": "shop", "operator": "Exists"}]},
    },
)


@pytest.fixture(params=HELMS)
def release(request, tmp_path_factory):
    """A release of ours by one version of Helm, on a control plane of its own with two nodes."""
    with plane_for(request, tmp_path_factory, request.param) as plane:
        plane.add_nodes(2)
        yield Release(plane, request.param)


class Release:
    """The release ``harbourmaster``, which Helm makes of the chart."""

    def __init__(self, plane, program):
        self.plane = plane
        self.program = program

    def helm(self, *arguments, check=True):
        """Run Helm on the control plane."""
        result = helm(
            *arguments,
            f"--namespace={NAMESPACE}",
            program=self.program,
            kubeconfig=self.plane.kubeconfig,
        )
        assert not check or result.returncode == 0, result.stderr
        return result

    def install(self, *options, check=True):
        """Install the chart, and wait until its pods are ready."""
        chart = ("harbourmaster", chart_folder(), "--create-namespace", "--wait", "--timeout=2m")
        return self.helm("install", *chart, *options, check=check)

    def upgrade(self, *options):
        """Upgrade with exactly these values."""
        wait = ("--reset-values", "--wait", "--timeout=2m")
        return self.helm("upgrade", "harbourmaster", chart_folder(), *wait, *options)

    def read(self, *arguments):
        """The JSON that the API server returns, or None."""
        result = self.plane.kubectl(
            "get", "--output=json", f"--namespace={NAMESPACE}", *arguments, check=False
        )
        return json.loads(result.stdout or "null")

    def store(self):
        """Store an object of each system; return how to tell whether it is still the same one."""
        for obj in STORED:
            self.plane.kubectl("create", "--filename=-", stdin=json.dumps(obj))
        return self.uids()

    def uids(self):
        """The uids of the stored objects."""
        return [
            json.loads(
                self.plane.kubectl(
                    "get", obj["kind"], obj["metadata"]["name"], "-n=default", "-o=json"
                ).stdout
            )["metadata"]["uid"]
            for obj in STORED
        ]

    def ready(self, role):
        """The number of ready pods of a process."""
        return self.read("deployment", f"harbourmaster-{role}")["status"]["readyReplicas"]

    @property
    def references(self):
        """The mode of references across namespaces that counts: the last flag."""
        (container,) = self.read("deployment", "harbourmaster-controller")["spec"]["template"][
            "spec"
        ]["containers"]
        modes = [flag for flag in container["args"] if flag.startswith("--cross-namespace")]
        return modes[-1].partition("=")[2]

    def owner(self, definition):
        """The release that a definition names."""
        return self.read("crd", definition)["metadata"]["annotations"][OWNER]


def test_values_are_changed_by_upgrades_and_definitions_outlive_the_release(release):
    said = release.install().stdout
    assert f"kubectl label namespace {NAMESPACE} pod-security" in said
    assert release.references == "AllNeedConsent"
    uids = release.store()
    for role, replicas in (("webhook", 3), ("controller", 2)):
        assert release.ready(role) == replicas
    (secret,) = release.read("secrets", "--selector=owner=helm")["items"]
    assert len(secret["data"]["release"]) < 1 << 20

    # As the controller does it, and cert-manager.
    patch = [{"op": "add", "path": f"{CLIENT}/caBundle", "value": BUNDLE}]
    release.plane.kubectl("patch", "crd", CONVERTED, "--type=json", f"--patch={json.dumps(patch)}")
    release.upgrade("--set=webhook.replicas=2,components.dashboard=true")
    assert release.ready("webhook") == 2
    assert release.read("service", "harbourmaster-dashboard")
    client = release.read("crd", CONVERTED)["spec"]["conversion"]["webhook"]["clientConfig"]
    assert client["caBundle"] == BUNDLE
    release.upgrade()
    assert release.ready("webhook") == 3
    assert not release.read("service", "harbourmaster-dashboard")

    release.upgrade("--set=crds.install=false")
    assert release.uids() == uids
    release.upgrade()
    release.helm("uninstall", "harbourmaster")
    assert not release.read("deployments")["items"]
    assert release.uids() == uids
    release.install()
    assert release.uids() == uids


def test_with_keep_turned_off_the_definitions_go_with_the_release(release):
    release.install("--set=crds.keep=false")
    assert KEEP not in release.read("crd", POLICIES)["metadata"]["annotations"]
    release.helm("uninstall", "harbourmaster", "--wait")
    release.plane.kubectl("wait", "--for=delete", "--timeout=60s", f"crd/{POLICIES}")


def test_definitions_of_other_releases_are_taken_over_with_their_objects(release):
    definitions = [
        definition
        for definition in parse(kustomize(DEPLOY / "crds"))
        if definition["kind"] == "CustomResourceDefinition"
    ]
    for definition in definitions:
        name = "kupid" if "kupid" in definition["spec"]["group"] else "keptn"
        metadata = definition["metadata"]
        metadata["annotations"] = {OWNER: name, "meta.helm.sh/release-namespace": name}
        metadata["labels"] = {
            "app.kubernetes.io/managed-by": "Helm",
            "keptn.sh/inject-cert": "true",
        }
    release.plane.kubectl(
        "create",
        "--field-manager=helm",
        "--filename=-",
        stdin=yaml.safe_dump_all(definitions),
    )
    release.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    uids = release.store()
    refused = release.install(check=False)
    assert refused.returncode
    assert "invalid ownership metadata" in refused.stderr
    assert release.owner(CONVERTED) == "keptn"
    assert not release.read("deployments")["items"]

    release.helm("uninstall", "harbourmaster", "--ignore-not-found")
    release.install("--take-ownership")
    assert release.uids() == uids
    assert "Before." not in json.dumps(release.read("crd", CONVERTED)["spec"]["versions"])
    assert release.owner(CONVERTED) == release.owner(POLICIES) == "harbourmaster"
    release.upgrade("--set=controller.replicas=1")
    assert release.uids() == uids
    assert release.ready("controller") == 1


def test_an_installation_by_make_deploy_becomes_a_release(release):
    new, old = (f"references={mode}" for mode in ("AllNeedConsent", "ProvidersNeedConsent"))
    text = render("default").replace(new, old)
    (namespace,) = of_kind(list(parse(text)), "Namespace")
    for document in (json.dumps(namespace), text):
        release.plane.kubectl(
            "apply", "--server-side", "--force-conflicts", "--filename=-", stdin=document
        )
    release.plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
    uids = release.store()
    service = release.read("service", "harbourmaster-webhook")["metadata"]["uid"]
    # Helm 4 applies on the server, where kubectl owns the fields.
    force = ("--force-conflicts",) if release.program == "helm" else ()
    release.install("--take-ownership", *force)
    assert release.uids() == uids
    assert release.read("service", "harbourmaster-webhook")["metadata"]["uid"] == service
    assert release.owner(POLICIES) == "harbourmaster"
    assert release.references == "ProvidersNeedConsent"
    release.upgrade("--set=webhook.replicas=2", *force)
    assert release.ready("webhook") == 2
    assert release.references == "ProvidersNeedConsent"
    release.upgrade("--set=crossNamespaceReferences=AllNeedConsent", *force)
    assert release.references == "AllNeedConsent"


def test_after_our_own_uninstall_helm_forgets_the_release(release):
    release.install()
    uids = release.store()
    command = ("uninstall", "--yes", f"--kubeconfig={release.plane.kubeconfig}")
    result = subprocess.run(
        [Path(sys.executable).with_name("harbourmaster"), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    # Helm's record of the release is left, which is not ours to delete.
    left = [line for line in result.stdout.splitlines() if line.startswith("left:")]
    (secret,) = release.read("secrets", "--selector=owner=helm")["items"]
    assert left == [f"left: namespace {NAMESPACE}: it holds Secret {secret['metadata']['name']}"]
    assert not release.read("deployments")["items"]
    release.helm("uninstall", "harbourmaster")
    assert not release.read("secrets", "--selector=owner=helm")["items"]
    assert release.uids() == uids
