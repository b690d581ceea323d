"""Versions that are released in stages, by the real controllers of their owners."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from harbourmaster.api.resources import PODS, WORKLOAD_VERSIONS
from harbourmaster.gates.stages import parse_stages
from helpers.flow.manifests import container_task, keptn, owner
from helpers.flow.namespace import gates

STAGES = "1, 50%, 100%"
STEADY = {
    "Deployment": {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}},
    "StatefulSet": {"podManagementPolicy": "Parallel"},
    "DaemonSet": {},
}
"""The fields by which the owner of each kind replaces one pod after the other."""
COUNT = 3
FAILS = "fail"
KILLS = 20
pytestmark = pytest.mark.gate


def staged(version="1.0", task="smoke", **more):
    """The annotations of a version with stages."""
    ours = {"stages": STAGES, "stage-tasks": task, **more}
    given = {f"gates.harbourmaster.dev/{key}": text for key, text in ours.items()}
    return {**keptn("cart", version), **given}


def cart(kind, version="1.0", **spec):
    replicas = {} if kind == "DaemonSet" else {"replicas": COUNT}
    return owner(kind, "cart", staged(version), **replicas, **STEADY[kind], **spec)


async def to_version(flow, kind, version, task="smoke"):
    template = {"metadata": {"annotations": staged(version, task)}}
    await flow.change(kind, "cart", {"spec": {"template": template}})


def of_version(flow, version):
    return [
        pod
        for pod in flow.pods("cart")
        if pod["metadata"]["annotations"].get("keptn.sh/version") == version
    ]


def released(flow, version):
    return [pod for pod in of_version(flow, version) if not gates(pod)]


def stage_of(flow, version="2.0"):
    obj = flow.find(WORKLOAD_VERSIONS, f"cart-cart-{version}") or {}
    return (obj.get("status") or {}).get("stage") or {}


def name_of(version):
    return f"cart-cart-{version}"


async def until_stage(flow, number, state, version="2.0"):
    def is_there():
        stage = stage_of(flow, version)
        return (stage.get("number"), stage.get("state")) == (number, state)

    await flow.until(is_there, why=lambda: f"not {state} in stage {number}: {flow.describe()}")


async def deployed(flow, kind, **spec):
    """Deploy the first version, whose pods are all released at once."""
    await flow.create(container_task("smoke"), container_task("broken", FAILS))
    await flow.create(cart(kind, **spec))
    await flow.until_ended(WORKLOAD_VERSIONS, name_of("1.0"))
    assert len(released(flow, "1.0")) == COUNT
    assert all("gates.harbourmaster.dev/stage" not in notes(pod) for pod in flow.pods("cart"))


async def held(flow, kind, **spec):
    """Deploy a second version whose first stage fails."""
    await deployed(flow, kind, **spec)
    await to_version(flow, kind, "2.0", "broken")
    await until_stage(flow, 1, "Held")
    assert len(released(flow, "2.0")) == 1


async def stay_held(flow, count=1):
    """Assert that no more pods are released, though the controller releases others."""
    await flow.pass_through()
    assert stage_of(flow)["state"] == "Held"
    assert len(released(flow, "2.0")) == count, flow.describe()


def uids_of(pods):
    return {pod["metadata"]["uid"] for pod in pods}


def notes(pod):
    return pod["metadata"]["annotations"]


def most_released(flow, version):
    """The numbers of released pods of a version in the order of its stages."""
    results = stage_of(flow, version)["results"]
    return [(result["number"], result["state"], result["released"]) for result in results]


async def promote(flow, number, version="2.0"):
    request = {
        "gates.harbourmaster.dev/promote": f"{number}/{uuid.uuid4().hex}",
        "gates.harbourmaster.dev/promote-by": "eve",
        "gates.harbourmaster.dev/promote-reason": "the task is wrong",
    }
    change = {"metadata": {"annotations": request}}
    await flow.change("KeptnWorkloadVersion", name_of(version), change)


def kill(harbour):
    assert harbour.new_faults() == []
    harbour.installation.kill("controller")


def launch(harbour):
    harbour.installation.launch("controller")
    harbour.installation.await_ready("controller")
    # A child of the former process complains that no process reads its answer.
    harbour.new_faults()


def assert_within_stages(flow, version="2.0"):
    """Assert that no pod was released when as many as allowed were, in the order of all writes."""
    stage, uids = None, set()
    for obj in flow.writes(PODS, WORKLOAD_VERSIONS):
        metadata = obj["metadata"]
        if metadata["name"] == name_of(version):
            stage = (obj.get("status") or {}).get("stage")
        annotations = metadata.get("annotations") or {}
        if "containers" not in obj["spec"] or annotations.get("keptn.sh/version") != version:
            continue
        if "deletionTimestamp" in metadata:
            uids.discard(metadata["uid"])
        elif not gates(obj) and metadata["uid"] not in uids:
            uids.add(metadata["uid"])
            assert stage is not None, metadata["name"]
            allowed = parse_stages(STAGES).allowance(stage["number"], COUNT)
            allowed = stage["allowed"] if stage["state"] == "Held" else allowed
            is_over = stage["state"] in {"Completed", "Skipped", "Refused"}
            assert is_over or len(uids) <= allowed, (metadata["name"], stage)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_a_second_version_is_released_stage_after_stage(flow, kind):
    await deployed(flow, kind)
    await to_version(flow, kind, "2.0")
    await flow.until_ended(WORKLOAD_VERSIONS, name_of("2.0"))
    assert most_released(flow, "2.0") == [(1, "Passed", 1), (2, "Passed", 2), (3, "Passed", 3)]
    stages = sorted(notes(pod)["gates.harbourmaster.dev/stage"] for pod in released(flow, "2.0"))
    assert stages == ["1", "2", "3"]
    assert flow.reasons(name_of("2.0")).count("WorkloadStageStarted") == 3
    assert_within_stages(flow)


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
async def test_a_stage_that_fails_is_held_until_a_person_releases_the_next_one(flow, kind):
    await held(flow, kind)
    (pod,) = released(flow, "2.0")
    uid = pod["metadata"]["uid"]
    await flow.delete("Pod", pod["metadata"]["name"])

    def is_replaced():
        pods = released(flow, "2.0")
        return pods and pods[0]["metadata"]["uid"] != uid

    await flow.until(is_replaced)
    if kind != "DaemonSet":
        await flow.change(kind, "cart", {"spec": {"replicas": 2 * COUNT}})
        await flow.until(lambda: len(flow.pods("cart")) >= 2 * COUNT)
    await stay_held(flow)
    assert flow.events(name_of("2.0"), reason="WorkloadStageHeld", type="Warning")
    await promote(flow, stage_of(flow)["of"] + 1)
    await flow.until_ended(WORKLOAD_VERSIONS, name_of("2.0"))
    assert {notes(pod)["keptn.sh/version"] for pod in flow.pods("cart")} == {"2.0"}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
@pytest.mark.full
async def test_an_undo_releases_the_pods_of_the_former_version_at_once(flow, harbour, kind):
    await held(flow, kind)
    harbour.plane.kubectl("rollout", "undo", f"{kind}/cart", f"--namespace={flow.namespace}")
    await flow.until(lambda: len(released(flow, "1.0")) == COUNT == len(flow.pods("cart")))
    await flow.until_ended(WORKLOAD_VERSIONS, name_of("2.0"), "Deprecated")
    # Deployed again, it starts with its first stage.
    await to_version(flow, kind, "2.0", "broken")
    progressing = {"status": {"status": "Progressing"}}
    await flow.until_like(WORKLOAD_VERSIONS, name_of("2.0"), progressing)
    await until_stage(flow, 1, "Held")
    assert len(released(flow, "2.0")) == 1


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
@pytest.mark.full
async def test_a_third_version_takes_the_place_of_one_that_is_held(flow, kind):
    await held(flow, kind)
    await to_version(flow, kind, "3.0")
    await flow.until_ended(WORKLOAD_VERSIONS, name_of("3.0"))
    await flow.until_ended(WORKLOAD_VERSIONS, name_of("2.0"), "Deprecated")
    assert len(released(flow, "3.0")) == COUNT
    assert stage_of(flow, "3.0")["state"] == "Completed"


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
@pytest.mark.full
async def test_another_controller_holds_as_well(flow, harbour, kind):
    await held(flow, kind)
    for _ in range(1):
        kill(harbour)
        (pod,) = released(flow, "2.0")
        await flow.delete("Pod", pod["metadata"]["name"])
        launch(harbour)
        await flow.until(lambda: len(released(flow, "2.0")) == 1)
        await stay_held(flow)
    assert all(stage["allowed"] == 1 for stage in history(flow) if stage["state"] == "Held")
    assert_within_stages(flow)


@pytest.mark.full
async def test_controllers_that_are_killed_on_the_way_keep_to_the_stages(flow, harbour):
    await deployed(flow, "Deployment")
    template = {"metadata": {"annotations": staged("2.0", **{"stage-pause": "15s"})}}
    await flow.change("Deployment", "cart", {"spec": {"template": template}})
    for number in range(KILLS):
        await asyncio.sleep(number % 5 / 2)
        kill(harbour)
        launch(harbour)
    await flow.until_ended(WORKLOAD_VERSIONS, name_of("2.0"))
    assert_within_stages(flow)


def history(flow):
    """The stages that the version had, in order."""
    versions = flow.history(WORKLOAD_VERSIONS, name_of("2.0"))
    return [obj["status"]["stage"] for obj in versions if (obj.get("status") or {}).get("stage")]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet"])
@pytest.mark.full
async def test_scaling_down_and_up_again_keeps_to_the_stage(flow, kind):
    await held(flow, kind)
    for replicas in (1, 6, 2, 4):
        await flow.change(kind, "cart", {"spec": {"replicas": replicas}})
        await flow.until(lambda replicas=replicas: len(flow.pods("cart")) in range(1, replicas + 2))
        await flow.pass_through()
        assert len(released(flow, "2.0")) <= 1, flow.describe()


@pytest.mark.full
async def test_pods_that_come_while_the_webhook_is_down_are_held_too(flow, harbour):
    await held(flow, "Deployment")
    harbour.installation.end("webhook")
    try:
        (pod,) = released(flow, "2.0")
        uid = pod["metadata"]["uid"]
        await flow.delete("Pod", pod["metadata"]["name"])
        await flow.until(lambda: uid not in uids_of(released(flow, "2.0")))
    finally:
        harbour.installation.launch("webhook")
        harbour.installation.await_answer()
    await flow.until(lambda: len(released(flow, "2.0")) == 1)
    await stay_held(flow)
    assert_within_stages(flow)


@pytest.mark.full
async def test_a_pause_counts_from_the_youngest_pod(flow):
    await deployed(flow, "Deployment")
    annotations = staged("2.0", **{"stage-pause": "4s"})
    template = {"metadata": {"annotations": annotations}}
    await flow.change("Deployment", "cart", {"spec": {"template": template}})
    await until_stage(flow, 1, "Paused")
    (pod,) = released(flow, "2.0")
    await flow.delete("Pod", pod["metadata"]["name"])
    await flow.until_ended(WORKLOAD_VERSIONS, name_of("2.0"))
    states = [stage["state"] for stage in history(flow) if stage["number"] == 1]
    assert states[:3] == ["Releasing", "Paused", "Releasing"]
    assert flow.find(PODS, pod["metadata"]["name"]) is None
