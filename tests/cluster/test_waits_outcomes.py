"""Waits that end otherwise, or never: time-outs, cycles, faults, and what switches them off."""

from __future__ import annotations

import asyncio
import json
import uuid

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import NAMESPACES, PODS
from helpers.flow.manifests import (
    CHECKS,
    WAITED,
    container_task,
    deployment,
    job,
    keptn,
    of_kind,
    pod,
    service,
    stay_waiting,
    until_noted,
    until_waiting,
    waits,
)
from helpers.flow.namespace import gates
from helpers.patience import PATIENCE

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

WAIT_FOR = "gates.harbourmaster.dev/wait-for"
ENABLED = "gates.harbourmaster.dev/enabled"
MISSING = "configmap/settings: does not exist"
RELEASED = "gates.harbourmaster.dev/released"


@pytest.fixture
def opts_in():
    return False


async def label(flow, value):
    """Set the label of the namespace that is about waits, or take it away."""
    patch = MergePatch({"metadata": {"labels": {WAIT_FOR: value}}})
    await flow.client.patch(NAMESPACES, flow.namespace, patch)


def annotations_of(obj):
    return obj["metadata"].get("annotations", {})


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


async def test_deployments_that_wait_for_each_other_are_told_so(flow):
    await flow.create(
        deployment("a", waits("deployment/b")), deployment("b", waits("deployment/a"))
    )
    for name in ("a", "b"):
        note = await until_noted(flow, "GateBlocked", name, "a cycle of waits")
        assert "deployment/a" in note
        assert "deployment/b" in note
    await stay_waiting(flow, "a", "b")


async def test_a_cycle_through_a_service_is_told(flow):
    await flow.create(
        service("front", **{"example.com/part": "web"}),
        deployment("web", waits("deployment/db")),
        deployment("db", waits("service/front")),
    )
    for name in ("web", "db"):
        await until_noted(flow, "GateBlocked", name, "a cycle of waits")
    await stay_waiting(flow, "web", "db")


async def test_a_missing_object_is_told_with_the_name_that_was_meant(flow):
    await flow.create(job("migrate"), pod("web", "job/migrat", "cm/other"))
    note = await until_noted(flow, "GateWaiting", "web", "job/migrat: does not exist")
    assert 'did you mean "migrate"' in note
    assert "cm/other: does not exist" in note


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


async def test_a_namespace_whose_label_disables_waits_has_none(flow, harbour):
    await label(flow, "disabled")

    async def created():
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
    while (answer := await created())[0]:
        pass
    assert "do not wait for objects" in answer[1]
    await label(flow, None)
    while not (await created())[0]:
        pass


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
