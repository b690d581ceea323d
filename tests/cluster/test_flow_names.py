"""The names of Keptn's documentation, and of Keptn 2, as events of a cluster."""

from __future__ import annotations

import asyncio

import pytest

from harbourmaster.api.resources import APP_VERSIONS, REPLICA_SETS, WORKLOAD_VERSIONS
from helpers.flow.manifests import (
    app,
    app_context,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    owner,
)

APP_PHASES = (
    "AppPreDeployTasks",
    "AppPreDeployEvaluations",
    "AppDeploy",
    "AppPostDeployTasks",
    "AppPostDeployEvaluations",
)
WORKLOAD_PHASES = (
    "WorkloadPreDeployTasks",
    "WorkloadPreDeployEvaluations",
    "WorkloadDeploy",
    "WorkloadPostDeployTasks",
    "WorkloadPostDeployEvaluations",
)
PHASES = (*APP_PHASES, *WORKLOAD_PHASES)
DOCUMENTED = {
    *(f"{phase}{state}" for phase in PHASES for state in ("Started", "Succeeded", "Errored")),
    # So the documentation spells one of them.
    "WorkloadPreDeployErrored",
    "Completed",
    "CreateEvaluation",
    "ReconcileEvaluation",
    "ReconcileTask",
    "CreateTask",
    "CreateApp",
    "CreateAppVersion",
    "CreateWorkload",
    "CreateWorkloadVersion",
    "Deprecated",
    "WorkloadDeployReconcile",
    "WorkloadDeployReconcileErrored",
}
OF_KEPTN = {
    *(f"{phase}{state}" for phase in PHASES for state in ("Started", "Finished", "Failed")),
    "AppCompletedFinished",
    "AppCompletedFailed",
    "WorkloadCompletedFinished",
    "WorkloadCompletedFailed",
    "ReconcileTaskStatusChanged",
    "ReconcileEvaluationStatusChanged",
    "ReconcileEvaluationFailed",
    "ReconcileEvaluationReconcileTimeout",
    "WorkloadDeployReconcileError",
}
ON_APP = {
    "pre-task": {"preDeploymentTasks": ["failing"]},
    "pre-evaluation": {"preDeploymentEvaluations": ["unmet"]},
    "post-task": {"postDeploymentTasks": ["failing"]},
    "post-evaluation": {"postDeploymentEvaluations": ["unmet"]},
}
ON_PODS = {
    "pre-task": {"pre_deployment_tasks": "failing"},
    "pre-evaluation": {"pre_deployment_evaluations": "unmet"},
    "post-task": {"post_deployment_tasks": "failing"},
    "post-evaluation": {"post_deployment_evaluations": "unmet"},
}


async def every_phase(flow):
    await flow.measure("load", "3")
    await flow.create(
        container_task("quick"),
        container_task("failing", "fail"),
        evaluation_definition("met", "load", "<5"),
        evaluation_definition("unmet", "load", ">5"),
        app_context(
            "well",
            preDeploymentTasks=["quick"],
            preDeploymentEvaluations=["met"],
            postDeploymentTasks=["quick"],
            postDeploymentEvaluations=["met"],
        ),
        deployment(
            "well",
            keptn(
                "well",
                pre_deployment_tasks="quick",
                pre_deployment_evaluations="met",
                post_deployment_tasks="quick",
                post_deployment_evaluations="met",
            ),
        ),
    )
    await flow.until_ended(APP_VERSIONS, "well-1.0-6b86b273")
    for name, spec in ON_APP.items():
        await flow.create(app_context(f"app-{name}", **spec), app(f"app-{name}", "1.0"))
    for name, checks in ON_PODS.items():
        await flow.create(deployment(name, keptn(name, **checks)))
    await asyncio.gather(
        *(flow.until_ended(APP_VERSIONS, f"app-{name}-1.0-6b86b273", "Failed") for name in ON_APP),
        *(flow.until_ended(APP_VERSIONS, f"{name}-1.0-6b86b273", "Failed") for name in ON_PODS),
    )
    # A restarted version is superseded.
    await flow.change("KeptnApp", "app-pre-task", {"spec": {"revision": 2}})
    await flow.until_ended(APP_VERSIONS, "app-pre-task-1.0-6b86b273", "Deprecated")
    await lost_owner(flow)


