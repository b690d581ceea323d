"""Pods that wait for their checks in a second kube-scheduler, which asks the real controller."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import UTC, datetime, timedelta

import pytest
import trustme

from harbourmaster.api.resources import PODS, TASKS, WORKLOAD_VERSIONS
from harbourmaster.api.times import format_rfc3339, parse_rfc3339
from harbourmaster.cli.doctor.run import diagnose
from harbourmaster.cli.live.installation import Installation
from harbourmaster.cli.main import main
from harbourmaster.cli.migrate.findings import findings
from harbourmaster.cli.migrate.survey import read_observed
from helpers.flow.installation import HOME
from helpers.flow.manifests import (
    IMAGE,
    OUTCOME,
    WAITED,
    container_task,
    deployment,
    keptn,
    of_kind,
    waits,
)
from helpers.flow.namespace import gates
from helpers.scheduler import NAME, account, authority_of, configuration, second_scheduler

FLAGS = ("--scheduler-enabled=true",)
WEBHOOK = ("--gating=schedulerName",)
RELEASE_SECONDS = 1.0
GUARD = 10
POOL = "example.com/pool"
CLIENT = "harbourmaster-scheduler"
CLEAR = "gates.harbourmaster.dev/clear-failed-nodes"


@pytest.fixture
def controller_flags():
    return FLAGS


@pytest.fixture(scope="module")
def gating(harbour):
    """The webhooks give pods a scheduler in place of a gate; afterwards gates again."""
    harbour.installation.restart("webhook", WEBHOOK)
    yield
    harbour.installation.restart("webhook", ())


@pytest.fixture(scope="module")
def kubeconfig(harbour, gating):
    return account(harbour.plane)


@pytest.fixture
def port(harbour):
    return harbour.installation.workloads["controller"].extender_port


@pytest.fixture
def scheduler(harbour, client, kubeconfig, port):
    """The second scheduler, as shipped."""
    settings = configuration(port, authority_of(harbour.plane))
    with second_scheduler(harbour.plane, settings, kubeconfig):
        yield


def condition(pod):
    """The scheduler's condition of a pod."""
    conditions = pod["status"].get("conditions", ())
    return next(
        (
            condition.get("message", "")
            for condition in conditions
            if condition["type"] == "PodScheduled"
        ),
        "",
    )


def is_bound(pod):
    return "nodeName" in pod["spec"]


async def until_said(flow, part, text):
    """Wait until a scheduler says this of the one pod of an owner, which it did not place."""

    def waiting():
        return [pod for pod in flow.pods(part) if text in condition(pod)]

    (pod,) = await flow.until(
        waiting, why=lambda: f"{text!r} not in {[condition(pod) for pod in flow.pods(part)]}"
    )
    assert not is_bound(pod)
    return pod


async def until_bound(flow, part, count=1):
    """Wait until so many pods of an owner are on nodes; return them."""

    def waiting():
        pods = [pod for pod in flow.pods(part) if is_bound(pod)]
        return pods if len(pods) == count else None

    return await flow.until(waiting, why=lambda: [condition(pod) for pod in flow.pods(part)])


def reported_checks(pod):
    """The controller's last report on the pod."""
    return pod["metadata"]["annotations"].get("gates.harbourmaster.dev/checks", "")


async def touch(flow, pod):
    """Have a scheduler ask about a pod again."""
    note = {"metadata": {"annotations": {"example.com/touched": "yes"}}}
    await flow.change("Pod", pod["metadata"]["name"], note)


async def describe_pod(harbour, pod):
    """The description of a pod as a user reads it."""
    metadata = pod["metadata"]
    arguments = ("describe", "pod", metadata["name"], f"--namespace={metadata['namespace']}")
    return (await asyncio.to_thread(harbour.plane.kubectl, *arguments)).stdout


async def test_a_pod_that_waits_for_objects_is_scheduled_once_they_are_there(
    harbour, scheduler, flow
):
    checked = {**keptn("ledger"), **waits("cm/settings")}
    await flow.create(deployment("ledger", checked), deployment("bare", waits("cm/settings")))
    for part in ("ledger", "bare"):
        held = await until_said(flow, part, "waits for objects: cm/settings")
        assert gates(held) == []
        assert held["spec"]["schedulerName"] == NAME
        await touch(flow, held)
    await flow.create(of_kind("ConfigMap", "other"), deployment("free", waits("cm/other")))
    await until_bound(flow, "free")
    assert not any(is_bound(pod) for part in ("ledger", "bare") for pod in flow.pods(part))
    await flow.create(of_kind("ConfigMap", "settings"))
    for part in ("ledger", "bare"):
        (pod,) = await until_bound(flow, part)
        assert pod["metadata"]["annotations"][WAITED] == "met"


