"""Nodes that are drained and restarted while the API server asks."""

from __future__ import annotations

import time

from helpers import node_objects as objects
from helpers.node import NAMESPACE, figure


def test_a_drain_loses_no_request_and_every_pod_is_ready_again(node):
    name = node.get("pods", f"--namespace={NAMESPACE}")[0]["spec"]["nodeName"]
    try:
        with node.load() as load:
            begun = time.monotonic()
            node.kubectl(
                "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s"
            )
            drained = time.monotonic() - begun
            node.rollout("harbourmaster-controller", "harbourmaster-webhook")
            time.sleep(3)
    finally:
        node.kubectl("uncordon", name)
    figure(f"drain of a node in {drained:.1f} s: {load}")
    assert all(
        pod["spec"]["nodeName"] != name for pod in node.get("pods", f"--namespace={NAMESPACE}")
    )
    assert load.bad == []


def test_a_restart_of_kubelet_and_containerd_leaves_pods_alone(node, place):
    node.apply(objects.deployment(place, "stays", replicas=2))
    node.wait("condition=Available", f"--namespace={place}", "deployment/stays")
    before = node.containers(namespace=place)
    with node.load() as load:
        node.stop("kubelet", "containerd")
        time.sleep(2)
        node.revive()
        node.apply(objects.deployment(place, "comes", replicas=2))
        node.wait("condition=Available", f"--namespace={place}", "deployment/comes")
        node.wait("condition=Ready", "nodes", "--all")
    figure(f"restart of kubelet and containerd: {load}")
    after = node.containers(namespace=place)
    assert {pod: after[pod] for pod in before} == before
    assert load.bad == []
