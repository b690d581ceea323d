"""Faults under load: pods that come back without the policy are counted."""

from __future__ import annotations

import time

from harbourmaster.lifecycle.jobs import NONCE
from helpers import node_objects as objects
from helpers.node import NAMESPACE, figure

WEBHOOK, CONTROLLER = "harbourmaster-webhook", "harbourmaster-controller"
# Requests that a webhook which ends at once may have in hand: the load's connections.
IN_FLIGHT = 8


def test_a_rolling_restart_of_the_webhook_loses_no_request(node):
    with node.load() as load:
        node.kubectl("--namespace", NAMESPACE, "rollout", "restart", f"deployment/{WEBHOOK}")
        node.rollout(WEBHOOK)
        time.sleep(5)
    figure(f"rolling restart: {load}")
    assert load.bad == []


def test_a_deleted_certificate_comes_back_and_no_request_is_lost(node):
    name = f"{WEBHOOK}-cert"
    before = node.get("secret", name, f"--namespace={NAMESPACE}")["metadata"]["uid"]
    with node.load() as load:
        node.kubectl("--namespace", NAMESPACE, "delete", "secret", name)
        node.wait("create", f"--namespace={NAMESPACE}", f"secret/{name}")
        time.sleep(20)
    figure(f"certificate deleted: {load}")
    assert node.get("secret", name, f"--namespace={NAMESPACE}")["metadata"]["uid"] != before
    assert load.bad == []


def test_a_killed_webhook_loses_only_requests_in_flight(node):
    with node.load() as load:
        pod, container = node.busiest()
        (status,) = node.get("pod", pod, f"--namespace={NAMESPACE}")["status"]["containerStatuses"]
        node.kill(container)
        restarts = f"{{.status.containerStatuses[0].restartCount}}={status['restartCount'] + 1}"
        node.wait(f"jsonpath={restarts}", f"--namespace={NAMESPACE}", f"pod/{pod}")
        node.rollout(WEBHOOK)
    figure(f"SIGKILL of the busiest webhook: {load}")
    assert len(load.bad) <= IN_FLIGHT


def test_a_frozen_webhook_gets_no_request_once_it_has_left_the_endpoints(node):
    with node.load() as load:
        pod, container = node.busiest()
        with node.freeze(container):
            node.wait("condition=Ready=false", f"--namespace={NAMESPACE}", f"pod/{pod}")
            time.sleep(5)
            during = len(load.bad)
            time.sleep(5)
            after = len(load.bad) - during
        node.rollout(WEBHOOK)
    figure(f"freeze of the busiest webhook: {load}; {after} after it left the endpoints")
    assert after == 0


def test_a_task_goes_on_when_the_leader_is_killed(node, place):
    node.apply(
        objects.shell_task(place, "slow", "sleep 6"),
        objects.deployment(place, "crane", tasks=["slow"]),
    )
    node.wait("create", f"--namespace={place}", "job", f"--selector={NONCE}")
    lease = node.get("lease", CONTROLLER, f"--namespace={NAMESPACE}")
    leader = lease["spec"]["holderIdentity"].partition("_")[0]
    node.kill(node.containers("controller")[leader])
    begun = time.monotonic()
    node.wait("condition=Available", f"--namespace={place}", "deployment/crane")
    figure(f"leader killed while a task runs: available {time.monotonic() - begun:.1f} s later")
    assert len(node.get("jobs", f"--namespace={place}")) == 1
    node.rollout(CONTROLLER)
