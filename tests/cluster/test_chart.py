"""The Helm chart: Helm renders what kustomize does, and installs it on a real API server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from typing import ClassVar

import pytest
import yaml

from helpers.chart import (
    CHART,
    EXAMPLES,
    HELMS,
    KUBERNETES,
    chart_folder,
    helm,
    overlays,
    sorted_objects,
    template_objects,
)
from helpers.manifests import NAMESPACE, ROOT, VERSION, kustomize, objects, parse, render

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("helm_is_built")]

ALONE = {
    component.name: component.folder.rpartition("/")[2]
    for component in overlays.components()
    if component.folder.startswith("components/") and component.name != "hardened"
}
"""Components by the names of their values; the example is one of hardened."""
IN_DEFAULT = {"guards", "accountGuard"}


def namespace_of(manifests):
    return next(obj["metadata"]["name"] for obj in manifests if obj["kind"] == "Namespace")


@pytest.mark.parametrize("example", sorted(EXAMPLES.iterdir()), ids=lambda path: path.name)
def test_an_example_renders_what_its_kustomization_does(example):
    expected = list(parse(kustomize(example)))
    rendered = template_objects(f"--values={example}/values.yaml", namespace=namespace_of(expected))
    assert sorted_objects(rendered) == sorted_objects(expected)


@pytest.mark.parametrize("program", HELMS)
def test_without_values_both_versions_of_helm_render_the_default(program):
    rendered = template_objects(namespace=NAMESPACE, program=program)
    assert sorted_objects(rendered) == sorted_objects(objects())


@pytest.mark.parametrize("name", ALONE)
def test_a_component_alone_renders_what_it_does_on_the_default(name):
    base = "before-1.30" if name in IN_DEFAULT else "default"
    expected = objects(base, *([ALONE[name]] if name != "ingressRules" else ()))
    rendered = template_objects(
        f"--set=components.guards={str(name != 'accountGuard').lower()}",
        f"--set=components.{name}=true",
        "--set=scheduler.image=kube-scheduler",
        namespace=namespace_of(expected),
    )
    assert sorted_objects(rendered) == sorted_objects(expected)


def test_the_quick_start_installs_the_image_that_it_loads():
    """The settings are those of docs/howto/kind.md, as a shell passes them."""
    text = (ROOT / "docs/howto/kind.md").read_text()
    (block,) = re.findall(r"^helm install .*?[^\\]$", text, re.MULTILINE | re.DOTALL)
    script = f"IMG=localhost/harbourmaster:dev; helm() {{ printf '%s\\n' \"$@\"; }}; {block}"
    shown = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    words = shown.stdout.splitlines()
    values = [f"--set={value}" for flag, value in pairwise(words) if flag == "--set"]
    rendered = template_objects(*values, namespace=NAMESPACE)
    deployments = [obj for obj in rendered if obj["kind"] == "Deployment"]
    assert len(deployments) == 2
    assert {obj["spec"]["replicas"] for obj in deployments} == {1}
    containers = [obj["spec"]["template"]["spec"]["containers"][0] for obj in deployments]
    assert {(container["image"], container["imagePullPolicy"]) for container in containers} == {
        ("localhost/harbourmaster:dev", "IfNotPresent")
    }


def test_one_replica_of_each_is_the_component_single_replica():
    rendered = template_objects(
        "--set=webhook.replicas=1", "--set=controller.replicas=1", namespace=NAMESPACE
    )
    assert sorted_objects(rendered) == sorted_objects(objects("default", "single-replica"))


def test_values_reach_the_webhook_configurations_of_certmanager():
    configured = template_objects(
        "--set=certificates=certManager",
        "--set=admission.failurePolicy=Fail,admission.gatedFailurePolicy=Ignore",
        "--set=admission.excludedNamespaces={kube-system,monitoring}",
        namespace=NAMESPACE,
    )
    expected = list(parse(render("with-certmanager")))
    mutating = ("MutatingWebhookConfiguration", None, "harbourmaster")
    swapped = {"Fail": "Ignore", "Ignore": "Fail"}
    entries = sorted_objects(configured)[mutating]["webhooks"]
    assert [entry["failurePolicy"] for entry in entries] == [
        swapped[webhook["failurePolicy"]]
        for webhook in sorted_objects(expected)[mutating]["webhooks"]
    ]
    excluded = {
        name
        for obj in entries
        for expression in obj["namespaceSelector"]["matchExpressions"]
        if expression["operator"] == "NotIn" and expression["key"] == "kubernetes.io/metadata.name"
        for name in expression["values"]
    }
    assert excluded == {"kube-system", "monitoring", NAMESPACE}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ("webhook.replica=3", "'replica'"),
        ("webhook.replicas=three", "/webhook/replicas"),
        ("certificates=foo", "/certificates"),
        ("hardened.enabled=true", "no address ranges of the API server: hardened.apiServerCIDRs: "),
        ("components.scheduler=true", "no image of kube-scheduler: scheduler.image: "),
    ],
)
@pytest.mark.parametrize("program", HELMS)
def test_helm_refuses_wrong_values_and_names_them(program, values, complaint):
    result = helm("template", chart_folder(), KUBERNETES, f"--set={values}", program=program)
    assert result.returncode
    assert not result.stdout
    assert sum(complaint in line for line in result.stderr.splitlines()) == 1


def test_the_chart_passes_helms_own_checks():
    result = helm("lint", "--strict", chart_folder())
    assert result.returncode == 0, result.stdout


def test_the_chart_is_the_same_each_time(tmp_path):
    made = []
    for number in ("1", "2"):
        output = tmp_path / number
        command = [sys.executable, CHART / "chart.py", VERSION, "example.com/image:1", output]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": number}, check=True)
        files = [path for path in output.rglob("*") if path.is_file()]
        made.append({path.relative_to(output): path.read_bytes() for path in files})
    assert made[0] == made[1]


def test_make_chart_writes_it_with_the_image_where_releases_expect_it():
    digest = f"sha256:{'a' * 64}"
    image = f"registry.example.com/harbourmaster@{digest}"
    command = ["make", "--no-print-directory", "chart", f"IMG={image}"]
    environment = {key: value for key, value in os.environ.items() if "MAKE" not in key}
    result = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    path = f"dist/harbourmaster-{VERSION}.tgz"
    assert result.stdout == f"{path}\n"
    shown = yaml.safe_load(helm("show", "values", ROOT / path).stdout)
    assert shown["image"] | {"pullPolicy": None} == {
        "repository": "registry.example.com/harbourmaster",
        "tag": "",
        "digest": digest,
        "pullPolicy": None,
        "pullSecrets": [],
    }
    rendered = list(parse(helm("template", ROOT / path).stdout))
    images = {
        container["image"]
        for obj in rendered
        if obj["kind"] == "Deployment"
        for container in obj["spec"]["template"]["spec"]["containers"]
    }
    assert images == {image}
    assert json.dumps(rendered).count(NAMESPACE) == 0
    command = ("template", ROOT / path, "--set=image.tag=other")
    refused = helm(*command)
    assert "image.tag=other selects no other image" in refused.stderr
    chosen = helm(*command, "--set=image.digest=").stdout
    assert "registry.example.com/harbourmaster:other\n" in chosen


class LiveController(BaseHTTPRequestHandler):
    """An API server that has only a Deployment of our controller, with these flags; or none."""

    flags: ClassVar = None

    def do_GET(self):
        """Answer discovery, and the read of the Deployment."""
        args = [f"--cross-namespace-references={mode}" for mode in self.flags or ()]
        pod = {"spec": {"containers": [{"name": "controller", "args": ["controller", *args]}]}}
        apps = {"groupVersion": "apps/v1", "version": "v1"}
        groups = [{"name": "apps", "versions": [apps], "preferredVersion": apps}]
        answers = {
            "/version": {"major": "1", "minor": "36", "gitVersion": "v1.36.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
            "/api/v1": resources("v1", "configmaps", "ConfigMap"),
            "/apis/apps/v1": resources("apps/v1", "deployments", "Deployment"),
        }
        answer = answers.get(self.path.partition("?")[0])
        if self.path.endswith("/deployments/harbourmaster-controller") and self.flags is not None:
            metadata = {"name": "harbourmaster-controller", "namespace": NAMESPACE}
            answer = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
            answer["spec"] = {"template": pod}
        self.send_response(200 if answer else 404)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        missing = {"kind": "Status", "apiVersion": "v1", "code": 404, "reason": "NotFound"}
        self.wfile.write(json.dumps(answer or missing).encode())

    def log_message(self, *arguments):
        """Log nothing."""


def resources(version, plural, kind):
    names = {"name": plural, "singularName": kind.lower(), "kind": kind}
    resource = {**names, "namespaced": True, "verbs": ["create", "get", "list", "patch"]}
    return {"kind": "APIResourceList", "groupVersion": version, "resources": [resource]}


@pytest.fixture
def chart_of_the_mode(tmp_path):
    """A chart that has our helpers, and one object with the mode that they choose."""
    folder = tmp_path / "chart"
    (folder / "templates").mkdir(parents=True)
    (folder / "Chart.yaml").write_text("{apiVersion: v2, name: mode, version: 1.0.0}")
    (folder / "values.yaml").write_text("{crossNamespaceReferences: null, hardened: {}}")
    helpers = "templates/_helpers.tpl"
    (folder / helpers).write_text((CHART / helpers).read_text())
    content = '{apiVersion: v1, kind: ConfigMap, metadata: {name: mode}, data: {mode: "%s"}}'
    call = '{{ include "harbourmaster.references" . }}'
    (folder / "templates/mode.yaml").write_text(content % call)
    return folder


@pytest.mark.parametrize("program", HELMS)
@pytest.mark.parametrize(
    ("live", "value", "mode"),
    [
        # The flag of the manifests counts.
        (None, "", ""),
        ([], "", "Open"),
        (["ProvidersNeedConsent"], "", "ProvidersNeedConsent"),
        (["AllNeedConsent", "Open"], "", "Open"),
        (["Open"], "crossNamespaceReferences=AllNeedConsent", "AllNeedConsent"),
        (["ProvidersNeedConsent"], "hardened.enabled=true", ""),
    ],
    ids=str,
)
def test_an_upgrade_keeps_the_mode_of_references(
    program, live, value, mode, chart_of_the_mode, tmp_path
):
    handler = type("Handler", (LiveController,), {"flags": live})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": ""}}
        content = {"clusters": [cluster], "contexts": [context], "current-context": "c"}
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **content}))
        result = helm(
            *("template", "harbourmaster", chart_of_the_mode, "--dry-run=server"),
            *("--disable-openapi-validation", f"--namespace={NAMESPACE}", f"--set={value}"),
            program=program,
            kubeconfig=kubeconfig,
        )
        server.shutdown()
    assert result.returncode == 0, result.stderr
    (obj,) = parse(result.stdout)
    assert obj["data"]["mode"] == mode
