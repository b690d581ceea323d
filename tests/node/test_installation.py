"""Parts of an installation that only a kubelet shows: pods, logs, tasks in containers."""

from __future__ import annotations

from helpers import node_objects as objects
from helpers.node import NAMESPACE, TOLERATION

PYTHON = """
import json, os, requests
data, context = json.loads(os.environ["DATA"]), json.loads(os.environ["KEPTN_CONTEXT"])
assert data["user"] == "ledger" and context["workloadName"], context
open("/tmp/scratch", "w").write("x")
"""
DENO = """
const data = JSON.parse(Deno.env.get("DATA")!);
const context = JSON.parse(Deno.env.get("KEPTN_CONTEXT")!);
if (data.user !== "ledger" || !context.workloadName) throw new Error("no context");
"""


def pods(node, place, app):
    return node.get("pods", f"--namespace={place}", f"--selector=app={app}")


def test_five_pods_run_ready_under_the_restricted_profile(node):
    namespace = node.get("namespace", NAMESPACE)
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    running = node.get("pods", f"--namespace={NAMESPACE}", "--field-selector=status.phase=Running")
    ready = [
        pod
        for pod in running
        if all(status["ready"] for status in pod["status"]["containerStatuses"])
    ]
    assert len(ready) == 5


def test_container_python_and_deno_tasks_pass_and_then_the_pods_run(node, place):
    parameters = {"parameters": {"map": {"user": "ledger"}}}
    node.apply(
        objects.shell_task(place, "container", 'echo "$KEPTN_CONTEXT"; id; sleep 1'),
        objects.task(place, "python", python={**parameters, "inline": {"code": PYTHON}}),
        objects.task(place, "deno", deno={**parameters, "inline": {"code": DENO}}),
        objects.deployment(
            place, "till", tasks=["container", "python", "deno"], after=["container"], replicas=2
        ),
    )
    node.wait("condition=Available", f"--namespace={place}", "deployment/till")
    jobs = node.get("jobs", f"--namespace={place}")
    assert len(jobs) >= 3
    assert all(job["status"].get("failed", 0) == 0 for job in jobs)


def test_a_failed_check_keeps_its_pod_gated(node, place):
    code = "raise SystemExit('the database is not migrated')"
    node.apply(
        objects.task(place, "fails", python={"inline": {"code": code}}),
        objects.deployment(place, "stall", tasks=["fails"]),
    )
    node.wait(
        "jsonpath={.status.preDeploymentStatus}=Failed",
        f"--namespace={place}",
        "keptnworkloadversion",
        "--all",
    )
    (pod,) = pods(node, place, "stall")
    assert pod["spec"]["schedulingGates"]
    assert "nodeName" not in pod["spec"]


def test_a_policy_reaches_the_pods_that_run(node, place):
    node.apply(objects.deployment(place, "tolerant", replicas=2))
    node.wait("condition=Available", f"--namespace={place}", "deployment/tolerant")
    tolerant = pods(node, place, "tolerant")
    assert len(tolerant) == 2
    for pod in tolerant:
        assert TOLERATION in {toleration.get("key") for toleration in pod["spec"]["tolerations"]}


def test_kubectl_logs_and_exec_reach_the_kubelet(node):
    deployment = "deployment/harbourmaster-webhook"
    logged = node.kubectl("logs", f"--namespace={NAMESPACE}", deployment).stdout
    assert '"event"' in logged
    user = node.kubectl(
        "exec",
        f"--namespace={NAMESPACE}",
        deployment,
        "--",
        "python",
        "-c",
        "import os; print(os.getuid())",
    )
    assert user.stdout.strip() == "65532"


def test_names_of_services_follow_without_a_restart(node, place):
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "ledger", "namespace": place},
        "spec": {"ports": [{"port": 80}]},
    }
    node.apply(
        service,
        objects.shell_task(place, "resolve", f"nslookup ledger.{place}.svc.cluster.local"),
        objects.deployment(place, "asks", tasks=["resolve"]),
    )
    node.wait("condition=Available", f"--namespace={place}", "deployment/asks")
    (job,) = node.get("jobs", f"--namespace={place}")
    assert job["status"]["succeeded"] == 1
