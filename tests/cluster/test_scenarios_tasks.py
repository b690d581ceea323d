"""Tasks as Keptn's own end-to-end tests have them, and why their pods fail or do not start."""

from __future__ import annotations

import json

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import (
    APP_VERSIONS,
    CONFIG_MAPS,
    JOBS,
    NAMESPACES,
    PODS,
    TASKS,
    WORKLOAD_VERSIONS,
)
from helpers.flow.manifests import (
    app,
    app_context,
    container_task,
    deployment,
    keptn,
    of_kind,
    task_definition,
)
from helpers.flow.namespace import phases
from helpers.patience import COLLECTED, WAIT

pytestmark = pytest.mark.gate


CONTEXT = {
    "workloadName": "my-test-workload",
    "appName": "test-app",
    "appVersion": "",
    "workloadVersion": "1.0.0",
    "taskType": "",
    "objectType": "",
}
CODE = {"inline": {"code": "console.log(1)"}}
SCRIPT = {"name": "SCRIPT", "value": "/var/data/function.ts"}
# The API server leaves the empty value out.
CMD_ARGS = {"name": "CMD_ARGS"}


def task(name, definition, *, annotations=None, labels=None, **spec):
    """A KeptnTask created by hand; only those of versions inherit the definition's metadata."""
    context = {key: CONTEXT[key] for key in ("appName", "workloadName", "workloadVersion")}
    spec = {"taskDefinition": definition, "context": context, **spec}
    return of_kind("KeptnTask", name, spec, annotations=annotations, labels=labels)


def text(context):
    return json.dumps(context, separators=(",", ":"))


def pod_spec(**spec):
    return {"spec": {"template": {"spec": spec}}}


def one_container(**container):
    return pod_spec(containers=[container])


JOBS_OF = {
    "ttlsecondsafterfinished-in-jobs": (
        container_task("it", ttlSecondsAfterFinished=100),
        {
            "metadata": {
                "annotations": {
                    "keptn.sh/app": "test-app",
                    "keptn.sh/task-name": "it",
                    "keptn.sh/version": "1.0.0",
                    "keptn.sh/workload": "my-test-workload",
                }
            },
            "spec": {"ttlSecondsAfterFinished": 100, "activeDeadlineSeconds": 30},
            "status": {"succeeded": 1},
        },
    ),
    "container-runtime": (
        container_task(
            "it",
            annotations={"container": "test"},
            container={
                "name": "testy-test",
                "image": "registry.example.com/busybox:1.36.0",
                "command": ["sh", "-c", "sleep 30"],
            },
        ),
        {
            "metadata": {"annotations": {"container": "test"}},
            "spec": {
                "template": {
                    "metadata": {"annotations": {"container": "test"}},
                    "spec": {
                        "containers": [
                            {
                                "name": "testy-test",
                                "image": "registry.example.com/busybox:1.36.0",
                                "command": ["sh", "-c", "sleep 30"],
                                "env": [{"name": "KEPTN_CONTEXT", "value": text(CONTEXT)}],
                            }
                        ]
                    },
                }
            },
        },
    ),
    "imagepullsecret": (
        container_task("it", imagePullSecrets=[{"name": "my-registry-secret"}]),
        pod_spec(imagePullSecrets=[{"name": "my-registry-secret"}]),
    ),
    "serviceaccount-in-jobs": (
        container_task(
            "it",
            serviceAccount={"name": "keptn-serviceaccount"},
            automountServiceAccountToken={"type": False},
        ),
        pod_spec(serviceAccountName="keptn-serviceaccount", automountServiceAccountToken=False),
    ),
    "simple-task": (
        task_definition("it", deno=CODE, ttlSecondsAfterFinished=1000),
        one_container(
            name="keptn-function-runner",
            imagePullPolicy="IfNotPresent",
            image="ghcr.io/keptn/deno-runtime:v3.0.1",
            env=[{"name": "KEPTN_CONTEXT", "value": text(CONTEXT)}, CMD_ARGS, SCRIPT],
        ),
    ),
    "simple-deployment-python-runtime": (
        task_definition(
            "it",
            annotations={"python": "test"},
            python={
                **CODE,
                "parameters": {"map": {"data": "1"}},
                "secureParameters": {"secret": "my-secret"},
                "cmdParameters": "--fast",
            },
        ),
        {
            "metadata": {"annotations": {"python": "test"}},
            **one_container(
                name="keptn-function-runner",
                image="ghcr.io/keptn/python-runtime:v1.0.8",
                env=[
                    {"name": "DATA", "value": '{"data":"1"}'},
                    {"name": "KEPTN_CONTEXT", "value": text(CONTEXT)},
                    {"name": "CMD_ARGS", "value": "--fast"},
                    {
                        "name": "SECURE_DATA",
                        "valueFrom": {"secretKeyRef": {"name": "my-secret", "key": "SECURE_DATA"}},
                    },
                    {"name": "SCRIPT", "value": "/var/data/function.py"},
                ],
            ),
        },
    ),
}


