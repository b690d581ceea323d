"""Pods that wait for objects: how they go, and what ends, blocks or switches off their wait."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import NAMESPACES, PODS
from helpers.flow.manifests import (
    CHECKS,
    OUTCOME,
    WAITED,
    container_task,
    deployment,
    job,
    keptn,
    of_kind,
    owner,
    pod,
    service,
    stay_waiting,
    until_noted,
    until_waiting,
    waits,
)
from helpers.flow.namespace import gates
from helpers.patience import PATIENCE

pytestmark = pytest.mark.gate


NEVER_READY = {OUTCOME: "never-ready"}
RUNNING = {"phase": "Running"}
READY = {
    "status": {
        "conditions": [
            {"type": name, "status": "True", "lastTransitionTime": "2026-11-21T18:00:00Z"}
            for name in ("Initialized", "ContainersReady", "Ready", "PodScheduled")
        ]
    }
}


@pytest.fixture
def opts_in():
    return False


async def test_pods_wait_for_the_end_of_a_job_and_for_ready_replicas(flow):
    items = {
        "for-job": "job/migrate",
        "for-deployment": "deployment/db",
        "for-statefulset": "sts/queue",
        "for-daemonset": "daemonset/agent",
        "for-label": "pod/example.com/part=cache",
        "for-pod": "pod/cache",
        "for-service": "service/db",
        "for-configmap": "configmap/settings",
        "for-all": "job/migrate deployment/db, statefulset/queue ds/agent,svc/db cm/settings",
    }
    await flow.create(
        *(pod(name, item) for name, item in items.items()),
        deployment("web", waits("job/migrate")),
        deployment("heir", above=waits("job/migrate")),
        job("import", annotations=waits("job/migrate")),
        pod("free", "optional:job/none", "optional:pod/app=none"),
    )
    await flow.until_released("free")
    await flow.create(
        job("migrate", "hang"),
        deployment("db", labels=NEVER_READY),
        owner("StatefulSet", "queue", labels=NEVER_READY),
        owner("DaemonSet", "agent", labels=NEVER_READY),
        service("db", **{"example.com/part": "db"}),
        pod("cache", labels=NEVER_READY),
    )
    await flow.until_all(PODS, {"metadata": {"labels": NEVER_READY}, "status": RUNNING}, 6)
    await until_waiting(flow, *items, "web", "heir", "import")
    await stay_waiting(flow, *items, "web", "heir", "import")
    await flow.create(of_kind("ConfigMap", "settings"))
    await flow.until_released("for-configmap")
    await flow.let_end()
    for part in ("for-job", "web", "heir", "import"):
        await flow.until_released(part)
    await stay_waiting(flow, "for-all", "for-service", "for-label")
    for obj in flow.all(PODS, {"metadata": {"labels": NEVER_READY}}):
        await flow.change("Pod", obj["metadata"]["name"], READY, subresource="status")
    for part in items:
        await flow.until_released(part)


async def test_a_failed_job_blocks_until_a_new_one_of_its_name_completes(flow):
    await flow.create(job("migrate", "fail"), deployment("web", waits("job/migrate")))
    await until_waiting(flow, "web")
    (held,) = flow.pods("web")
    for name in ("web", held["metadata"]["name"]):
        note = await until_noted(flow, "GateBlocked", name, "job/migrate: failed: BackoffLimitExc")
        assert note.startswith("Blocked: job/migrate: failed: BackoffLimitExceeded: ")
    await stay_waiting(flow, "web")
    await flow.delete("Job", "migrate", propagation="Background")
    await stay_waiting(flow, "web")
    await flow.create(job("migrate"))
    await flow.until_released("web")


WAIT_FOR = "gates.harbourmaster.dev/wait-for"
ENABLED = "gates.harbourmaster.dev/enabled"
MISSING = "configmap/settings: does not exist"
RELEASED = "gates.harbourmaster.dev/released"


async def label(flow, value):
    """Set the label of the namespace that is about waits, or take it away."""
    patch = MergePatch({"metadata": {"labels": {WAIT_FOR: value}}})
    await flow.client.patch(NAMESPACES, flow.namespace, patch)


def annotations_of(obj):
    return obj["metadata"].get("annotations", {})


@pytest.mark.full
async def test_each_way_to_end_a_wait_at_its_time_out(flow, harbour):
    parts = ("keeps", "goes", "fails")
    for part, on_timeout in zip(parts, (None, "Release", "Fail"), strict=True):
        limits = {"timeout": "2s", "on_timeout": on_timeout}
        await flow.create(pod(part, "configmap/settings", limits=limits))
    (gone,) = await flow.until_released("goes")
    assert annotations_of(gone)[RELEASED] == "expired"
    for part, outcome in zip(
        parts, ("it keeps waiting", "it is released", "it stays blocked"), strict=True
    ):
        text = f"waited longer than 2s (gates.harbourmaster.dev/wait-timeout) for {MISSING}: "
        await until_noted(flow, None, part, text + outcome)
    await until_noted(flow, "GateBlocked", "fails", "it waited longer than 2s")
    await stay_waiting(flow, "keeps", "fails")
    assert annotations_of(flow.find(PODS, "fails"))[WAITED] == "timed-out"
    await flow.create(of_kind("ConfigMap", "settings"))
    await flow.until_released("keeps")
    await stay_waiting(flow, "fails")
    await asyncio.to_thread(harbour.installation.kill, "controller")
    await asyncio.to_thread(harbour.installation.restart, "controller")
    await stay_waiting(flow, "fails")


@pytest.mark.full
async def test_an_object_that_is_deleted_while_waited_for_is_missing(flow):
    await flow.create(
        job("migrate", "hang"),
        of_kind("ConfigMap", "settings"),
        pod("web", "job/migrate", "cm/settings"),
        pod("optional", "optional:job/migrate"),
    )
    await until_waiting(flow, "web", "optional")
    await flow.delete("ConfigMap", "settings")
    await flow.delete("Job", "migrate", propagation="Background")
    await flow.until_released("optional")
    await flow.create(job("migrate"))
    await until_noted(flow, "GateWaiting", "web", "cm/settings: does not exist")
    await stay_waiting(flow, "web")
    await flow.create(of_kind("ConfigMap", "settings"))
    await flow.until_released("web")


@pytest.mark.full
async def test_a_fault_in_the_annotation_warns_and_blocks_until_the_template_is_right(
    flow, harbour
):
    manifest = pod("bare", "jab/migrate", limits={"timeout": "1s", "on_timeout": "Release"})
    said = await asyncio.to_thread(
        harbour.plane.kubectl,
        "create",
        f"--namespace={flow.namespace}",
        "-f=-",
        stdin=json.dumps(manifest),
    )
    assert f"metadata.annotations[{WAIT_FOR}]: did you mean" in said.stderr
    await flow.create(deployment("web", waits("configmap/")), of_kind("ConfigMap", "settings"))
    await until_waiting(flow, "web", "bare")
    await until_noted(flow, "GateBlocked", "web", f"metadata.annotations[{WAIT_FOR}]")
    await until_noted(flow, "GateBlocked", "bare", '"jab" is not a kind')
    await stay_waiting(flow, "web", "bare")
    template = {"metadata": {"annotations": waits("configmap/settings")}}
    await flow.change("Deployment", "web", {"spec": {"template": template}})
    await flow.until_released("web")


@pytest.mark.full
async def test_a_namespace_whose_label_disables_waits_has_none(flow, harbour):
    await label(flow, "disabled")

    async def create_free():
        name = f"free-{uuid.uuid4().hex[:6]}"
        said = await asyncio.to_thread(
            harbour.plane.kubectl,
            "create",
            f"--namespace={flow.namespace}",
            "-f=-",
            stdin=json.dumps(pod(name, "configmap/settings")),
        )
        value = await flow.until(lambda: flow.find(PODS, name))
        return gates(value), said.stderr

    # The webhook learns of the label by a watch.
    while (answer := await create_free())[0]:
        pass
    assert "do not wait for objects" in answer[1]
    await label(flow, None)
    while not (await create_free())[0]:
        pass


@pytest.mark.full
async def test_a_namespace_that_requires_waits_is_enabled_until_it_does_not(flow):
    async def until_label(value):
        while True:
            raw = await flow.client.get(NAMESPACES, flow.namespace)
            if json.loads(bytes(raw))["metadata"].get("labels", {}).get(ENABLED) == value:
                return
            await asyncio.sleep(0.05)

    await label(flow, "required")
    async with asyncio.timeout(PATIENCE):
        await until_label("true")
    await flow.create(pod("web", "cm/settings"))
    await until_waiting(flow, "web")
    await label(flow, None)
    async with asyncio.timeout(PATIENCE):
        await until_label(None)
    await flow.create(of_kind("ConfigMap", "settings"))
    await flow.until_released("web")


@pytest.mark.full
async def test_without_the_feature_pods_do_not_wait(flow, harbour):
    harbour.installation.restart("webhook", ("--features=policies,gates",))
    try:
        await flow.create(pod("free", "configmap/settings"))
        value = await flow.until(lambda: flow.find(PODS, "free"))
        assert not gates(value)
    finally:
        harbour.installation.restart("webhook", ())
    await flow.create(pod("held", "configmap/settings"))
    await until_waiting(flow, "held")


@pytest.mark.full
@pytest.mark.parametrize("first", ["checks", "objects"])
async def test_with_checks_both_must_hold_and_the_event_says_both(harbour, client, first):
    async with harbour.flow(client, f"both-{first}") as flow:
        await flow.create(
            container_task("migrate", "hang"),
            deployment(
                "web", {**keptn("web", pre_deployment_tasks="migrate"), **waits("cm/settings")}
            ),
        )
        (held,) = await until_waiting(flow, "web")
        assert len(gates(held)) == 1
        assert CHECKS not in annotations_of(held)
        note = await until_noted(flow, "GateWaiting", "web", "pre-deployment task migrate")
        assert "it also waits for cm/settings: does not exist" in note
        if first == "checks":
            await flow.let_end()
            await until_noted(flow, "GateWaiting", "web", "waits for cm/settings")
            await stay_waiting(flow, "web")
            await flow.create(of_kind("ConfigMap", "settings"))
        else:
            await flow.create(of_kind("ConfigMap", "settings"))
            await stay_waiting(flow, "web")
            await flow.let_end()
        await flow.until_released("web")
        await flow.delete("ConfigMap", "settings")
