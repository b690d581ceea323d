"""The hardened overlay on a real node: every pod becomes ready, and the kernel confines it."""

from __future__ import annotations

from pathlib import Path

import pytest

from harbourmaster.playground.errors import PlaygroundError
from helpers import node_objects as objects
from helpers.node import IMAGE, NAMESPACE, RealNode

CONFINED = {"Seccomp": "2", "NoNewPrivs": "1", "CapEff": "0" * 16, "CapPrm": "0" * 16}


@pytest.fixture(scope="module")
def hardened(tmp_path_factory):
    """A node of its own, where nothing but the hardened overlay was installed."""
    try:
        real_node = RealNode(tmp_path_factory.mktemp("hardened"))
    except PlaygroundError as error:
        pytest.skip(str(error))
    with real_node:
        real_node.make("deploy-hardened", f"IMG={IMAGE}", "API_SERVER_CIDRS=0.0.0.0/0")
        yield real_node


def first_process(node, container):
    """The status and the mount of the root of a container's first process."""
    process = Path("/proc") / (node.cgroup(container) / "cgroup.procs").read_text().split()[0]
    lines = (line.split(":", 1) for line in (process / "status").read_text().splitlines())
    mounts = (line.split() for line in (process / "mountinfo").read_text().splitlines())
    root = next(mount[5] for mount in mounts if mount[4] == "/")
    return {name: value.strip() for name, value in lines}, root.split(",")


def test_every_pod_is_ready_without_a_restart_and_confined(hardened):
    pods = hardened.get("pods", f"--namespace={NAMESPACE}")
    statuses = [status for pod in pods for status in pod["status"]["containerStatuses"]]
    assert {(status["ready"], status["restartCount"]) for status in statuses} == {(True, 0)}
    containers = hardened.containers()
    assert len(containers) == len(pods)
    for container in containers.values():
        status, root = first_process(hardened, container)
        assert {name: status[name] for name in CONFINED} == CONFINED
        assert "0" not in status["Uid"].split() + status["Gid"].split()
        assert "ro" in root


def test_a_task_runs_and_its_pods_are_released(hardened):
    place = "shop-hardened"
    hardened.apply(objects.namespace(place))
    task = objects.shell_task(place, "check", "id; sleep 1")
    hardened.apply(task, objects.deployment(place, "cart", tasks=["check"]))
    hardened.rollout("cart", namespace=place)
    (ended,) = hardened.get("keptntasks", f"--namespace={place}")
    assert ended["status"]["status"] == "Succeeded"
