"""One workload's way through its phases, each told of in order."""

from __future__ import annotations

import itertools

import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    EVALUATIONS,
    JOBS,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
    WORKLOADS,
)
from harbourmaster.lifecycle import events
from helpers.flow.manifests import (
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    with_gate,
)
from helpers.flow.namespace import GATE, gates, phases
from helpers.patience import COLLECTED

pytestmark = pytest.mark.gate

CHECKS = {
    "pre_deployment_tasks": "migrate",
    "pre_deployment_evaluations": "capacity",
    "post_deployment_tasks": "smoke",
    "post_deployment_evaluations": "latency",
}
UNRESOLVED = {"gates.harbourmaster.dev/parent": "unresolved"}
APP_PHASES = tuple(phase for phase in events.APP_PHASES if phase != "PromotionTasks")
WORKLOAD_PHASES = tuple(events.WORKLOAD_PHASES)
SUCCEEDED = "Succeeded"
OURS = ("KeptnAppVersion", "KeptnWorkloadVersion")


def pairs(names):
    return [f"{name}{state}" for name in names for state in ("Started", "Finished")]


def version_with_status(flow, resource, name, **status):
    """The resource version with which an object had a status, as a point in the cluster's time."""
    versions = flow.history(resource, name)
    matching = [
        version for version in versions if status.items() <= version.get("status", {}).items()
    ]
    return int(matching[0]["metadata"]["resourceVersion"])


def version_of_release(flow, pod):
    """The resource version with which a pod lost its gates."""
    versions = flow.history(PODS, pod["metadata"]["name"])
    assert GATE in gates(versions[0])
    released = next(version for version in versions if not gates(version))
    return int(released["metadata"]["resourceVersion"])


def first_version(flow, resource, name):
    return int(flow.history(resource, name)[0]["metadata"]["resourceVersion"])


@pytest.fixture
async def checked_flow(flow):
    """The flow of a workload with all four kinds of checks, at its end."""
    await flow.measure("load", "10")
    await flow.create(
        container_task("migrate"),
        container_task("smoke"),
        evaluation_definition("capacity", "load", ">5"),
        evaluation_definition("latency", "load", "<50"),
        deployment("ledger", keptn("ledger", **CHECKS, metadata="commit=12, stage=dev")),
    )
    await flow.until_ended(APP_VERSIONS, "ledger-1.0-6b86b273")
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    await flow.until_told("AppCompletedFinished")
    await flow.until_told("WorkloadCompletedFinished")
    return flow


