"""Pods that wait for a Service: by our annotation, and by an init container that polls."""

from __future__ import annotations

import time

import pytest

from helpers import node_objects as objects
from helpers.node import BUSYBOX, figure

PODS = 20
WAITING_SECONDS = 60
POLL = "until wget -q -T 1 -O /dev/null http://$QUEUE_SERVICE_HOST:8080/; do sleep 1; done"
SERVE = "touch /tmp/index.html; exec httpd -f -p 8080 -h /tmp"


def queue(place):
    """The Service, and the Deployment that serves it."""
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "queue", "namespace": place},
        "spec": {"selector": {"app": "queue"}, "ports": [{"port": 8080}]},
    }
    server = objects.deployment(place, "queue", replicas=0)
    (container,) = server["spec"]["template"]["spec"]["containers"]
    container["command"] = ["sh", "-c", SERVE]
    container["readinessProbe"] = {"httpGet": {"port": 8080, "path": "/"}, "periodSeconds": 1}
    return service, server


def waiters(place, how):
    """A Deployment whose pods wait for the Service."""
    manifest = objects.deployment(place, how, replicas=PODS)
    template = manifest["spec"]["template"]
    if how == "annotation":
        template["metadata"]["annotations"] = {
            "gates.harbourmaster.dev/wait-for": "service/queue",
        }
    else:
        template["spec"]["initContainers"] = [
            {
                "name": "wait",
                "image": BUSYBOX,
                "command": ["sh", "-c", POLL],
                "securityContext": objects.RESTRICTED,
            }
        ]
    return manifest


def until(node, place, how, count):
    """Wait until so many pods have a state; returns all pods."""
    for _ in range(180):
        pods = node.get("pods", f"--namespace={place}", f"--selector=app={how}")
        if sum(map(count, pods)) >= PODS:
            return pods
        time.sleep(0.5)
    raise AssertionError(f"{how}: {pods}")


def is_waiting(pod):
    status = pod["status"]
    states = [
        init_container_status["state"]
        for init_container_status in status.get("initContainerStatuses", ())
    ]
    return bool(pod["spec"].get("schedulingGates")) or any("running" in state for state in states)


def is_ready(pod):
    conditions = pod["status"].get("conditions", ())
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )


@pytest.mark.parametrize("how", ["annotation", "init-container"])
def test_what_waiting_costs(node, place, how):
    node.apply(*queue(place), waiters(place, how))
    pods = until(node, place, how, is_waiting)
    uids = [pod["metadata"]["uid"] for pod in pods]
    ours = node.containers("controller").values()
    before = node.cost_of_pods(uids)[0] + sum(map(node.cpu, ours))
    time.sleep(WAITING_SECONDS)
    cpu, memory = node.cost_of_pods(uids)
    used = cpu + sum(map(node.cpu, ours)) - before
    pods = node.get("pods", f"--namespace={place}", f"--selector=app={how}")
    bound = sum("nodeName" in pod["spec"] for pod in pods)
    events = node.get("events", f"--namespace={place}")
    pulls = sum(event["reason"] == "Pulled" for event in events)
    figure(
        f"{PODS} pods that wait for a Service by {how}: {bound} on nodes, {pulls} images pulled or "
        f"found, {used / 1e9:.2f} CPU seconds in {WAITING_SECONDS} s with the controller's, "
        f"{memory:.0f} MiB"
    )
    assert bound == (0 if how == "annotation" else PODS)
    assert pulls == bound
    if how == "annotation":
        begun = time.monotonic()
        node.kubectl("--namespace", place, "scale", "deployment", "queue", "--replicas=1")
        until(node, place, how, is_ready)
        figure(f"all ready {time.monotonic() - begun:.1f} s after the Service's scale-up")
