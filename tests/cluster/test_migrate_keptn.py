"""A Keptn with objects of every version is migrated by the printed commands alone, and back."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from harbourmaster.api.resources import CLUSTER_POLICIES
from harbourmaster.api.resources import POLICIES as NAMESPACED_POLICIES
from harbourmaster.cli.installed import KEPTN_RESOURCES
from harbourmaster.controller.registration.ca_injector import SERVED
from harbourmaster.playground.control_plane import ControlPlane
from helpers.cluster import eventually
from helpers.doctor.deployed_installation import DeployedInstallation
from helpers.flow.manifests import container_task, deployment, keptn, with_gate
from helpers.manifests import kubectl as kubectl_path
from helpers.patience import PATIENCE, WAIT
from helpers.schemas import OLD, SPECS, apply_definitions, definition, keptn_object

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
LEFTOVERS = ROOT / "tests/fixtures/leftovers"
HOME = "harbourmaster-system"
TILL = "till"
MUSEUM = "museum"
TOKEN = "automountServiceAccountToken"  # noqa: S105 - a field that the step mend adds
UNCONVERTED = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'
POLICIES = (CLUSTER_POLICIES, NAMESPACED_POLICIES)
SERIES = re.compile(r"keptn_(?:app|deployment)_(?:active|deploymentduration)\{.*")


class User:
    """Runs commands in a copy of the checkout; ``make`` starts our processes with its manifests."""

    def __init__(self, plane, folder):
        self.plane = plane
        self.kubectl = plane.kubectl
        self.installation = None
        self.folder = folder
        self._running = contextlib.ExitStack()
        shutil.copytree(ROOT / "deploy", folder / "deploy")
        tools = folder / "tools"
        tools.mkdir()
        (tools / "kubectl").symlink_to(kubectl_path())
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = {**os.environ, "PATH": path, "KUBECONFIG": str(plane.kubeconfig)}

    def run(self, command, *codes):
        """Run a command line, which may end with these codes, and return what it printed."""
        name, *rest = shlex.split(command)
        if name == "make":
            self.make(*rest)
            return ""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (codes or (0,)), f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    def make(self, target, *options):
        """Install a folder of manifests: that of the target, or that of OVERLAY."""
        overlay = dict(option.partition("=")[::2] for option in options).get("OVERLAY")
        base = "beside-keptn" if target == "deploy-beside-keptn" else "default"
        folder = self.folder / (overlay or f"deploy/{base}")
        assert f"/{base}" in (folder / "kustomization.yaml").read_text() or not overlay
        self.stop()
        self.installation = self._running.enter_context(
            DeployedInstallation(self.plane, folder=folder)
        )

    def stop(self):
        """End our processes."""
        self._running.close()

    def report(self):
        """The report of ``migrate``."""
        return json.loads(self.run("harbourmaster migrate --output json", 0, 1))

    def migrate(self):
        """Run the printed commands step by step; return the codes of the steps."""
        walked = []
        while steps := [step for step in self.report()["plan"] if step["code"] not in walked]:
            for command in steps[0]["commands"]:
                self.run(command)
            walked.append(steps[0]["code"])
        return walked

    def series(self):
        """Gauges of the controller about the app."""
        url = self.installation.installation.scrapes["controller"]
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:  # noqa: S310
            lines = answer.read().decode().splitlines()
        return sorted(line for line in lines if SERIES.match(line) and f'"{TILL}"' in line)


def state(kubectl, namespace, *, with_status=True):
    """The objects of Keptn's kinds and kupid's, without what an update or the plan changes."""
    kinds = ",".join(
        f"{resource.plural}.{resource.group}" for resource in (*KEPTN_RESOURCES, *POLICIES)
    )
    items = json.loads(kubectl("get", kinds, "-o=json", "-n", namespace).stdout)["items"]
    return {
        (item["kind"], item["metadata"]["name"]): (
            item["metadata"]["uid"],
            {key: value for key, value in item.get("spec", {}).items() if key != TOKEN},
            item.get("status") if with_status else None,
        )
        for item in items
    }


def create(kubectl, namespace, *items):
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    kubectl("create", "-n", namespace, "-f=-", stdin=text)


def statuses(kubectl):
    """The overall states of workload versions, by name."""
    result = json.loads(kubectl("get", "keptnworkloadversions", "-n", TILL, "-o=json").stdout)
    return {
        item["metadata"]["name"]: item.get("status", {}).get("status") for item in result["items"]
    }


def prepare(user):
    """Have an app checked and deployed; its objects are those that Keptn would leave."""
    kubectl = user.kubectl
    for name in (TILL, MUSEUM, "keptn-system"):
        kubectl("create", "namespace", name)
        kubectl("wait", "--for=create", WAIT, "serviceaccount/default", f"-n={name}")
    kubectl("annotate", "namespace", TILL, "keptn.sh/lifecycle-toolkit=enabled")
    user.make("deploy")
    create(kubectl, TILL, container_task("check"))
    create(kubectl, TILL, deployment(TILL, keptn(TILL, pre_deployment_tasks="check")))
    eventually(
        lambda: statuses(kubectl), is_right=lambda value: set(value.values()) == {"Succeeded"}
    )
    apps = ("get", "keptnappversions", "-n", TILL, "-o=jsonpath={.items[*].status.status}")
    eventually(lambda: kubectl(*apps).stdout, is_right=lambda text: text == "Succeeded")


def turn_into_keptn(user):
    """Remove us, and put a Keptn and a kupid in our place, with objects of every version."""
    kubectl = user.kubectl
    user.stop()
    ours = "-l=app.kubernetes.io/name=harbourmaster"
    kubectl(
        "delete", "mutatingwebhookconfiguration,validatingwebhookconfiguration", "harbourmaster"
    )
    kubectl("delete", "validatingadmissionpolicybindings,validatingadmissionpolicies", ours)
    kubectl("delete", "apiservices", *SERVED)
    kubectl("delete", "namespace", HOME)
    crds = [f"{resource.plural}.{resource.group}" for resource in KEPTN_RESOURCES]
    for name in ("keptnapps", "keptnappversions"):
        kubectl("patch", "crd", f"{name}.lifecycle.keptn.sh", "--type=merge", f"-p={UNCONVERTED}")
    kubectl("label", "crd", *crds, "keptn.sh/inject-cert=true")
    stand_in(kubectl)
    kubectl("apply", f"-f={LEFTOVERS / 'kupid.yaml'}")
    kubectl(
        "rollout",
        "status",
        "deployment/gardener-extension-kupid",
        "-n=gardener-extension-kupid",
        WAIT,
    )
    kubectl("create", "namespace", "ledger")
    policies = yaml.safe_load_all((LEFTOVERS / "policies.yaml").read_text())
    good = [policy for policy in policies if policy["metadata"]["name"] != "refused"]
    kubectl("create", "-f=-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": good}))
    create(
        kubectl,
        MUSEUM,
        *(
            keptn_object(definition(plural), f"{plural}-{version or 'stored'}", MUSEUM, version)
            for plural in SPECS
            for version in dict.fromkeys((None, OLD.get(plural)))
        ),
    )
    # Its pod has the gate, and Keptn has not looked at it yet.
    waiting = deployment("late", keptn("late", pre_deployment_tasks="check"))
    create(kubectl, TILL, with_gate(waiting))


def stand_in(kubectl):
    """A running Keptn."""
    kubectl("apply", f"-f={LEFTOVERS / 'keptn-running.yaml'}")
    for name in ("lifecycle-operator", "metrics-operator"):
        kubectl("rollout", "status", f"deployment/{name}", "-n=keptn-system", WAIT)


@pytest.fixture
def user(tmp_path_factory, tmp_path):
    with ControlPlane(tmp_path_factory.mktemp("round")) as plane:
        # The policy of kupid asks for it.
        plane.add_nodes(2, {"example.com/pool": "shared"})
        apply_definitions(plane.kubectl)
        plane.restart("kube-controller-manager")
        user = User(plane, tmp_path)
        try:
            yield user
        finally:
            user.stop()


def test_the_printed_commands_lead_to_us_and_back_without_a_loss(user):
    kubectl = user.kubectl
    prepare(user)
    series = user.series()
    assert len(series) == 4
    turn_into_keptn(user)
    done = state(kubectl, TILL)
    kept = state(kubectl, MUSEUM, with_status=False)
    settings = {
        finding["object"] for finding in user.report()["findings"] if finding["code"] == "setting"
    }
    assert settings == {
        "setting lifecycle.promotionTasks",
        "setting lifecycle.denoImage",
        "setting lifecycle.pythonImage",
        "setting allowedNamespaces",
        "setting webhook.gatedFailurePolicy",
    }

    walked = user.migrate()
    assert walked[:2] == ["back-up", "install"]
    assert {"silence", "stop", "take-over", "remove"} <= set(walked)
    assert user.report() == {"findings": [], "plan": [], "unread": []}
    flags = "-o=jsonpath={.spec.template.spec.containers[0].args}"
    for role, flag in (
        ("controller", "--lifecycle-promotion-tasks=true"),
        ("controller", "--lifecycle-python-image=registry.example.com/python:1"),
        ("webhook", "--allowed-namespaces=museum,till"),
    ):
        assert flag in kubectl("get", f"deployment/harbourmaster-{role}", "-n", HOME, flags).stdout
    requested = f"-o=jsonpath={{.items[*].spec.{TOKEN}.type}}"
    assert kubectl("get", "keptntaskdefinitions", "-n", TILL, requested).stdout == "true"
    # What waited is checked and released; what was done is not done again.
    eventually(
        lambda: statuses(kubectl),
        is_right=lambda value: len(value) == 2 and set(value.values()) == {"Succeeded"},
    )
    now = state(kubectl, TILL)
    assert unlike(done, now) == []
    assert unlike(kept, state(kubectl, MUSEUM, with_status=False)) == []
    eventually(user.series, is_right=lambda value: set(series) <= set(value))

    for command in back():
        user.run(command)
    stand_in(kubectl)
    user.run("harbourmaster uninstall --yes")
    user.stop()
    assert unlike(now, state(kubectl, TILL)) == []
    assert unlike(kept, state(kubectl, MUSEUM, with_status=False)) == []
    pod = {"metadata": {"name": "free"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    create(kubectl, TILL, {"apiVersion": "v1", "kind": "Pod", **pod})


def unlike(before, after):
    """The removed and changed objects, except for what follows versions, and fulfilled requests."""
    return [
        (key, value, after.get(key))
        for key, value in before.items()
        if after.get(key) != value
        and key[0] not in {"KeptnApp", "KeptnWorkload", "KeptnAppCreationRequest"}
    ]


def back():
    """The commands that the manual gives for the way back, until Keptn is installed again."""
    page = (ROOT / "docs/migration/keptn.md").read_text()
    block = page.partition("## Back to Keptn")[2].partition("```sh\n")[2].partition("```")[0]
    return block.replace("\\\n", " ").strip().splitlines()
