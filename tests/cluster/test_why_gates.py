"""Why pods wait: ``harbourmaster why pod`` and events, from a real controller."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import DEPLOYMENTS, EVALUATIONS, PODS, TASKS, WORKLOAD_VERSIONS
from harbourmaster.cli.doctor.checks.workloads import check_waits
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.main import main
from harbourmaster.lifecycle import gate_verdict
from helpers.flow.manifests import (
    app,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    of_kind,
    owner,
    template,
)
from helpers.flow.namespace import GATE

pytestmark = pytest.mark.gate


FOREIGN = "example.com/quota"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"


@pytest.fixture
def why(harbour, flow, capsys):
    """Ask why of a pod or its Deployment, as text and as the gate's part of the JSON."""
    kubeconfig = str(harbour.plane.kubeconfig)

    async def ask(obj):
        name = f"{flow.namespace}/{obj['metadata']['name']}"
        command = ["why", obj.get("kind", "Pod").lower(), name, "--kubeconfig", kubeconfig]
        capsys.readouterr()
        assert await asyncio.to_thread(main, command) == 0
        text = capsys.readouterr().out
        assert await asyncio.to_thread(main, [*command, "-o", "json"]) == 0
        sections = {
            section["name"]: section for section in json.loads(capsys.readouterr().out)["sections"]
        }
        gate = sections["gate"]
        # The same text, whatever is asked for.
        assert gate["code"] in {gate["detail"]["report"]["code"], "version-refused"}
        return text, gate

    return ask


def report(gate):
    return gate["detail"]["report"]


async def test_an_evaluation_that_fails_is_told_with_query_value_threshold_and_next_try(flow, why):
    await flow.measure("error-rate", "0.2")
    again = {"retries": 100, "retryInterval": "60s"}
    await flow.create(
        evaluation_definition("errors", "error-rate", "<=0.05", **again),
        deployment("ledger", keptn("ledger", pre_deployment_evaluations="errors")),
    )
    (pod,) = await flow.until_gated("ledger")
    await flow.until_all(EVALUATIONS, {"status": {"retryCount": 1}})
    text, gate = await why(pod)
    assert (gate["state"], gate["code"]) == ("waits", "checks-pending")
    assert "waits for pre-deployment evaluations: errors P" in gate["summary"]
    facts = report(gate)
    assert facts["version"] == "1.0"
    assert facts["versionObject"] == "ledger-ledger-1.0"
    assert facts["onExpiry"] == facts["deadline"] == ""
    (check,) = facts["checks"]
    (evaluation,) = flow.all(EVALUATIONS)
    assert check["object"] == evaluation["metadata"]["name"]
    assert (check["kind"], check["phase"]) == ("evaluation", "WorkloadPreDeployEvaluations")
    assert (check["value"], check["threshold"]) == ("0.2", "<=0.05")
    assert (check["tries"], check["retries"]) == (1, 100)
    assert re.fullmatch(TIME, check["nextTry"])
    assert check["nextTry"] == facts["nextTry"] > check["since"]
    (objective,) = check["objectives"]
    assert (objective["query"], objective["provider"]) == ("error-rate", "gauges")
    assert objective["state"] == "Failed"
    assert "error-rate → 0.2 (<=0.05): Failed" in text
    assert "value '0.2' did not meet objective '<=0.05'" in text
    assert re.search(rf"next try +{TIME}, in \d+s", text)
    # The processes of the tests have no Deployment that says how they run.
    assert gate["detail"]["deadlineUnknown"] in text
    assert "try 1 of 100" in text


async def test_a_task_that_runs_and_gates_of_others(harbour, flow, why):
    held = deployment("ledger", keptn("ledger", pre_deployment_tasks="migrate,absent"))
    held["spec"]["template"]["spec"]["schedulingGates"] = [{"name": FOREIGN}]
    await flow.create(container_task("migrate", "hang"), held)
    (pod,) = await flow.until_gated("ledger")
    await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    await flow.until_like(
        WORKLOAD_VERSIONS, "ledger-ledger-1.0", {"status": {"preDeploymentStatus": "Progressing"}}
    )
    text, gate = await why(pod)
    assert gate["code"] == "checks-pending"
    checks = {check["name"]: check for check in report(gate)["checks"]}
    assert checks["migrate"]["state"] == "Progressing"
    assert checks["migrate"]["object"].startswith("pre-migrate-")
    assert checks["absent"]["message"] == (
        "KeptnTaskDefinition absent not found; waiting for it to be created"
    )
    assert report(gate)["foreignGates"] == [FOREIGN]
    assert FOREIGN in text
    # Let go by hand, only theirs is left.
    release = ["gate", "release", f"{flow.namespace}/{pod['metadata']['name']}"]
    given = ["--kubeconfig", str(harbour.plane.kubeconfig), "--reason", "incident 4711"]
    assert await asyncio.to_thread(main, [*release, *given]) == 0
    text, gate = await why(pod)
    assert (gate["state"], gate["code"]) == ("waits", "foreign-gates-only")
    assert f"the gates of others: {FOREIGN}" in text
    await flow.let_end()


