"""The documented way to leave policies to the API server, by the command, and back again."""

from __future__ import annotations

import json

import pytest

from harbourmaster.playground.installation import Installation
from harbourmaster.policies.cel_paths import PROBE_NAMESPACE
from helpers.cluster import plane_for
from helpers.command import harbourmaster
from helpers.flow.installation import FLAGS
from helpers.objects import cluster_policy
from helpers.patience import WAIT
from helpers.schemas import apply_definitions

pytestmark = pytest.mark.timeout(600)
POLICY = "clusterpodschedulingpolicy/ssd"
SSD = {"nodeSelector": {"example.com/disk": "ssd"}}
ACCOUNT = "serviceaccount/default"
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PROBE_NAMESPACE}}
KINDS = "mutatingadmissionpolicies,validatingadmissionpolicies"
BINDINGS = "mutatingadmissionpolicybindings,validatingadmissionpolicybindings"


@pytest.fixture(scope="module")
def installed_plane(request, tmp_path_factory):
    """An installation that the tests stop, and its control plane."""
    with plane_for(request, tmp_path_factory, "compiled") as plane:
        plane.add_nodes(1)
        with Installation(plane, arguments={"controller": FLAGS}) as installation:
            for document in (cluster_policy("ssd", pods={"app": "ssd"}, **SSD), NAMESPACE):
                plane.kubectl("apply", "-f=-", stdin=json.dumps(document))
            plane.kubectl("wait", "--for=create", ACCOUNT, "-n", PROBE_NAMESPACE, WAIT)
            yield plane, installation


def run_compile(plane, *options):
    return harbourmaster("compile", "--cluster", *options, kubeconfig=plane.kubeconfig)


def selector(plane, name, *options):
    """The node selector of a pod with the policy's label."""
    given = ("--image=registry.example.com/a:1", "--labels=app=ssd", "--output=json")
    return json.loads(plane.kubectl("run", name, *given, *options).stdout)["spec"].get(
        "nodeSelector"
    )


def test_policies_hold_while_nothing_of_ours_runs_and_come_back_to_the_webhook(installed_plane):
    plane, installation = installed_plane
    kubectl = plane.kubectl
    kubectl("annotate", POLICY, "harbourmaster.dev/enforcement=Both")
    applied = harbourmaster("compile", "apply", kubeconfig=plane.kubeconfig)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert "tried: 6 objects, 0 differ\nfinal: 4 created\n" in applied.stdout
    again = harbourmaster("compile", "apply", kubeconfig=plane.kubeconfig)
    assert "policies: 4 unchanged\nprobe: 5 unchanged\n" in again.stdout
    kubectl("annotate", "--overwrite", POLICY, "harbourmaster.dev/enforcement=APIServer")
    reason = "--for=jsonpath={.status.conditions[0].reason}"
    kubectl("wait", POLICY, f"{reason}=Enforced", WAIT)
    for name in ("webhook", "controller"):
        installation.end(name)
    assert selector(plane, "alone") == SSD["nodeSelector"]
    for name in ("webhook", "controller"):
        installation.restart(name)

    kubectl("annotate", "--overwrite", POLICY, "harbourmaster.dev/enforcement=Webhook")
    kubectl("wait", POLICY, f"{reason}=ModeIsWebhook", WAIT)
    early = run_compile(plane)
    assert (early.returncode, early.stdout) == (1, "")
    assert "ClusterPodSchedulingPolicy ssd must stay compiled: webhooks enforce it" in early.stderr
    kubectl("delete", BINDINGS, "-l", "harbourmaster.dev/compiled")
    kubectl("delete", KINDS, "-l", "harbourmaster.dev/compiled")
    assert selector(plane, "back") == SSD["nodeSelector"]


def test_uninstall_leaves_nothing_that_was_compiled(request, tmp_path_factory):
    with plane_for(request, tmp_path_factory, "uninstalled") as plane:
        apply_definitions(plane.kubectl)
        asking = cluster_policy("ssd", pods={"app": "ssd"}, **SSD)
        asking["metadata"]["annotations"] = {"harbourmaster.dev/enforcement": "Both"}
        plane.kubectl("create", "-f=-", stdin=json.dumps(asking))
        plane.kubectl("apply", "-f=-", stdin=run_compile(plane).stdout)
        assert compiled_names(plane)
        removed = harbourmaster("uninstall", "--yes", kubeconfig=plane.kubeconfig)
        assert removed.returncode == 0, removed.stderr
        plane.kubectl("wait", "--for=delete", f"namespace/{PROBE_NAMESPACE}", WAIT)
        assert compiled_names(plane) == []


def compiled_names(plane):
    """All that compile prints, as far as it is there."""
    kinds = f"{KINDS},{BINDINGS},namespaces"
    return plane.kubectl(
        "get", kinds, "-l", "harbourmaster.dev/compiled", "--output=name"
    ).stdout.split()


def test_the_webhook_leaves_what_is_tried_to_the_api_server(installed_plane):
    plane, _ = installed_plane
    # Without an admission policy nothing is set there, and only there, and only by a dry run.
    tried = "--dry-run=server", "-n", PROBE_NAMESPACE
    assert selector(plane, "tried", *tried) is None
    assert selector(plane, "real", "-n", PROBE_NAMESPACE) == SSD["nodeSelector"]
