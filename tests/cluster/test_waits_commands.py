"""``why`` and ``gate list`` of pods that wait for objects, and controllers that die meanwhile."""

from __future__ import annotations

import asyncio
import json
import re
from functools import partial

import pytest

from harbourmaster.api.resources import JOBS
from harbourmaster.cli.main import main
from harbourmaster.controller.lifecycle.wait_watches import LINGER
from helpers import rights
from helpers.flow.manifests import (
    deployment,
    job,
    of_kind,
    pod,
    service,
    stay_waiting,
    until_noted,
    until_waiting,
    waits,
)
from helpers.patience import PATIENCE

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
def opts_in():
    return False


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


async def die(harbour):
    await asyncio.to_thread(harbour.installation.kill, "controller")


async def rise(harbour):
    await asyncio.to_thread(harbour.installation.launch, "controller")
    await asyncio.to_thread(harbour.installation.await_ready, "controller")


def ended_job(name):
    """A Job that has ended, as ``until_like`` takes it."""
    return JOBS, name, {"status": {"succeeded": 1}}


async def test_one_watch_by_kind_serves_fifty_pods_and_ends_with_the_last(flow, harbour):
    def watches():
        """The open watches of the API server, by kind."""
        text = harbour.plane.kubectl("get", "--raw=/metrics").stdout
        samples = re.findall(
            r'^apiserver_longrunning_requests\{(.*verb="WATCH".*)\} (\S+)$', text, re.MULTILINE
        )
        counts = {"jobs": 0.0, "statefulsets": 0.0, "services": 0.0}
        for labels, value in samples:
            kind = re.search(r'resource="([^"]*)"', labels)[1]
            if kind in counts and 'scope="namespace"' in labels:
                counts[kind] += float(value)
        return counts

    async def until_more(**more):
        expected = {kind: before[kind] + more.get(kind, 0) for kind in before}
        counts = None
        async with asyncio.timeout(LINGER + PATIENCE):
            # Changes of metrics wake nothing.
            while counts != expected:
                await asyncio.sleep(0.1)
                counts = await asyncio.to_thread(watches)

    # Watches of earlier tests would linger, and end meanwhile.
    await asyncio.to_thread(harbour.installation.restart, "controller")
    before = await asyncio.to_thread(watches)
    names = [f"p{number}" for number in range(50)]
    await flow.create(
        *(pod(name, f"statefulset/s{index % 7}", "svc/db") for index, name in enumerate(names))
    )
    await until_waiting(flow, *names)
    await until_more(statefulsets=1, services=1)
    for name in names:
        await flow.delete("Pod", name)
    await until_more()


@pytest.mark.parametrize("moment", ["admitted", "watched", "told", "half", "ended", "timed-out"])
async def test_a_controller_may_die_at_any_moment(flow, harbour, moment):
    limits = {"timeout": "1s", "on_timeout": "Fail"} if moment == "timed-out" else {}
    parts = ["web", *(f"bare-{number}" for number in range(8))]
    await flow.create(
        deployment("web", waits("job/migrate", "cm/settings", **limits)),
        *(pod(name, "job/migrate", "cm/settings", limits=limits) for name in parts[1:]),
    )
    if moment == "admitted":
        await die(harbour)
    await until_waiting(flow, *parts)
    if moment == "watched":
        await stay_waiting(flow, "web")
        await die(harbour)
    if moment == "told":
        await until_noted(flow, "GateWaiting", "web", "job/migrate: does not exist")
        await die(harbour)
    await flow.create(job("migrate"), of_kind("ConfigMap", "other"))
    await flow.until_like(*ended_job("migrate"))
    if moment == "half":
        await die(harbour)
    if moment == "timed-out":
        await until_noted(flow, None, "bare-0", "it stays blocked")
        await die(harbour)
    await flow.create(of_kind("ConfigMap", "settings"))
    if moment == "ended":
        await die(harbour)
    await rise(harbour)
    if moment == "timed-out":
        await stay_waiting(flow, "bare-0")
        return
    for part in parts:
        await flow.until_released(part)
