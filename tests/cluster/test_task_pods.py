"""Why tasks fail or do not start, with the real Job controller and Pod Security."""

from __future__ import annotations

import pytest

from harbourmaster.api.patches import MergePatch
from harbourmaster.api.resources import JOBS, NAMESPACES, PODS, TASKS, WORKLOAD_VERSIONS
from harbourmaster.lifecycle.jobs import MESSAGE_POLICY
from helpers.flow.manifests import container_task, deployment, keptn

pytestmark = [pytest.mark.full, pytest.mark.cluster, pytest.mark.slow]

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


async def checked(flow, outcome=None, labels=None, **spec):
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


def quoted(text):
    return lambda note: text in note


def waiting(reason, message):
    return {"waiting": {"reason": reason, "message": message}}


async def test_an_image_that_cannot_be_pulled_is_told_once_and_may_recover(flow):
    name = await checked(flow, "hang")
    await pod_with(flow, waiting("ErrImagePull", "registry.example.com/ledger:3: not found"))
    expected = {"status": "Progressing", "reason": "ImagePullBackOff"}
    task = await flow.until_like(TASKS, name, {"status": expected})
    assert task["status"]["message"] == (
        "its pod waits: ErrImagePull: registry.example.com/ledger:3: not found: "
        "check the image and the imagePullSecrets of its definition"
    )
    event = await flow.until_told("TaskPodWaiting", name)
    assert event["type"] == "Warning"
    assert task["status"]["message"] in event["note"]
    for _ in range(3):
        await pod_with(flow, waiting("ImagePullBackOff", "Back-off pulling image"))
        await pod_with(flow, waiting("ErrImagePull", "another text"))
    await pod_with(flow, {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    await flow.until_like(TASKS, name, {"status": {"message": lambda text: not text}})
    texts = [
        state["status"].get("message") for state in flow.history(TASKS, name) if "status" in state
    ]
    assert {text for text in texts if text} == {task["status"]["message"]}
    assert flow.reasons(name).count("TaskPodWaiting") == 1


async def test_the_last_line_of_a_failed_container_is_the_message_of_its_task(flow):
    name = await checked(flow, "hang")
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
    await flow.until_told("ReconcileTaskStatusChanged", "ledger-ledger-1.0", note=quoted(text))


async def test_a_pod_that_pod_security_refuses_is_told_and_may_be_allowed(flow):
    name = await checked(flow, labels=RESTRICTED)
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


async def test_a_pod_that_is_refused_after_an_eviction_is_told_until_the_time_out(flow):
    name = await checked(flow, "hang", retries=3, timeout="30s")
    pod = await pod_with(flow, {"running": {"startedAt": "2026-01-01T00:00:00Z"}})
    await label(flow, RESTRICTED)
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "low on memory"}
    await flow.change("Pod", pod, {"status": evicted}, subresource="status")
    task = await flow.until_like(TASKS, name, {"status": {"reason": "PodFailed"}})
    assert task["status"]["message"] == "Evicted: low on memory"
    # The Job controller waits ten seconds before it creates another pod.
    await flow.until_like(TASKS, name, {"status": {"reason": "FailedCreate"}}, 40)
    task = await flow.until_like(TASKS, name, {"status": {"status": "Failed"}}, 40)
    assert task["status"]["message"].startswith(
        "DeadlineExceeded: its Job has no pod: FailedCreate: pods "
    )


async def test_a_policy_for_termination_messages_that_does_not_exist_fails_the_task(flow):
    policy = {MESSAGE_POLICY: "Nothing"}
    await flow.create(
        container_task("migrate", annotations=policy),
        deployment("ledger", keptn("ledger", pre_deployment_tasks="migrate")),
    )
    (task,) = await flow.until_all(TASKS, {"status": {"reason": "JobInvalid"}})
    assert "terminationMessagePolicy" in task["status"]["message"]
