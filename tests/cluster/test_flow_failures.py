"""Checks that fail, at the app and at the workload: what waits, what stays, and what is told."""

from __future__ import annotations

import asyncio
import json
from typing import NamedTuple

import pytest

from harbourmaster.api.resources import (
    APP_VERSIONS,
    EVALUATIONS,
    JOBS,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from helpers.command import harbourmaster
from helpers.flow.manifests import (
    app,
    app_context,
    container_task,
    deployment,
    evaluation_definition,
    keptn,
    without_outcome,
)
from helpers.flow.namespace import phases

pytestmark = pytest.mark.gate

CHECKS = ("pre-task", "pre-evaluation", "post-task", "post-evaluation")
KEYS = {
    "pre-task": "preDeploymentTasks",
    "pre-evaluation": "preDeploymentEvaluations",
    "post-task": "postDeploymentTasks",
    "post-evaluation": "postDeploymentEvaluations",
}
ANNOTATIONS = {
    "pre-task": "pre_deployment_tasks",
    "pre-evaluation": "pre_deployment_evaluations",
    "post-task": "post_deployment_tasks",
    "post-evaluation": "post_deployment_evaluations",
}
PHASES = {
    "pre-task": "PreDeployTasks",
    "pre-evaluation": "PreDeployEvaluations",
    "post-task": "PostDeployTasks",
    "post-evaluation": "PostDeployEvaluations",
}
STATES = {
    "pre-task": "preDeploymentStatus",
    "pre-evaluation": "preDeploymentEvaluationStatus",
    "deploy": "",
    "post-task": "postDeploymentStatus",
    "post-evaluation": "postDeploymentEvaluationStatus",
}
DEPLOY = {"app": "workloadOverallStatus", "workload": "deploymentStatus"}


class Failing(NamedTuple):
    """An app of one workload of the same name, of whose checks one fails."""

    level: str
    check: str

    @property
    def name(self):
        return f"{self.level}-{self.check}"

    @property
    def app_version(self):
        return f"{self.name}-1.0-6b86b273"

    @property
    def workload_version(self):
        return f"{self.name}-ledger-1.0"

    @property
    def phase(self):
        return f"{self.level.capitalize()}{PHASES[self.check]}"

    def manifests(self):
        failing = "failing-task" if self.check.endswith("task") else "failing-evaluation"
        on_app = {KEYS[self.check]: [failing]} if self.level == "app" else {}
        on_pods = {ANNOTATIONS[self.check]: failing} if self.level == "workload" else {}
        return (
            app_context(self.name, **on_app),
            app(self.name, "1.0", ("ledger", "1.0")),
            deployment(self.name, keptn("ledger", app=self.name, **on_pods)),
        )

    def expected_states(self, level):
        """The states of the failed version: those before, the failed one and those after it."""
        names = {**STATES, "deploy": DEPLOY[level]}
        failed = self.check if level == self.level else "deploy"
        before, after = "Succeeded", "Deprecated"
        states, state = {}, before
        for check, name in names.items():
            state = "Failed" if check == failed else state
            states[name] = state
            state = after if check == failed else state
        if level == "app":
            states["promotionStatus"] = after
        return {
            **states,
            "status": "Failed",
            "currentPhase": self.phase if level == self.level else f"{level.capitalize()}Deploy",
        }


async def create_failing(flow, *cases):
    """Create what fails, and wait until each app has failed as it should."""
    await flow.measure("load", "3")
    await flow.create(
        container_task("failing-task", "fail"),
        evaluation_definition("failing-evaluation", "load", ">5"),
        *(manifest for case in cases for manifest in case.manifests()),
    )
    await asyncio.gather(
        *(flow.until_ended(APP_VERSIONS, case.app_version, "Failed") for case in cases)
    )


def assert_failed(flow, case):
    app_version = flow.find(APP_VERSIONS, case.app_version)
    assert phases(app_version["status"]) == case.expected_states("app")
    assert app_version["status"]["startTime"] <= app_version["status"]["endTime"]
    if case.level == "workload":
        version = flow.find(WORKLOAD_VERSIONS, case.workload_version)
        assert phases(version["status"]) == case.expected_states("workload")
        assert version["status"]["startTime"] <= version["status"]["endTime"]


async def assert_told(flow, case):
    """Both the phase and the end are told of as failed, once, and nothing after it as begun."""
    versions = {"app": case.app_version, "workload": case.workload_version}
    await flow.until_told("AppCompletedFailed", case.app_version)
    if case.level == "workload":
        await flow.until_told("AppDeployFailed", case.app_version)
        await flow.until_told("WorkloadCompletedFailed", case.workload_version)
    event = await flow.until_told(f"{case.phase}Failed", versions[case.level])
    assert event["type"] == "Warning"
    assert (event["related"]["kind"], event["related"]["name"]) == ("KeptnApp", case.name)
    assert "has failed" in event["note"]
    reasons = flow.reasons(versions[case.level])
    assert reasons.count(f"{case.phase}Failed") == 1
    assert f"{case.phase}Finished" not in reasons
    begun = [reason for reason in reasons if reason.endswith("Started")]
    assert begun[-1] == f"{case.phase}Started"


PRE = [Failing(level, check) for level in ("app", "workload") for check in CHECKS[:2]]
POST = [Failing(level, check) for level in ("app", "workload") for check in CHECKS[2:]]


async def test_pods_wait_for_checks_that_failed_and_no_restart_lets_them_go(flow, harbour):
    await create_failing(flow, *PRE)
    parts = [case.name for case in PRE]
    await flow.stay_gated(*parts)
    for case in PRE:
        assert_failed(flow, case)
        await assert_told(flow, case)
        if case.level == "app":
            version = flow.find(WORKLOAD_VERSIONS, case.workload_version)
            assert set(phases(version.get("status", {})).values()) <= {"", "Pending"}
    await flow.until_told("AppPreDeployEvaluationsFailed", "app-pre-evaluation-ledger-1.0")
    versions = {
        version["metadata"]["name"]: version["status"] for version in flow.all(APP_VERSIONS)
    }
    counts = [len(flow.all(resource)) for resource in (TASKS, EVALUATIONS, JOBS)]
    await asyncio.to_thread(harbour.installation.restart, "controller")
    await flow.stay_gated(*parts)
    assert [len(flow.all(resource)) for resource in (TASKS, EVALUATIONS, JOBS)] == counts
    for case in PRE:
        assert flow.find(APP_VERSIONS, case.app_version)["status"] == versions[case.app_version]
        assert flow.reasons(case.app_version).count(f"{case.phase}Failed") <= 1
    assert not [pod for part in parts for pod in flow.pods(part) if "nodeName" in pod["spec"]]


async def test_what_runs_is_left_alone_when_checks_fail_afterwards(flow):
    assert len(POST) == 4
    await create_failing(flow, *POST)
    for case in POST:
        assert_failed(flow, case)
        await assert_told(flow, case)
        (pod,) = await flow.until_released(case.name)
        await flow.until_like(PODS, pod["metadata"]["name"], {"status": {"phase": "Running"}})
    before = {case: flow.pods(case.name)[0]["metadata"]["uid"] for case in POST}
    await flow.pass_through()
    for case in POST:
        (pod,) = flow.pods(case.name)
        assert pod["metadata"]["uid"] == before[case]
        kinds = {event["regarding"]["kind"] for event in flow.events(case.name)}
        assert kinds <= {"KeptnApp", "Deployment"}


async def test_an_evaluation_that_failed_says_what_it_measured(flow):
    case = Failing("workload", "pre-evaluation")
    await create_failing(flow, case)
    (evaluation,) = flow.all(EVALUATIONS)
    message = "value '3' did not meet objective '>5'"
    assert evaluation["status"]["evaluationStatus"]["load"]["message"] == message
    name = evaluation["metadata"]["name"]
    event = await flow.until_told("ReconcileEvaluationFailed", name)
    assert "evaluation failed" in event["note"]
    assert "load" in event["note"]
    await flow.until_told("ReconcileEvaluationReconcileTimeout", name)


async def test_a_fixed_revision_goes_through(flow):
    cases = PRE[:2]
    assert {case.level for case in cases} == {"app"}
    await create_failing(flow, *cases)
    await flow.measure("load", "10")
    await flow.change("KeptnTaskDefinition", "failing-task", without_outcome())
    await flow.stay_gated(*(case.name for case in cases))
    for case in cases:
        await flow.change("KeptnApp", case.name, {"spec": {"revision": 2}})
    for case in cases:
        version = await flow.until_ended(APP_VERSIONS, f"{case.name}-1.0-d4735e3a")
        assert version["spec"]["revision"] == 2
        assert version["spec"].get("previousVersion", "") == ""
        await flow.until_released(case.name)
        old = await flow.until_ended(APP_VERSIONS, case.app_version, "Deprecated")
        assert phases(old["status"])["currentPhase"] == case.phase
        assert {value for key, value in phases(old["status"]).items() if key != "currentPhase"} == {
            "Deprecated"
        }


async def test_repeated_checks_let_failed_versions_pass_in_the_name_of_who_asked(flow, harbour):
    cases = on_app, on_workload = PRE[0], PRE[3]
    await create_failing(flow, *cases)
    before = names(flow, TASKS), names(flow, EVALUATIONS)
    await flow.measure("load", "10")
    await flow.change("KeptnTaskDefinition", "failing-task", without_outcome())
    words = ("gate", "rerun", f"deployment/{on_app.name}", f"--namespace={flow.namespace}")
    access = {"kubeconfig": harbour.plane.kubeconfig}
    done = await asyncio.to_thread(harbourmaster, *words, "--reason=fixed", **access)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("its failed checks are repeated for playground-admin\n")
    # What users write themselves about who asks and for what counts for nothing.
    forged = {"rerun-by": "root", "rerun-checks": "x"}
    annotations = {f"gates.harbourmaster.dev/{key}": text for key, text in forged.items()}
    request = {"labels": {"gates.harbourmaster.dev/rerun": "1"}, "annotations": annotations}
    version = f"keptnworkloadversion/{on_workload.workload_version}"
    patch = ("patch", version, "--type=merge", "--patch", json.dumps({"metadata": request}))
    jane = ("--as=jane", "--as-group=system:masters", f"--namespace={flow.namespace}")
    await asyncio.to_thread(harbour.plane.kubectl, *patch, *jane)
    for case, failed, who in (
        (on_app, on_app.app_version, "playground-admin: fixed"),
        (on_workload, on_workload.workload_version, "jane: no reason is given"),
    ):
        await flow.until_released(case.name)
        await flow.until_ended(APP_VERSIONS, case.app_version)
        event = await flow.until_told("RepeatChecksStarted", failed)
        assert f"failed checks are repeated for {who}" in event["note"]
    for old, resource in zip(before, (TASKS, EVALUATIONS), strict=True):
        assert old < names(flow, resource)
        assert len(names(flow, resource)) == 2


def names(flow, resource):
    return {obj["metadata"]["name"] for obj in flow.all(resource)}


async def test_a_fixed_version_of_a_workload_goes_through(flow):
    cases = PRE[2:]
    assert {case.level for case in cases} == {"workload"}
    await create_failing(flow, *cases)
    await flow.measure("load", "10")
    await flow.change("KeptnTaskDefinition", "failing-task", without_outcome())
    held = {case: flow.pods(case.name)[0] for case in cases}
    for case in cases:
        await flow.change(
            "KeptnApp",
            case.name,
            {"spec": {"version": "1.1", "workloads": [{"name": "ledger", "version": "1.1"}]}},
        )
        annotations = {"keptn.sh/version": "1.1"}
        await flow.change(
            "Deployment",
            case.name,
            {"spec": {"template": {"metadata": {"annotations": annotations}}}},
        )
    for case in cases:
        version = await flow.until_ended(APP_VERSIONS, f"{case.name}-1.1-d4735e3a")
        assert version["spec"]["previousVersion"] == "1.0"
        workload = await flow.until_ended(WORKLOAD_VERSIONS, f"{case.name}-ledger-1.1")
        assert workload["spec"]["previousVersion"] == "1.0"
        await flow.until_released(case.name)
        # Its own version never passed.
        flow.assert_never_bound(held[case])
        assert_failed(flow, case)