async def test_a_pod_waits_and_runs_as_soon_as_its_checks_passed(harbour, scheduler, flow):
    await flow.create(
        container_task("migrate", "hang"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="migrate")),
    )
    pod = await until_said(flow, "ledger", "waits for ")
    assert (pod["spec"]["schedulerName"], gates(pod)) == (NAME, [])
    pod = await until_said(flow, "ledger", "checks of ledger-ledger-1.0 until ")
    text = await describe_pod(harbour, pod)
    assert "waits for pre-deployment checks of ledger-ledger-1.0 until " in text
    assert ": migrate" in text
    # A pod that was asked about before is woken once for that.
    assert reported_checks(flow.pods("ledger")[0]) in {"", "checking"}
    await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    passed = asyncio.create_task(
        flow.until_like(
            WORKLOAD_VERSIONS, "ledger-ledger-1.0", {"status": {"preDeploymentStatus": "Succeeded"}}
        )
    )
    await flow.let_end()
    await passed
    begun = time.monotonic()
    await until_bound(flow, "ledger")
    seconds = time.monotonic() - begun
    print(f"\nfrom the checks' success to a node: {seconds * 1e3:.0f} ms")  # noqa: T201
    assert seconds <= RELEASE_SECONDS * GUARD


async def test_failed_checks_keep_a_pod_pending_and_their_node_is_recorded(
    harbour, scheduler, flow
):
    await flow.create(
        container_task("broken", "fail"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="broken")),
    )
    pod = await until_said(flow, "ledger", "pre-deployment checks of ledger-ledger-1.0 failed")
    text = await describe_pod(harbour, pod)
    assert "checks of ledger-ledger-1.0 failed: broken" in text
    assert "Status:           Pending" in text
    (ended,) = [pod for pod in flow.all(PODS) if "job-name" in pod["metadata"]["labels"]]
    failed = {"name": ended["spec"]["nodeName"], "reason": "task broken failed"}
    expected = {"status": {"failedNodes": [failed]}}
    version = await flow.until_like(WORKLOAD_VERSIONS, "ledger-ledger-1.0", expected)
    left = parse_rfc3339(version["status"]["failedNodes"][0]["expires"]) - datetime.now(UTC)
    assert timedelta(minutes=25) < left <= timedelta(minutes=30)


async def test_the_node_of_a_pod_that_does_not_start_is_recorded_and_cleared_by_the_command(
    harbour, scheduler, flow, capsys
):
    await flow.create(deployment("ledger", keptn("ledger"), labels={OUTCOME: "never-ready"}))
    (pod,) = await until_bound(flow, "ledger")
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    await flow.until_like(PODS, name, {"status": {"phase": "Running"}})
    container = {"name": "ledger", "image": IMAGE, "imageID": "", "ready": False, "restartCount": 1}
    container["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    status = {"status": {"containerStatuses": [container]}}
    await flow.change("Pod", name, status, subresource="status")
    failed = [{"name": node, "reason": "pod CrashLoopBackOff"}]
    await flow.until_like(
        WORKLOAD_VERSIONS, "ledger-ledger-1.0", {"status": {"failedNodes": failed}}
    )
    version = f"{flow.namespace}/ledger-ledger-1.0"
    clear = ["gate", "clear-nodes", version, f"--kubeconfig={harbour.plane.kubeconfig}"]
    assert await asyncio.to_thread(main, clear) == 0
    said = f"{version}: the controller will clear the failed nodes {node}\n"
    assert said in capsys.readouterr().out
    cleared = {
        "metadata": {"annotations": {CLEAR: lambda mark: mark not in {None, "wanted"}}},
        "status": {"failedNodes": lambda nodes: not nodes},
    }
    cleared_version = await flow.until_like(WORKLOAD_VERSIONS, "ledger-ledger-1.0", cleared)
    assert parse_rfc3339(cleared_version["metadata"]["annotations"][CLEAR]) <= datetime.now(UTC)


async def test_pods_in_our_scheduler_are_no_leftovers_of_keptn_and_the_command_releases_them(
    harbour, scheduler, client, flow, capsys
):
    await flow.create(
        container_task("endless", "hang"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="endless")),
    )
    pod = await until_said(flow, "ledger", "checks of ledger-ledger-1.0 until ")
    mine = f"pod {pod['metadata']['name']} in namespace {flow.namespace}"
    observed = await read_observed(Installation(client, HOME))
    assert mine not in {finding.object for finding in findings(observed)}
    report = await diagnose(client, HOME)
    assert mine not in {finding.subject for finding in report.findings}
    name = f"{flow.namespace}/{pod['metadata']['name']}"
    kubeconfig = f"--kubeconfig={harbour.plane.kubeconfig}"
    assert await asyncio.to_thread(main, ["gate", "list", "-n", flow.namespace, kubeconfig]) == 0
    assert name in capsys.readouterr().out
    release = ["gate", "release", name, "--reason", "incident 4711", kubeconfig]
    assert await asyncio.to_thread(main, release) == 0
    (pod,) = await until_bound(flow, "ledger")
    assert pod["metadata"]["annotations"]["gates.harbourmaster.dev/released"] == "by-hand"
    await flow.until_told("GateReleased")


