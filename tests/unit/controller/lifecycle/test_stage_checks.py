"""The checks of a stage are children of its version, and a failed one holds the stage."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from harbourmaster.api.resources import (
    ANALYSES,
    ANALYSIS_DEFINITIONS,
    APP_VERSIONS,
    DAEMON_SETS,
    EVALUATION_DEFINITIONS,
    EVALUATIONS,
    PODS,
    REPLICA_SETS,
    TASK_DEFINITIONS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from harbourmaster.controller.lifecycle.staged_releases import StagedPod
from harbourmaster.controller.lifecycle.workload_versions import WorkloadVersionReconciler
from harbourmaster.kube.errors import ForbiddenError
from harbourmaster.lifecycle.model import AppVersionStatus, ResourceReference
from helpers.fake_store import StatusError
from helpers.gated import keptn, owner_ref, pod
from helpers.phased import NOW, STAMP, app_version, workload_version
from helpers.signals import RecordedSignals
from helpers.simulated_server import (
    Mirrored,
    Server,
    evaluation_definition,
    owner,
    task_definition,
)

NAME = "shop-cart-2.0"
ABOVE = (("Deployment", "cart"),)
CHECKS = {
    "stage_tasks": ("smoke",),
    "stage_evaluations": ("load",),
    "stage_analyses": ("error-rate",),
}
DEFINITION = {"metadata": {"name": "error-rate"}, "spec": {"objectives": []}}


class Clock:
    now = NOW

    def __call__(self):
        return self.now


@pytest.fixture
def server():
    fake_server = Server()
    passed = {
        "pre_deployment_status": "Succeeded",
        "pre_deployment_evaluation_status": "Succeeded",
    }
    app = app_version("shop-1.0-6b86b273", [("cart", "2.0")], AppVersionStatus(**passed))
    metadata = replace(app.metadata, creation_timestamp=STAMP)
    fake_server.put(APP_VERSIONS, replace(app, metadata=metadata))
    fake_server.put(TASK_DEFINITIONS, task_definition("smoke"))
    fake_server.put(EVALUATION_DEFINITIONS, evaluation_definition("load"))
    for name, uid, revision in (("cart-1", "rs-1", "2"), ("cart-0", "rs-0", "1")):
        replica_set = owner(name, uid=uid, wanted=4, owners=ABOVE, availableReplicas=4)
        replica_set["metadata"]["annotations"] = {
            "deployment.kubernetes.io/revision": revision,
            "deployment.kubernetes.io/desired-replicas": "4",
        }
        fake_server.put(REPLICA_SETS, replica_set)
    return fake_server


@pytest.fixture
def begin(server):
    """Return a function that begins a life with a version in stages, which checks the first."""

    async def start(version=None, *, signals=None, **spec):
        version = version or workload_version(stages="1", **(spec or CHECKS))
        server.put(WORKLOAD_VERSIONS, version)
        life = Mirrored(server, WorkloadVersionReconciler, now=Clock(), signals=signals)
        await life.sweep()
        ready = StagedPod(version=f"prod/{NAME}", is_released=True, ready_since=STAMP)
        life.caches.staged_pods.store.put("prod/canary", ready)
        life.caches.staged_releases.observe({"prod/canary"})
        await life.sweep()
        return life

    return start


def end(server, resource, **status):
    (child,) = server.all(resource)
    server.change(resource, child["metadata"]["name"], status=status)


async def test_all_checks_of_a_stage_run_at_once(begin, server):
    server.put(ANALYSIS_DEFINITIONS, DEFINITION)
    life = await begin()
    assert life.workload_version(NAME).status.stage.state == "Checking"
    (task,) = server.all(TASKS)
    assert task["spec"]["context"]["taskType"] == task["spec"]["checkType"] == "stage-1"
    (evaluation,) = server.all(EVALUATIONS)
    assert evaluation["spec"]["checkType"] == "stage-1-eval"
    (analysis,) = server.all(ANALYSES)
    assert analysis["spec"]["args"] == {
        "namespace": "prod",
        "workload": "shop-cart",
        "version": "2.0",
        "stage": "1",
        "pods": "cart-1-[a-z0-9]+",
        "oldPods": "cart-0-[a-z0-9]+",
    }
    assert life.signals.of(analysis["metadata"]["name"]) == ["created"]
    end(server, TASKS, status="Succeeded")
    end(server, EVALUATIONS, overallStatus="Succeeded")
    life.sync()
    await life.sweep()
    assert life.workload_version(NAME).status.stage.number == 1
    end(server, ANALYSES, state="Completed", **{"pass": True})
    life.sync()
    await life.sweep()
    stage = life.workload_version(NAME).status.stage
    assert (stage.number, stage.results[0].state) == (2, "Passed")


@pytest.mark.parametrize(
    "status",
    [
        {"state": "Completed"},
        {"state": "Progressing", "storedValues": {"e": {"errMsg": "no values"}}},
    ],
)
async def test_a_failed_analysis_holds_the_stage(begin, server, status):
    server.put(ANALYSIS_DEFINITIONS, DEFINITION)
    life = await begin(stage_analyses=("error-rate",))
    end(server, ANALYSES, **status)
    life.sync()
    await life.sweep()
    stage = life.workload_version(NAME).status.stage
    assert (stage.state, stage.message) == ("Held", "analysis error-rate failed")
    assert life.workload_version(NAME).status.status == "Progressing"
    assert "WorkloadStageHeld" in life.signals.reasons


async def test_a_stage_waits_for_a_missing_definition(begin, server):
    life = await begin(stage_analyses=("error-rate",))
    (missing,) = [said for said in life.signals.kept if said.reason == "CreateAnalysisNotFound"]
    assert 'AnalysisDefinition "error-rate" not found' in missing.text
    assert life.workload_version(NAME).status.stage.state == "Checking"
    assert not server.all(ANALYSES)
    server.put(ANALYSIS_DEFINITIONS, DEFINITION)
    life.sync()
    await life.sweep()
    assert len(server.all(ANALYSES)) == 1


async def test_an_analysis_that_cannot_be_created_is_reported(begin, server):
    server.put(ANALYSIS_DEFINITIONS, DEFINITION)
    server.refusals[ANALYSES] = StatusError(403, "Forbidden", "not allowed")
    signals = RecordedSignals()
    with pytest.raises(ForbiddenError):
        await begin(signals=signals, stage_analyses=("error-rate",))
    (version,) = server.all(WORKLOAD_VERSIONS)
    assert version["status"]["stage"]["state"] == "Checking"
    (refused,) = [said for said in signals.kept if said.reason == "CreateAnalysisFailed"]
    assert "could not create the Analysis for error-rate" in refused.text


async def test_a_forged_analysis_is_no_result(begin, server):
    """One of that name that the controller has not made is not followed."""
    server.put(ANALYSIS_DEFINITIONS, DEFINITION)
    life = await begin(stage_analyses=("error-rate",))
    (analysis,) = server.all(ANALYSES)
    name = analysis["metadata"]["name"]
    forged = {**analysis, "status": {"state": "Completed", "pass": True}}
    forged["metadata"] = {"name": name, "namespace": "prod", "uid": "forged"}
    server.put(ANALYSES, forged)
    life.sync()
    await life.sweep()
    stage = life.workload_version(NAME).status.stage
    assert (stage.number, stage.results) == (1, ())


async def test_pods_of_a_daemon_set_are_listed_by_their_version(begin, server):
    server.put(ANALYSIS_DEFINITIONS, DEFINITION)
    agent = owner("cart", uid="ds-1", desiredNumberScheduled=3)
    agent["status"].update(currentNumberScheduled=3, updatedNumberScheduled=1)
    server.put(DAEMON_SETS, agent)
    mine = [owner_ref("DaemonSet", "cart", "ds-1")]
    for name, version, owners in (
        ("cart-new", "2.0", mine),
        ("cart-old", "1.0", mine),
        ("cart-before", None, mine),
        ("other", "2.0", [owner_ref("DaemonSet", "other", "ds-2")]),
    ):
        notes = keptn("cart", version) if version else {}
        labels = {"controller-revision-hash": "abc"}
        server.put(PODS, pod(name, notes, owners=owners, labels=labels))
    version = workload_version(stages="1", stage_analyses=("error-rate",))
    reference = ResourceReference(uid="ds-1", kind="DaemonSet", name="cart")
    spec = replace(version.spec, resource_reference=reference)
    await begin(replace(version, spec=spec))
    (analysis,) = server.all(ANALYSES)
    args = analysis["spec"]["args"]
    assert args["pods"] == "cart-new"
    assert args["oldPods"] == "cart-before|cart-old"


async def test_a_longer_stage_is_analysed_as_a_whole(begin, server):
    server.put(ANALYSIS_DEFINITIONS, DEFINITION)
    life = await begin(stage_analyses=("error-rate",), stage_pause="10m")
    assert not server.all(ANALYSES)
    life.context.now.now = NOW + timedelta(minutes=11)
    await life.sweep()
    (analysis,) = server.all(ANALYSES)
    assert analysis["spec"]["timeframe"] == {"from": STAMP, "to": "2026-11-21T18:11:00Z"}