async def test_doctor_and_why_name_pods_that_nothing_will_release(flow, why, monkeypatch):
    monkeypatch.setattr(gate_verdict, "STUCK_AFTER", 0)
    foreign = {"app": "till", "version": "1.0", "workloadName": "till-till"}
    reference = {"uid": "none", "kind": "ReplicaSet", "name": "none"}
    await flow.create(
        of_kind(
            "KeptnWorkloadVersion", "till-till-1.0", {**foreign, "resourceReference": reference}
        ),
        app("shop", "1.0", ("cart", "2.0")),
        deployment("cart", keptn("cart", "1.0", app="shop"), replicas=2),
        deployment("till", keptn("till", "1.0")),
    )
    await flow.until_gated("cart", 2)
    await flow.until_like(WORKLOAD_VERSIONS, "shop-cart-1.0", {})
    await flow.until_told("CreateWorkloadVersionFailed")
    live = Installation(flow.client, "harbourmaster-system")
    told = [finding async for finding in check_waits(live) if flow.namespace in finding.subject]
    await live.close()
    cart, till = sorted(told, key=lambda finding: finding.subject)
    assert (cart.severity, till.severity) == ("warning", "warning")
    assert cart.subject == f"Deployment {flow.namespace}/cart"
    assert cart.text.startswith("2 pods (cart-")
    assert cart.text.endswith("no KeptnAppVersion has cart in version 1.0 yet")
    command = f"kubectl -n {flow.namespace} edit keptnapps shop"
    assert cart.remedy == f'list cart in KeptnApp shop with version "1.0": {command}'
    assert till.subject == f"Deployment {flow.namespace}/till"
    assert "KeptnWorkloadVersion till-till-1.0 is not generated" in till.text
    _, gate = await why({"kind": "Deployment", "metadata": {"name": "till"}})
    assert gate["code"] == "version-refused"
    assert "KeptnWorkloadVersion till-till-1.0 is not generated" in gate["summary"]


async def test_the_advised_command_helps_a_statefulset_after_a_failed_check(harbour, flow, why):
    """It replaces no pod that is not ready, so a rollback alone left the pod at its gate."""
    kubectl = partial(harbour.plane.kubectl, f"--namespace={flow.namespace}")
    await flow.create(
        container_task("failing", "fail"), owner("StatefulSet", "db", keptn("db", "1"), replicas=2)
    )
    await flow.until_released("db", 2)
    checks = {"keptn.sh/version": "2", "keptn.sh/pre-deployment-tasks": "failing"}
    template_patch = {"spec": {"template": {"metadata": {"annotations": checks}}}}
    await flow.change("StatefulSet", "db", template_patch)
    (held,) = await flow.until_gated("db")
    await flow.until_ended(WORKLOAD_VERSIONS, "db-db-2", "Failed")
    _, gate = await why(held)
    assert (gate["code"], "once this pod is deleted" in gate["next"]) == ("checks-failed", True)
    kubectl("rollout", "undo", "statefulset/db")
    command = f"kubectl -n {flow.namespace} delete pod db-1"
    event = await flow.until_told("GateBlocked", "db", note=lambda note: command in note)
    assert event["type"] == "Warning"
    _, gate = await why(held)
    assert (gate["code"], gate["next"]) == ("superseded", command)
    kubectl(*command.split()[3:])
    pods = await flow.until_released("db", 2)
    assert {pod["metadata"]["annotations"]["keptn.sh/version"] for pod in pods} == {"1"}


async def test_the_command_releases_a_pod_and_records_who_did_it(harbour, flow, capsys):
    spec = template("lone", schedulingGates=[{"name": GATE}])["spec"]
    pod = await flow.create(of_kind("Pod", "lone", spec))
    name = f"{flow.namespace}/lone"

    async def run(*arguments):
        command = ["gate", *arguments, f"--kubeconfig={harbour.plane.kubeconfig}"]
        return await asyncio.to_thread(main, command), capsys.readouterr()

    code, said = await run("list", "-n", flow.namespace)
    assert (code, name in said.out, "Blocked: " in said.out) == (0, True, True)
    release = ("release", name, "--reason", "incident 4711")
    code, said = await run(*release)
    who = said.out.strip().removeprefix(f"released {name} for ")
    assert (code, said.err, "unknown" in who) == (0, "", False)
    annotations = {"gates.harbourmaster.dev/released-by": who}
    released = {"metadata": {"annotations": annotations}, "spec": {"nodeName": bool}}
    await flow.until_like(PODS, "lone", released)
    event = await flow.until_told("GateReleased", "lone")
    assert event["note"] == f"released without its checks by {who}: incident 4711"
    assert event["regarding"]["uid"] == pod["metadata"]["uid"]
    code, said = await run(*release)
    assert code == 1
    assert "does not have the gate" in said.err