async def test_a_workload_passes_every_phase_and_its_pod_waits_for_those_before(checked_flow):
    flow = checked_flow
    version = flow.find(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    assert phases(version["status"]) == {
        "preDeploymentStatus": SUCCEEDED,
        "preDeploymentEvaluationStatus": SUCCEEDED,
        "deploymentStatus": SUCCEEDED,
        "postDeploymentStatus": SUCCEEDED,
        "postDeploymentEvaluationStatus": SUCCEEDED,
        "status": SUCCEEDED,
        "currentPhase": "Completed",
    }
    children = {}
    for phase, resource, definition, prefix in (
        ("preDeploymentTaskStatus", TASKS, "migrate", "pre-migrate-"),
        ("preDeploymentEvaluationTaskStatus", EVALUATIONS, "capacity", "pre-eval-capacity-"),
        ("postDeploymentTaskStatus", TASKS, "smoke", "post-smoke-"),
        ("postDeploymentEvaluationTaskStatus", EVALUATIONS, "latency", "post-eval-latency-"),
    ):
        (item,) = version["status"][phase]
        assert item["definitionName"] == definition
        assert item["status"] == SUCCEEDED
        assert item["name"].startswith(prefix)
        assert item["startTime"] <= item["endTime"]
        children[definition] = item["name"]
        assert flow.find(resource, item["name"]) is not None
    assert len(flow.all(TASKS)) == len(flow.all(EVALUATIONS)) == len(flow.all(JOBS)) == 2
    (pod,) = await flow.until_released("ledger")
    assert pod["metadata"]["annotations"]["keptn.sh/app"] == "ledger"
    assert (
        version_with_status(flow, TASKS, children["migrate"], status=SUCCEEDED)
        < first_version(flow, EVALUATIONS, children["capacity"])
        < version_with_status(flow, EVALUATIONS, children["capacity"], overallStatus=SUCCEEDED)
        < version_of_release(flow, pod)
        < first_version(flow, TASKS, children["smoke"])
        < version_with_status(flow, TASKS, children["smoke"], status=SUCCEEDED)
        < first_version(flow, EVALUATIONS, children["latency"])
    )
    assert version["spec"]["metadata"] == {"commit": "12", "stage": "dev"}
    (workload,) = flow.all(WORKLOADS)
    assert workload["metadata"]["name"] == "ledger-ledger"
    assert workload["spec"]["resourceReference"]["kind"] == "ReplicaSet"


async def test_each_phase_is_told_of_once_in_order_and_related_to_the_app(checked_flow):
    flow = checked_flow
    told = [event for event in flow.events() if event["regarding"]["kind"] in OURS]
    of_phases = [event for event in told if event["reason"].endswith(("Started", "Finished"))]
    by_kind = {
        kind: [phase["reason"] for phase in of_phases if phase["regarding"]["kind"] == kind]
        for kind in OURS
    }
    assert by_kind == {
        "KeptnAppVersion": [*pairs(APP_PHASES), "AppCompletedFinished"],
        "KeptnWorkloadVersion": [*pairs(WORKLOAD_PHASES), "WorkloadCompletedFinished"],
    }
    order = [event["reason"] for event in of_phases]
    ranks = [
        order.index(reason)
        for reason in (
            "AppDeployStarted",
            "WorkloadPreDeployTasksStarted",
            "WorkloadPostDeployEvaluationsFinished",
            "AppDeployFinished",
            "AppCompletedFinished",
        )
    ]
    # The app's own may be told a moment after the workload that it lets begin.
    ranks[:2] = sorted(ranks[:2])
    assert ranks == sorted(ranks)
    assert {of_phase["type"] for of_phase in of_phases} == {"Normal"}
    assert all("series" not in event for event in of_phases)
    assert {(event["related"]["kind"], event["related"]["name"]) for event in of_phases} == {
        ("KeptnApp", "ledger")
    }
    (message,) = [event["note"] for event in told if event["reason"] == "WorkloadDeployFinished"]
    assert message == (
        f"Workload Deployment: has finished / Namespace: {flow.namespace}, "
        "Name: ledger-ledger-1.0, Version: 1.0"
    )


async def test_a_healthy_workload_with_one_task_gives_25_events_and_no_warning(flow):
    await flow.create(
        container_task("migrate"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="migrate")),
    )
    await flow.until_ended(APP_VERSIONS, "ledger-1.0-6b86b273")
    await flow.until_told("AppCompletedFinished")
    await flow.until_told("WorkloadCompletedFinished")
    assert [event for event in flow.events() if event["type"] != "Normal"] == []
    ours = [
        event for event in flow.events() if event["reportingController"].startswith("harbourmaster")
    ]
    assert sorted(our["reason"] for our in ours) == sorted(
        [
            *pairs(APP_PHASES),
            *pairs(WORKLOAD_PHASES),
            "AppCompletedFinished",
            "AppPreDeployEvaluationsAppVersionNotFound",
            "ReconcileTaskStatusChanged",
            "ReconcileTaskStatusChanged",
            "WorkloadCompletedFinished",
        ]
    )


async def test_any_order_of_a_list_gives_the_same_and_a_slow_task_delays_no_other(flow):
    names = ("first", "second", "slow")
    await flow.create(
        container_task("first"), container_task("second"), container_task("slow", "hang")
    )
    orders = list(itertools.permutations(names))
    await flow.create(
        *(
            deployment(f"part-{at}", keptn(f"part-{at}", pre_deployment_tasks=", ".join(order)))
            for at, order in enumerate(orders)
        )
    )
    for name in ("first", "second"):
        ended = {"spec": {"taskDefinition": name}, "status": {"status": SUCCEEDED}}
        await flow.until_all(TASKS, ended, len(orders))
    await flow.stay_gated(*(f"part-{at}" for at in range(len(orders))))
    await flow.let_end(len(orders))
    for at, order in enumerate(orders):
        await flow.until_released(f"part-{at}")
        version = await flow.until_ended(WORKLOAD_VERSIONS, f"part-{at}-part-{at}-1.0")
        assert version["spec"]["preDeploymentTasks"] == list(order)
        items = version["status"]["preDeploymentTaskStatus"]
        assert sorted(item["definitionName"] for item in items) == sorted(names)
    assert len(flow.all(TASKS)) == len(flow.all(JOBS)) == len(names) * len(orders)


