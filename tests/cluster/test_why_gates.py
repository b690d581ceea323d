"""``harbourmaster why pod`` of pods that wait, on a real control plane with a real controller."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    EVALUATIONS,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.cli.main import main
from helpers.flow.manifests import (
    app,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    of_kind,
    template,
)
from helpers.flow.namespace import GATE

pytestmark = [pytest.mark.gate, pytest.mark.cluster, pytest.mark.slow]

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
        assert gate["code"] == gate["detail"]["report"]["code"]
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


async def test_checks_that_failed_are_a_fault_with_what_may_be_done(flow, why):
    await flow.measure("capacity", "1")
    above = await flow.create(
        evaluation_definition("room", "capacity", ">5"),
        deployment("ledger", keptn("ledger", pre_deployment_evaluations="room")),
    )
    (pod,) = await flow.until_gated("ledger")
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0", "Failed")
    text, gate = await why(pod)
    assert (gate["state"], gate["code"]) == ("fault", "checks-failed")
    assert "Blocked: pre-deployment evaluations failed (room)" in text
    assert "capacity → 1 (>5): Failed" in text
    assert f"harbourmaster gate release {flow.namespace}/" in text
    (check,) = report(gate)["checks"]
    assert check["nextTry"] == ""
    assert check["ended"] >= check["since"]
    text, gate = await why(above)
    assert (gate["state"], gate["code"]) == ("fault", "checks-failed")
    assert "its pods: Blocked: pre-deployment evaluations failed (room)" in text


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


async def test_a_pod_whose_app_comes_first(flow, why):
    await flow.create(
        of_kind("KeptnAppContext", "shop", {"preDeploymentTasks": ["approve"]}),
        app("shop", "1.0", ("cart", "9.9")),
        deployment("cart", keptn("cart", app="shop")),
    )
    (pod,) = await flow.until_gated("cart")
    await flow.until_like(WORKLOAD_VERSIONS, "shop-cart-1.0", {})
    text, gate = await why(pod)
    assert gate["code"] == "waits-for-app"
    assert "no KeptnAppVersion has shop-cart in version 1.0 yet" in text
    assert "KeptnApp shop must list the workload in this version" in text
    entry = {"name": "cart", "version": "1.0"}
    await flow.change("KeptnApp", "shop", {"spec": {"workloads": [entry]}})
    await flow.until_all(
        APP_VERSIONS,
        {"spec": {"workloads": [entry]}, "status": {"currentPhase": "AppPreDeployTasks"}},
    )
    text, gate = await why(pod)
    assert gate["code"] == "waits-for-app"
    assert "the checks of the app shop: pre-deployment tasks" in text
    (check,) = report(gate)["checks"]
    assert (check["phase"], check["name"]) == ("AppPreDeployTasks", "approve")
    assert check["message"] == "KeptnTaskDefinition approve not found; waiting for it to be created"


async def test_an_orphan_and_one_that_was_let_go(flow, why):
    spec = template("lone", schedulingGates=[{"name": GATE}])["spec"]
    pod = await flow.create(of_kind("Pod", "lone", spec))
    await flow.until_told("GateOrphaned", "lone")
    text, gate = await why(pod)
    assert (gate["state"], gate["code"]) == ("fault", "orphaned")
    assert "it no longer names a workload" in text
    assert "GateOrphaned" in text
    await flow.create(deployment("ledger", keptn("ledger")))
    (pod,) = await flow.until_released("ledger")
    text, gate = await why(pod)
    assert (gate["state"], gate["code"]) == ("fine", "released")
    assert "its gate was removed" in text


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