CHANGED = "registry.example.com/changed:2"


@pytest.fixture
def gate(harbour, capsys):
    """Return ``gate(kind, namespace, name)``: the section on the gate."""

    async def ask(kind, namespace, name):
        command = ["why", kind, f"{namespace}/{name}", "-o", "json"]
        kubeconfig = ["--kubeconfig", str(harbour.plane.kubeconfig)]
        capsys.readouterr()
        assert await asyncio.to_thread(main, [*command, *kubeconfig]) == 0
        sections = json.loads(capsys.readouterr().out)["sections"]
        return next(section for section in sections if section["name"] == "gate")

    return ask


@pytest.mark.full
async def test_an_image_that_changed_without_its_version_is_told(flow, client, gate):
    made = deployment("ledger", keptn("ledger"))
    await flow.create(made)
    await flow.until_released("ledger")
    assert (await gate("deployment", flow.namespace, "ledger"))["code"] == "released"
    (container,) = made["spec"]["template"]["spec"]["containers"]
    image = {"containers": [{**container, "image": CHANGED}]}
    patch = MergePatch({"spec": {"template": {"spec": image}}})
    await client.patch(DEPLOYMENTS, "ledger", patch, flow.namespace)
    facts = await gate("deployment", flow.namespace, "ledger")
    assert (facts["code"], facts["state"]) == ("version-not-raised", "fault")
    told = f"version 1.0 passed its checks with {container['image']} (ReplicaSet ledger-"
    assert facts["summary"].startswith(told)
    assert facts["summary"].endswith(f"and {CHANGED} starts without checks")


OURS = "harbourmaster.dev/"
HELD_BY = "gates.harbourmaster.dev/held-by"
AGAIN = {"retries": 100, "retryInterval": "60s"}


@pytest.fixture
def describe_wait(harbour, flow):
    """Wait for an event on a pod and on its Deployment; return what kubectl says of it on both."""
    kubectl = partial(harbour.plane.kubectl, f"--namespace={flow.namespace}")

    async def describe(name, reason):
        (pod,) = await flow.until_gated(name)
        lines = {}
        for kind, its_name in (("pod", pod["metadata"]["name"]), ("deployment", name)):
            await flow.until_told(reason, its_name)
            result = await asyncio.to_thread(kubectl, "describe", kind, its_name)
            text = " ".join(result.stdout.partition("\nEvents:")[2].split())
            command = f"run harbourmaster why {kind} {its_name} -n {flow.namespace}"
            assert command in text, text
            (line,) = re.findall(rf"(\w+ {reason}) \S+ {OURS}lifecycle (.*?); {command}", text)
            lines[kind] = ": ".join(line)
        assert lines["pod"] == lines["deployment"]
        await flow.until_told(reason, pod["metadata"]["name"])
        annotations = (await flow.until_gated(name))[0]["metadata"]["annotations"]
        return lines["pod"], annotations[HELD_BY]

    return describe


@pytest.mark.gate
async def test_a_missing_task_definition_is_said_on_the_pod_and_its_deployment(flow, describe_wait):
    await flow.create(deployment("ledger", keptn("ledger", pre_deployment_tasks="migrate")))
    line, version = await describe_wait("ledger", "GateDefinitionMissing")
    assert line == (
        "Warning GateDefinitionMissing: waits for pre-deployment task migrate: KeptnTaskDefinition "
        "migrate not found; waiting for it to be created"
    )
    assert version == "ledger-ledger-1.0"
    await flow.create(container_task("migrate"))
    await flow.until_released("ledger")


@pytest.mark.full
async def test_an_unmet_evaluation_is_said_with_its_value_and_next_try_and_then_as_blocked(
    flow, describe_wait
):
    await flow.measure("load", "3")
    await flow.create(
        evaluation_definition("room", "load", ">5"),
        evaluation_definition("rooms", "load", ">5", **AGAIN),
        deployment("blocked", keptn("blocked", pre_deployment_evaluations="room")),
        deployment("trying", keptn("trying", pre_deployment_evaluations="rooms")),
    )
    line, version = await describe_wait("blocked", "GateBlocked")
    assert line == (
        "Warning GateBlocked: Blocked: pre-deployment evaluation room failed and will not be "
        "retried: load is 3, must be >5"
    )
    assert version == "blocked-blocked-1.0"
    line, _ = await describe_wait("trying", "GateWaiting")
    assert re.fullmatch(
        "Normal GateWaiting: waits for pre-deployment evaluation rooms: load is 3, must be >5; "
        r"try 1 of 100, next try \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
        line,
    ), line