@pytest.mark.parametrize("scenario", JOBS_OF)
async def test_a_task_becomes_the_job_of_the_scenario(flow, scenario):
    definition, expected = JOBS_OF[scenario]
    await flow.create(of_kind("ServiceAccount", "keptn-serviceaccount"), definition)
    annotations = definition["metadata"]["annotations"]
    await flow.create(task("it", "it", annotations=annotations, timeout="30s"))
    await flow.until_ended(TASKS, "it")
    jobs = await flow.until_all(JOBS, expected)
    (owner,) = jobs[0]["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("KeptnTask", "it", True)
    assert len(flow.all(JOBS)) == 1
    status = flow.find(TASKS, "it")["status"]
    assert status["jobName"] == jobs[0]["metadata"]["name"]
    assert status["startTime"] <= status["endTime"]


async def test_app_failing_pre_task_retry_and_timeout(flow):
    """Both at one time: a second attempt comes after ten seconds."""
    await flow.create(
        container_task("retried", "fail", retries=1),
        container_task("hanging", "hang", retries=10, timeout="3s"),
        app_context("retry", preDeploymentTasks=["retried"]),
        app("retry", "0.1.0"),
        app_context("late", preDeploymentTasks=["hanging"]),
        app("late", "0.1.0"),
    )
    results = {
        "late": (
            {"retries": 10, "timeout": "3s"},
            "DeadlineExceeded",
            "Job was active longer than specified deadline",
        ),
        "retry": (
            {"retries": 1, "timeout": "5m0s"},
            "BackoffLimitExceeded",
            "BackoffLimitExceeded: exit code 1",
        ),
    }
    for name, (spec, reason, message) in results.items():
        version = await flow.until_ended(APP_VERSIONS, f"{name}-0.1.0-6b86b273", "Failed")
        assert phases(version["status"])["currentPhase"] == "AppPreDeployTasks"
        (item,) = version["status"]["preDeploymentTaskStatus"]
        task = flow.find(TASKS, item["name"])
        assert {key: task["spec"][key] for key in spec} == spec
        status = {key: task["status"][key] for key in ("status", "reason", "message")}
        assert status == {"status": "Failed", "reason": reason, "message": message}


async def test_app_one_taskdefinition_not_found(flow):
    """C54: the other runs, and all goes on once it comes; it is told once."""
    await flow.create(
        container_task("there", timeout="30s", retries=10),
        app_context("shop", preDeploymentTasks=["there", "missing"]),
        app("shop", "1"),
    )
    name = "shop-1-6b86b273"
    await flow.until_all(TASKS, {"status": {"status": "Succeeded"}})
    await flow.until_told("CreateTaskNotFound", name)
    await flow.pass_through()
    version = flow.find(APP_VERSIONS, name)
    assert phases(version["status"]) == {
        "preDeploymentStatus": "Pending",
        "preDeploymentEvaluationStatus": "Pending",
        "workloadOverallStatus": "Pending",
        "postDeploymentStatus": "Pending",
        "postDeploymentEvaluationStatus": "Pending",
        "promotionStatus": "Pending",
        "status": "Progressing",
        "currentPhase": "AppPreDeployTasks",
    }
    (event,) = [
        candidate for candidate in flow.events(name) if candidate["reason"] == "CreateTaskNotFound"
    ]
    assert "series" not in event
    assert "missing" in event["note"]
    await flow.create(container_task("missing"))
    await flow.until_ended(APP_VERSIONS, name)
    assert len(flow.all(TASKS)) == 2


async def test_a_definition_of_our_own_namespace_serves_all(flow, harbour):
    """C55 and C56: also with inline code, and the nearer one wins."""
    shared = task_definition("shared-code", deno={"inline": {"code": "shared()"}})
    near = task_definition("both", deno={"inline": {"code": "near()"}})
    far = task_definition("both", deno={"inline": {"code": "far()"}})
    home = "harbourmaster-system"
    kubectl = harbour.plane.kubectl
    manifest = json.dumps({"apiVersion": "v1", "kind": "List", "items": [shared, far]})
    kubectl("apply", f"--namespace={home}", "-f=-", stdin=manifest)
    await flow.create(
        near, deployment("ledger", keptn("ledger", pre_deployment_tasks="shared-code,both"))
    )
    await flow.until_released("ledger")
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    code = {}
    for job in flow.all(JOBS):
        (volume,) = job["spec"]["template"]["spec"]["volumes"]
        stored = flow.find(CONFIG_MAPS, volume["configMap"]["name"])
        (task_name,) = [reference["name"] for reference in job["metadata"]["ownerReferences"]]
        definition = flow.find(TASKS, task_name)["spec"]["taskDefinition"]
        code[definition] = stored["data"]["code"]
    assert code == {"shared-code": "shared()", "both": "near()"}
    kubectl("delete", f"--namespace={home}", "-f=-", stdin=manifest)


async def test_a_finished_job_is_deleted_after_its_time_to_live_and_its_task_stays(flow):
    await flow.create(container_task("it", ttlSecondsAfterFinished=1), task("it", "it"))
    job = (await flow.until_ended(TASKS, "it"))["status"]["jobName"]
    await flow.until(lambda: flow.history(JOBS, job) and flow.all(JOBS) == [], COLLECTED)
    assert flow.find(TASKS, "it")["status"]["status"] == "Succeeded"


async def test_a_quota_is_reported_and_the_task_waits_for_room(flow, harbour):
    kubectl, where = harbour.plane.kubectl, f"--namespace={flow.namespace}"
    kubectl("create", "quota", "no-jobs", "--hard=count/jobs.batch=0", where)
    # Until the quota is counted, the API server refuses nothing.
    kubectl("wait", "--for=jsonpath={.status.hard}", WAIT, "resourcequota/no-jobs", where)
    await flow.create(container_task("it"), task("it", "it"))
    refused = {"status": "Pending", "reason": "JobRefused"}
    refused_task = await flow.until_like(TASKS, "it", {"status": refused})
    assert "exceeded quota: no-jobs" in refused_task["status"]["message"]
    event = await flow.until_told("CreateTaskFailed", "it")
    kubectl("delete", "quota", "no-jobs", where)
    await flow.until_ended(TASKS, "it")
    assert "series" not in event


RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


async def create_checked(flow, outcome=None, labels=None, **spec):
    """A workload whose only check is a task; its name. The namespace has these labels by then."""
    await flow.create(deployment("ledger", keptn("ledger", pre_deployment_tasks="migrate")))
    await flow.until_gated("ledger")
    await label(flow, labels or {})
    await flow.create(container_task("migrate", outcome, **spec))
    (task,) = await flow.until_all(TASKS, {"status": {"status": "Progressing"}})
    return task["metadata"]["name"]


async def label(flow, labels):
    """Give the namespace these labels."""
    patch = MergePatch({"metadata": {"labels": labels}})
    await flow.client.patch(NAMESPACES, flow.namespace, patch)


async def pod_with(flow, state, **more):
    """Let the container of the task's pod be in this state, as its kubelet would say."""
    like = {"metadata": {"labels": {"kwok-outcome": "hang"}}, "status": {"phase": "Running"}}
    (pod,) = await flow.until_all(PODS, like)
    status = {**pod["status"]["containerStatuses"][0], "state": state, **more}
    name = pod["metadata"]["name"]
    await flow.change(
        "Pod", name, {"status": {"containerStatuses": [status]}}, subresource="status"
    )
    return name


def contains_text(text):
    return lambda note: text in note


def waiting(reason, message):
    return {"waiting": {"reason": reason, "message": message}}


@pytest.mark.full
async def test_the_last_line_of_a_failed_container_is_the_message_of_its_task(flow):
    name = await create_checked(flow, "hang")
    ended = {
        "exitCode": 1,
        "reason": "Error",
        "message": "connected\nthe database is not migrated\n",
    }
    # The kubelet starts it again, and the Job controller counts that.
    back_off = waiting("CrashLoopBackOff", "back-off 10s")
    pod = await pod_with(flow, back_off, lastState={"terminated": ended}, restartCount=1)
    task = await flow.until_like(TASKS, name, {"status": {"status": "Failed"}})
    text = "BackoffLimitExceeded: exit code 1: connected the database is not migrated"
    assert task["status"]["message"] == text
    await flow.until(lambda: flow.find(PODS, pod) is None)
    assert flow.find(TASKS, name)["status"]["message"] == text
    await flow.until_told("TaskPodFailed", name)
    await flow.until_told(
        "ReconcileTaskStatusChanged", "ledger-ledger-1.0", note=contains_text(text)
    )


@pytest.mark.full
async def test_a_pod_that_pod_security_refuses_is_told_and_may_be_allowed(flow):
    name = await create_checked(flow, labels=RESTRICTED)
    task = await flow.until_like(TASKS, name, {"status": {"reason": "FailedCreate"}})
    assert task["status"]["status"] == "Progressing"
    message = task["status"]["message"]
    assert message.startswith("its Job has no pod: FailedCreate: pods ")
    assert 'violates PodSecurity "restricted:latest"' in message
    await flow.until_told("TaskPodWaiting", name)
    await label(flow, dict.fromkeys(RESTRICTED))
    await flow.until_ended(WORKLOAD_VERSIONS, "ledger-ledger-1.0")
    task = flow.find(TASKS, name)["status"]
    assert (task["status"], task.get("message", "")) == ("Succeeded", "")
    assert len(flow.all(JOBS)) == 1
