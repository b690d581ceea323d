"""Why a task fails or does not start, as a real kubelet says it and as people read it."""

from __future__ import annotations

import pytest

from helpers import node_objects as objects
from helpers.node import BUSYBOX, figure

LAST = "the database is not migrated"
ABSENT = "registry.example.com/absent:1"


def until(node, place, **status):
    """The only task of a namespace, once its status has these values."""
    for field, value in status.items():
        condition = f"jsonpath={{.status.{field}}}={value}"
        node.wait(condition, f"--namespace={place}", "keptntask", "--all")
    (task,) = node.get("keptntasks", f"--namespace={place}")
    return task


def begin(node, place, definition):
    """A Deployment whose only check is this task; wait until there is the task."""
    name = definition["metadata"]["name"]
    node.apply(definition, objects.deployment(place, "till", tasks=[name]))
    node.wait(
        "jsonpath={.status.preDeploymentTaskStatus[0].name}",
        f"--namespace={place}",
        "keptnworkloadversion/till-till-1.0",
    )


def read(node, place, task):
    """Return the output of kubectl and ``why`` about a task."""
    described = node.kubectl(
        "describe", f"--namespace={place}", "keptntask", task["metadata"]["name"]
    ).stdout
    (pod,) = node.get("pods", f"--namespace={place}", "--selector=app=till")
    why = node.harbourmaster("why", "pod", f"{place}/{pod['metadata']['name']}")
    return " ".join(described.split()), " ".join(why.split())


@pytest.mark.parametrize("runtime", ["python", "deno", "container"])
def test_the_last_line_of_a_failed_task_is_read_everywhere(node, place, runtime):
    definitions = {
        "python": objects.task(
            place, "migrate", python={"inline": {"code": f"raise SystemExit({LAST!r})"}}
        ),
        "deno": objects.task(
            place, "migrate", deno={"inline": {"code": f"console.error({LAST!r}); Deno.exit(1)"}}
        ),
        "container": objects.shell_task(place, "migrate", f"echo {LAST}; exit 1"),
    }
    begin(node, place, definitions[runtime])
    task = until(node, place, status="Failed")
    text = f"BackoffLimitExceeded: exit code 1: {LAST}"
    assert task["status"]["message"] == text
    described, why = read(node, place, task)
    assert text in described
    assert text in why
    figure(f"{runtime} in why: {why[why.index('check task') :].partition(' to do ')[0]}")
    told = node.kubectl("events", f"--namespace={place}").stdout
    assert "TaskPodFailed" in told
    assert f"task status changed from Progressing to Failed: {text}" in told


def test_an_image_that_cannot_be_pulled_is_told_at_once(node, place):
    definition = objects.shell_task(place, "absent", "true", timeout="20s")
    definition["spec"]["container"]["image"] = ABSENT
    begin(node, place, definition)
    task = until(node, place, reason="ImagePullBackOff")
    assert task["status"]["status"] == "Progressing"
    message = task["status"]["message"]
    assert message.startswith("its pod waits: ErrImagePull: ")
    assert ABSENT in message
    assert message.endswith("check the image and the imagePullSecrets of its definition")
    described, why = read(node, place, task)
    assert message in described
    assert message in why
    task = until(node, place, status="Failed")
    assert task["status"]["message"].startswith("DeadlineExceeded: its pod waits: ")


def test_a_pod_that_pod_security_refuses_is_told_at_once(node, place):
    container = {"name": "check", "image": BUSYBOX, "command": ["true"]}
    begin(node, place, objects.task(place, "refused", container=container))
    task = until(node, place, reason="FailedCreate")
    message = task["status"]["message"]
    assert 'violates PodSecurity "restricted:latest"' in message
    assert all(message in text for text in read(node, place, task))


def test_a_container_killed_for_its_memory_says_so(node, place):
    eat = "x=a; while :; do x=$x$x; done"
    definition = objects.shell_task(place, "eats", eat)
    definition["spec"]["container"]["resources"] = {"limits": {"memory": "16Mi"}}
    begin(node, place, definition)
    task = until(node, place, status="Failed")
    assert "exit code 137 (OOMKilled)" in task["status"]["message"]
    assert "raise its memory limit" in task["status"]["message"]


def test_a_time_out_says_so(node, place):
    begin(node, place, objects.shell_task(place, "hangs", "sleep 600", timeout="5s"))
    task = until(node, place, status="Failed")
    assert task["status"]["reason"] == "DeadlineExceeded"
    assert task["status"]["message"] == "Job was active longer than specified deadline"


def test_a_missing_secret_is_told_at_once(node, place):
    code = {"inline": {"code": "1"}, "secureParameters": {"secret": "tokens"}}
    begin(node, place, objects.task(place, "secret", python=code))
    task = until(node, place, reason="CreateContainerConfigError")
    assert 'secret "tokens" not found' in task["status"]["message"]