@pytest.mark.parametrize("controller_flags", [(*FLAGS, "--scheduler-pre-check-deadline-seconds=3")])
async def test_after_the_deadline_it_says_so_and_late_checks_still_release(
    harbour, scheduler, flow
):
    await flow.create(
        container_task("endless", "hang"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="endless")),
    )
    pod = await until_said(flow, "ledger", "; check again later")
    assert "were not done by " in await describe_pod(harbour, pod)
    await flow.let_end()
    await until_bound(flow, "ledger")


async def create_passed(flow, **template):
    """A workload whose one pod runs; the name of its version, and the pod."""
    made = deployment("ledger", keptn("ledger"))
    made["spec"]["template"]["spec"] |= template
    await flow.create(made)
    (pod,) = await until_bound(flow, "ledger")
    version = "ledger-ledger-1.0"
    await flow.until_ended(WORKLOAD_VERSIONS, version)
    return version, pod


async def fail_on(flow, version, node, seconds):
    """Record that a version failed on a node; the time at which that expires."""
    end = format_rfc3339(datetime.now(UTC) + timedelta(seconds=seconds))
    failed = {"name": node, "reason": "task smoke failed", "expires": end}
    status = {"status": {"failedNodes": [failed]}}
    await flow.change("KeptnWorkloadVersion", version, status, subresource="status")
    return end


async def scale(flow, replicas):
    await flow.change("Deployment", "ledger", {"spec": {"replicas": replicas}})


async def test_a_failed_node_is_avoided_though_it_is_preferred(harbour, scheduler, flow):
    node = json.loads(harbour.plane.kubectl("get", "nodes", "--output=json").stdout)["items"][0]
    name = node["metadata"]["name"]
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [name]}
    wish = {"weight": 100, "preference": {"matchExpressions": [term]}}
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}
    version, pod = await create_passed(flow, affinity=affinity)
    assert pod["spec"]["nodeName"] == name
    await fail_on(flow, version, name, 600)
    await scale(flow, 3)
    pods = await until_bound(flow, "ledger", 3)
    assert [pod["spec"]["nodeName"] for pod in pods].count(name) == 1


async def test_a_failed_node_is_used_again_when_it_expires(harbour, scheduler, flow):
    name = harbour.plane.kubectl("get", "nodes", "--output=name").stdout.split()[0]
    node = name.partition("/")[2]
    version, _ = await create_passed(flow, nodeSelector={"kubernetes.io/hostname": node})
    end = await fail_on(flow, version, node, 8)
    await scale(flow, 2)
    text = f"task smoke failed on this node before, avoided until {end}"

    def refused_pods():
        return [pod for pod in flow.pods("ledger") if text in condition(pod)]

    (pod,) = await flow.until(refused_pods)
    assert text in await describe_pod(harbour, pod)
    pods = await until_bound(flow, "ledger", 2)
    assert {pod["spec"]["nodeName"] for pod in pods} == {node}
    assert format_rfc3339(datetime.now(UTC)) >= end


async def test_without_a_controller_nothing_is_scheduled_and_then_everything_goes_on(
    harbour, scheduler, flow
):
    await create_passed(flow)
    installation = harbour.installation
    await asyncio.to_thread(installation.end, "controller")
    try:
        await scale(flow, 2)

        def refused_pods():
            return [pod for pod in flow.pods("ledger") if "connection refused" in condition(pod)]

        (pod,) = await flow.until(refused_pods)
        assert not is_bound(pod)
        assert "connection refused" in await describe_pod(harbour, pod)
    finally:
        await asyncio.to_thread(installation.launch, "controller")
        await asyncio.to_thread(installation.await_ready, "controller")
    await until_bound(flow, "ledger", 2)


def full(node):
    """A pod that takes all of a node but a little, of no importance."""
    return of_kind("Pod", "settler", big(node))