async def test_an_evaluation_that_waits_for_its_metric_delays_no_other(flow):
    await flow.measure("load", "10")
    await flow.create(
        evaluation_definition("met", "load", ">5"),
        evaluation_definition("late", "requests", ">5", retries=20),
        deployment("one", keptn("one", pre_deployment_evaluations="met,late")),
        deployment("other", keptn("other", pre_deployment_evaluations="late,met")),
    )
    met = {"spec": {"evaluationDefinition": "met"}, "status": {"overallStatus": SUCCEEDED}}
    await flow.until_all(EVALUATIONS, met, 2)
    late = {"spec": {"evaluationDefinition": "late"}, "status": {"overallStatus": "Progressing"}}
    await flow.until_all(EVALUATIONS, late, 2)
    await flow.stay_gated("one", "other")
    await flow.measure("requests", "7")
    for name in ("one", "other"):
        await flow.until_released(name)
        version = await flow.until_ended(WORKLOAD_VERSIONS, f"{name}-{name}-1.0")
        items = version["status"]["preDeploymentEvaluationTaskStatus"]
        assert sorted(item["definitionName"] for item in items) == ["late", "met"]
    assert len(flow.all(EVALUATIONS)) == 4


async def test_a_pod_gated_before_its_owner_was_known_waits_for_the_checks_of_the_owner(
    harbour, client
):
    """Admission leaves such pods where it has not seen their ReplicaSet; here it is not asked."""
    above = keptn("fleet", "3", pre_deployment_tasks="hanging")
    async with harbour.flow(client, "unresolved", enabled=False) as flow:
        await flow.create(
            container_task("hanging", "hang"),
            with_gate(deployment("fleet", UNRESOLVED, above=above)),
            with_gate(deployment("bare", UNRESOLVED)),
        )
        (free,) = await flow.until_released("bare")
        (held,) = await flow.until_gated("fleet")
        known = {"keptn.sh/app": "fleet", "keptn.sh/version": "3"}
        resolved = {"metadata": {"annotations": known}}
        held = await flow.until_like(PODS, held["metadata"]["name"], resolved)
        await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
        flow.assert_never_bound(held)
        await flow.let_end()
        (pod,) = await flow.until_released("fleet")
        for obj in (free, held, pod):
            assert UNRESOLVED.keys().isdisjoint(obj["metadata"]["annotations"])
        assert [obj["metadata"]["name"] for obj in flow.all(WORKLOADS)] == ["fleet-fleet"]


async def test_a_pod_without_annotations_is_released(harbour, client):
    """The labels of the pod hold everything that annotations could."""
    async with harbour.flow(client, "labelled", enabled=False) as flow:
        await flow.create(with_gate(deployment("labelled", labels=keptn("labelled", "1"))))
        (pod,) = await flow.until_released("labelled")
        assert "annotations" not in flow.history(PODS, pod["metadata"]["name"])[0]["metadata"]
        assert pod["metadata"]["annotations"] == {"keptn.sh/scheduling-gate-removed": "true"}
        await flow.until_ended(WORKLOAD_VERSIONS, "labelled-labelled-1")


async def test_a_deleted_workload_is_created_again_and_its_pods_still_wait(flow):
    await flow.create(
        container_task("failing", "fail"),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="failing")),
    )
    name = "ledger-ledger-1.0"
    before = await flow.until_ended(WORKLOAD_VERSIONS, name, "Failed")
    await flow.delete("KeptnWorkload", "ledger-ledger")
    another = {"metadata": {"uid": lambda uid: uid != before["metadata"]["uid"]}}
    await flow.until_like(WORKLOAD_VERSIONS, name, another, COLLECTED)
    await flow.until(lambda: flow.find(WORKLOADS, "ledger-ledger"))
    await flow.stay_gated("ledger")
