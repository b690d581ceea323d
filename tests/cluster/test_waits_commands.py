"""Output of ``harbourmaster why`` and ``gate list`` for pods that wait for objects."""

from __future__ import annotations

import asyncio
import json
from functools import partial

import pytest

from harbourmaster.cli.main import main
from helpers import rights
from helpers.flow.manifests import deployment, job, pod, service, until_noted, until_waiting, waits

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

NEAR = 'does not exist: did you mean "database"?'
CYCLE = "a cycle of waits: deployment/one -> deployment/two -> deployment/one"
TOLD = {
    "pending": "waits for job/migrate: is not complete",
    "missing": f"waits for deployment/databas: {NEAR}",
    "silent": "waits for service/queue: has no ready endpoint",
    "failed": "Blocked: job/seed: failed: BackoffLimitExceeded",
    "one": f"Blocked: {CYCLE}",
}


@pytest.fixture
async def flow(request, harbour, client):
    """A namespace that asked for no gates."""
    async with harbour.flow(client, request.node.name, enabled=False) as flow:
        yield flow


@pytest.fixture
def run(flow, capsys):
    """Return a function that runs a command in the namespace: the exit code and both streams."""

    async def start(kubeconfig, *words):
        capsys.readouterr()
        command = [*words, "-n", flow.namespace, "--kubeconfig", str(kubeconfig)]
        code = await asyncio.to_thread(main, command)
        return code, *capsys.readouterr()

    return start


async def test_why_and_the_list_tell_what_each_pod_waits_for(harbour, flow, run):
    await flow.create(
        job("migrate", "hang"),
        job("seed", "fail"),
        deployment("database"),
        service("queue"),
        pod("pending", "job/migrate"),
        pod("missing", "deployment/databas"),
        pod("silent", "service/queue"),
        pod("failed", "job/seed"),
        deployment("one", waits("deployment/two")),
        deployment("two", waits("deployment/one")),
    )
    held = [*await until_waiting(flow, *TOLD, "two")]
    names = dict(zip(TOLD, (pod["metadata"]["name"] for pod in held), strict=False))
    await until_noted(flow, "GateBlocked", names["failed"], "job/seed: failed")
    kubeconfig = harbour.plane.kubeconfig
    code, out, err = await run(kubeconfig, "gate", "list", "-o", "json")
    assert (code, err) == (0, "")
    listed = {load["pod"]: load["waitsFor"] for load in json.loads(out)}
    for part, text in TOLD.items():
        code, out, _ = await run(kubeconfig, "why", "pod", names[part])
        assert (code, text in out) == (0, True), out
        assert text.removeprefix("waits for ").removeprefix("Blocked: ") in listed[names[part]]
    out = (await run(kubeconfig, "why", "deployment", "one"))[1]
    assert f"its pods: Blocked: {CYCLE}" in out
    assert "object  deployment/two: Pending: " in out


async def test_who_may_not_read_an_object_is_told_so(harbour, flow, run, tmp_path):
    await flow.create(job("migrate", "hang"), pod("pending", "job/migrate, configmap/none"))
    await until_waiting(flow, "pending")
    kubectl = partial(harbour.plane.kubectl, f"--namespace={flow.namespace}")
    readable = "pods,configmaps,keptnworkloadversions.lifecycle.keptn.sh"
    kubectl("create", "role", "reader", "--verb=get,list", f"--resource={readable}")
    account = f"--serviceaccount={flow.namespace}:default"
    kubectl("create", "rolebinding", "reader", "--role=reader", account)
    token = kubectl("create", "token", "default").stdout.strip()
    kubeconfig = tmp_path / "reader.yaml"
    kubeconfig.write_text(rights.kubeconfig(harbour.plane.kubeconfig, token=token))
    lacks = f"missing permission to get jobs.batch in namespace {flow.namespace}"
    code, out, _ = await run(kubeconfig, "why", "pod", "pending")
    assert (code, f"job/migrate: Pending: could not be read: {lacks}\n" in out) == (0, True)
    assert "configmap/none: Pending: does not exist\n" in out
    code, out, err = await run(kubeconfig, "gate", "list")
    assert (code, err) == (1, f"harbourmaster: job/migrate could not be read: {lacks}\n")
    assert f"job/migrate: could not be read: {lacks}; configmap/none: does not exist" in out