def big(node):
    resources = {"requests": {"cpu": "20"}}
    container = {"name": "ledger", "image": IMAGE, "resources": resources}
    return {"containers": [container], "nodeSelector": {"kubernetes.io/hostname": node}}


async def test_on_a_full_node_a_waiting_pod_of_high_priority_evicts_nobody(
    harbour, client, kubeconfig, port, flow
):
    plane = harbour.plane
    (node,) = await asyncio.to_thread(plane.add_nodes, 1, {POOL: "full"})
    important = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "important"},
        "value": 1000,
    }
    plane.kubectl("apply", "--filename=-", stdin=json.dumps(important))
    made = deployment("ledger", keptn("ledger", pre_deployment_tasks="endless"))
    made["spec"]["template"]["spec"] |= {**big(node), "priorityClassName": "important"}
    settler = full(node)
    try:
        await flow.create(container_task("endless", "hang"), settler)
        await flow.until_like(PODS, "settler", {"spec": {"nodeName": node}})
        authority = authority_of(plane)
        asked = 'harbourmaster_extender_answers_total{outcome="waits",verb="preempt"}'
        before = harbour.metrics().get(asked, 0)
        with second_scheduler(plane, configuration(port, authority), kubeconfig):
            await flow.create(made)
            await until_said(flow, "ledger", "Insufficient cpu")
            while harbour.metrics().get(asked, 0) == before:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.05)
            await until_told(flow, "ledger")
            assert "deletionTimestamp" not in flow.find(PODS, "settler")["metadata"]
        # And it would, by a scheduler that does not ask about that.
        unasked = configuration(port, authority, preemptVerb=None)
        with second_scheduler(plane, unasked, kubeconfig):
            await flow.until(lambda: flow.find(PODS, "settler") is None)
    finally:
        await asyncio.to_thread(plane.kubectl, "delete", "node", node)


async def until_told(flow, part):
    """Have a scheduler ask about a pod again, and wait for the event."""
    (pod,) = flow.pods(part)
    await touch(flow, pod)
    await flow.until_told("FailedScheduling", pod["metadata"]["name"])


def pod_of_scheduler(name, annotations=None):
    """A pod that names the scheduler itself, of no owner."""
    spec = {"schedulerName": NAME, "containers": [{"name": "ledger", "image": IMAGE}]}
    return of_kind("Pod", name, spec, annotations=annotations)


async def test_a_pod_without_metadata_passes_and_one_without_a_version_waits(
    harbour, scheduler, flow
):
    await flow.create(pod_of_scheduler("tracked", keptn("tracked")), pod_of_scheduler("free"))
    await flow.until_like(PODS, "free", {"spec": {"nodeName": bool}})
    text = "waits for KeptnWorkloadVersion tracked-tracked-1.0, which is not there yet"
    await flow.until(lambda: text in condition(flow.find(PODS, "tracked") or {"status": {}}))
    assert not is_bound(flow.find(PODS, "tracked"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The authority of clients, and a certificate and key of the scheduler."""
    folder = tmp_path_factory.mktemp("clients")
    authority = trustme.CA()
    issued = authority.issue_cert("scheduler.example", common_name=CLIENT)
    authority.cert_pem.write_to_path(str(folder / "ca.crt"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    issued.private_key_pem.write_to_path(str(folder / "tls.key"))
    return folder


@pytest.mark.claim("W13")
async def test_pods_are_placed_by_a_scheduler_with_a_certificate_only(
    harbour, flow, kubeconfig, folder, port
):
    flags = (f"--scheduler-client-ca={folder / 'ca.crt'}", f"--scheduler-client-cn={CLIENT}")
    await asyncio.to_thread(harbour.use, (*FLAGS, *flags))
    settings = configuration(port, authority_of(harbour.plane))

    def pods():
        return flow.pods("ledger")

    def messages():
        conditions = [
            condition for pod in pods() for condition in pod["status"].get("conditions", ())
        ]
        return [condition.get("message", "") for condition in conditions]

    with second_scheduler(harbour.plane, settings, kubeconfig):
        await flow.create(deployment("ledger", keptn("ledger")))
        await flow.until(
            lambda: any("/scheduler/filter" in message for message in messages()), why=messages
        )
        assert not any("nodeName" in pod["spec"] for pod in pods())
    pair = {"certFile": str(folder / "tls.crt"), "keyFile": str(folder / "tls.key")}
    settings["extenders"][0]["tlsConfig"] |= pair
    with second_scheduler(harbour.plane, settings, kubeconfig):
        await flow.until(lambda: any("nodeName" in pod["spec"] for pod in pods()), why=messages)
