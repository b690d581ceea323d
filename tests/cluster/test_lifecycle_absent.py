"""Keptn's kinds may be absent: nothing is held up, and they count once they come (decision D13)."""

from __future__ import annotations

import asyncio
import json
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from helpers.cluster import eventually
from helpers.flow.manifests import deployment, keptn, with_gate
from helpers.flow.namespace import GATE, gates
from helpers.patience import WAIT
from helpers.processes import Controller

HOME = "harbour"
CRDS = Path(__file__).parents[2] / "deploy/crds"
NAMESPACE = "shop"
ALONE = ("--leader-election-enabled=false", "--register-webhooks=false")
KINDS = 12
"""Keptn's kinds that are watched, metrics among them."""


@pytest.fixture
def start_controller(throwaway_control_plane):
    """Return ``controlled(*flags)``: a control plane without our kinds, and a controller on it."""
    started = []

    def start(*flags):
        plane = throwaway_control_plane()
        plane.kubectl("create", "namespace", HOME)
        controller = Controller(plane.kubeconfig, HOME, *ALONE, *flags)
        started.append(controller)
        return plane, controller

    yield start
    for process in started:
        assert process.stop() == 0
        assert process.errors == []


def absent(controller):
    """The kinds that the metric says are absent, and those that it says are there."""
    with urllib.request.urlopen(f"{controller.health}/metrics") as answer:  # noqa: S310
        text = answer.read().decode()
    samples = re.findall(
        r'^harbourmaster_resource_absent\{resource="(\w+)"\} (.*)$', text, re.MULTILINE
    )
    return tuple({name for name, value in samples if float(value) == number} for number in (1, 0))


def is_ready(controller):
    try:
        with urllib.request.urlopen(f"{controller.health}/readyz") as answer:  # noqa: S310
            return answer.status == 200
    except urllib.error.HTTPError:
        return False


def gated_deployment():
    """A Deployment whose pods are as admission leaves them."""
    mark = {"gates.harbourmaster.dev/app-type": "single-service"}
    return with_gate(deployment("ledger", {**keptn("ledger", app="shop"), **mark}))


async def test_without_the_kinds_all_else_works_and_they_count_when_they_come(start_controller):
    plane, controller = await asyncio.to_thread(
        start_controller, "--controllers=namespaces,lifecycle"
    )
    kubectl = plane.kubectl
    plane.add_nodes(1)
    line = controller.await_event("resource not served", resource="keptnapps")
    assert line["level"] == "info"
    missing, there = eventually(
        lambda: absent(controller), is_right=lambda got: len(got[0]) > KINDS
    )
    assert {"keptnapps", "keptntasks", "keptnmetrics", "rollouts"} <= missing
    assert {"pods", "jobs", "replicasets", "namespaces"} <= there
    assert eventually(lambda: is_ready(controller))

    # The other controller works.
    kubectl("create", "namespace", NAMESPACE)
    kubectl("annotate", "namespace", NAMESPACE, "keptn.sh/lifecycle-toolkit=enabled")
    label = "jsonpath={.metadata.labels.gates\\.harbourmaster\\.dev/enabled}=true"
    kubectl("wait", f"--for={label}", f"namespace/{NAMESPACE}", WAIT)

    # A pod that waits waits on.
    kubectl("create", f"--namespace={NAMESPACE}", "-f=-", stdin=json.dumps(gated_deployment()))

    def pods():
        result = kubectl("get", "pods", f"--namespace={NAMESPACE}", "-o=json").stdout
        return json.loads(result)["items"]

    (pod,) = eventually(pods)
    assert gates(pod) == [GATE]

    kubectl("apply", "--server-side", f"--kustomize={CRDS}")
    ready = "jsonpath={.status.readyReplicas}=1"
    kubectl("wait", f"--for={ready}", "deployment/ledger", f"--namespace={NAMESPACE}", WAIT)
    (pod,) = pods()
    assert gates(pod) == []
    done = "jsonpath={.status.status}=Succeeded"
    for resource in ("keptnworkloadversions", "keptnappversions"):
        kubectl("wait", f"--for={done}", resource, "--all", f"--namespace={NAMESPACE}", WAIT)
    assert eventually(lambda: absent(controller), is_right=lambda got: got[0] <= {"rollouts"})
    assert is_ready(controller)


async def test_without_the_controller_nothing_of_it_is_asked_for(start_controller):
    _, controller = await asyncio.to_thread(start_controller, "--controllers=namespaces")
    assert eventually(lambda: is_ready(controller))
    missing, there = absent(controller)
    assert (missing, there) == (set(), {"namespaces"})
    assert not any("resource not served" in line for line in controller.lines)