async def lost_owner(flow):
    """Let a workload's ReplicaSet vanish while it is waited for."""
    await flow.create(
        owner("ReplicaSet", "lost", keptn("lost"), labels={"kwok-outcome": "never-ready"})
    )
    await flow.until_like(
        WORKLOAD_VERSIONS, "lost-lost-1.0", {"status": {"currentPhase": "WorkloadDeploy"}}
    )
    # The workload goes with its owner, unless it is not the owner's any more.
    await flow.change("KeptnWorkload", "lost-lost", {"metadata": {"ownerReferences": None}})
    await flow.delete("ReplicaSet", "lost", propagation="Orphan")
    await flow.until(lambda: flow.find(REPLICA_SETS, "lost") is None)
    await flow.until_ended(WORKLOAD_VERSIONS, "lost-lost-1.0", "Failed")


def reasons(flow):
    return {
        event["reason"]
        for event in flow.events()
        if event.get("reportingController", "").startswith("harbourmaster.dev/")
    }


async def until_reasons(flow, wanted):
    await flow.until(
        lambda: wanted <= reasons(flow), why=lambda: f"not told: {sorted(wanted - reasons(flow))}"
    )


VOCABULARIES = {
    "both": (DOCUMENTED | OF_KEPTN, set(), ("PromotionTasksStarted",)),
    "documented": (DOCUMENTED, {"AppCompletedFinished"}, ("Finished", "Failed", "ReconcileError")),
    "keptn": (
        OF_KEPTN,
        {"CreateApp", "CreateTask", "Completed", "Deprecated"},
        ("Succeeded", "Errored"),
    ),
}
"""Names that each vocabulary has and lacks, and endings that no phase's name has."""


@pytest.mark.parametrize(
    ("controller_flags", "vocabulary"),
    [
        # The default.
        ((), "keptn"),
        (("--lifecycle-event-vocabulary=documented",), "documented"),
        (("--lifecycle-event-vocabulary=both",), "both"),
    ],
    ids=["keptn", "documented", "both"],
)
async def test_a_vocabulary_has_all_of_its_names_and_none_of_the_other(flow, harbour, vocabulary):
    wanted, unwanted, endings = VOCABULARIES[vocabulary]
    async with harbour.use_config(flow.client, observabilityTimeout="4s"):
        await every_phase(flow)
    await until_reasons(flow, wanted)
    names = reasons(flow)
    assert not unwanted & names
    of_phases = [name for name in names if name.startswith(PHASES)]
    assert not [phase for phase in of_phases if phase.endswith(endings)]
    assert not [name for name in names if "Promotion" in name]


@pytest.mark.parametrize("controller_flags", [("--lifecycle-event-vocabulary=both",)], ids=["both"])
async def test_events_stand_on_the_objects_that_they_are_about(flow):
    """Each is related to the app, but those of what was there before it."""
    await flow.create(
        container_task("quick"), deployment("well", keptn("well", pre_deployment_tasks="quick"))
    )
    for name in ("well-1.0-6b86b273", "well-well-1.0"):
        await flow.until_told("Completed", name)
    wanted = {
        "CreateApp": {"KeptnApp"},
        "CreateAppVersion": {"KeptnAppVersion"},
        "CreateWorkload": {"KeptnWorkload"},
        "CreateWorkloadVersion": {"KeptnWorkloadVersion"},
        "CreateTask": {"KeptnTask"},
        "AppDeployStarted": {"KeptnAppVersion"},
        "WorkloadDeployReconcile": {"KeptnWorkloadVersion"},
        "ReconcileTask": {"KeptnWorkloadVersion"},
        "Completed": {"KeptnAppVersion", "KeptnWorkloadVersion"},
    }
    # Only what is told of one object comes in its order.
    await until_reasons(flow, wanted.keys())
    kinds = {}
    for event in flow.events():
        if event["reportingController"].startswith("harbourmaster.dev/"):
            kinds.setdefault(event["reason"], set()).add(event["regarding"]["kind"])
    assert {reason: kinds[reason] for reason in wanted} == wanted
    # A version that has no app yet is related to none.
    of_phases = [
        event
        for event in flow.events()
        if event["reason"].startswith(PHASES) and "NotFound" not in event["reason"]
    ]
    assert {phase["related"]["name"] for phase in of_phases} == {"well"}
